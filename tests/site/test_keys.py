"""The keys of the files that contributors write: the schema that editors read takes all that is there and nothing unknown."""

import json
import re

import jsonschema
import pytest

from readyonce.data import reading
from readyonce.pages import schema_docs
from support.project import KNOWN, ROOT

FILES = {
    path: name
    for name, (shown, _) in schema_docs.FILES.items()
    for path in sorted(ROOT.glob(shown.replace("RO-0042", "RO-*").replace("NAME", "*")))
}
LINE = re.compile(r"# yaml-language-server: \$schema=(\S+)\n")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "snippets")))
def test_the_first_line_leads_to_the_schema_that_fits(built, path):
    text = path.read_text(encoding="utf-8")
    place = (path.parent / LINE.match(text)[1]).resolve()
    assert place == ROOT / "build" / "schema" / f"{FILES[path]}.json"
    assert place.read_bytes() == (built / "schema" / place.name).read_bytes()
    validator = jsonschema.Draft202012Validator(json.loads(place.read_text(encoding="utf-8")))
    validator.check_schema(validator.schema)
    read = reading.parse_yaml(text)
    assert not [*validator.iter_errors(read)]
    inner = read if "properties" in validator.schema else next(iter(read.values()))
    inner["claim"] = {}
    assert [*validator.iter_errors(read)]


@pytest.mark.parametrize("page", ["keys/", "zh/keys/"])
def test_the_manual_has_every_key_with_its_meaning(built, page):
    html = (built / page / "index.html").read_text(encoding="utf-8")
    rows = dict(re.findall(r"<tr>\s*<td>(?:<strong>)?<code>(\w+)</code>.*?</td>\s*<td>(.*?)</td>", html, re.DOTALL))
    assert {*KNOWN.incidents["RO-0001"].meta.__class__.model_fields} <= rows.keys() and all(rows.values())
    assert bool(re.search("[一-鿿]", rows["time_limit"])) == page.startswith("zh/")


def test_what_no_key_is_called_any_more_is_not_translated():
    for model, words in schema_docs._translated().items():
        fields = getattr(schema_docs.schema, model).model_fields
        assert {*words} <= {field.alias or name for name, field in fields.items()}, model
