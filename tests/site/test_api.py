"""The published JSON: it fits its schema, and says what metadata and runs say."""

import copy
import json

import jsonschema
import pytest

LISTS = ("incidents", "errors", "claims")


@pytest.fixture(scope="module")
def api(built):
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (built / "api" / "v1").glob("*.json")}


def validate(api, name):
    jsonschema.Draft202012Validator.check_schema(api["schema"])
    schema = {"$ref": f"#/$defs/{name}", "$defs": api["schema"]["$defs"]}
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(api[name])]


def test_what_is_published(api):
    assert set(api) == {*LISTS, "schema"}


@pytest.mark.parametrize("name", LISTS)
def test_fits_the_schema(api, name):
    assert api[name]
    assert validate(api, name) == []


@pytest.mark.parametrize("name", LISTS)
def test_the_schema_refuses_what_does_not_fit(api, name):
    for key in api[name][0]:
        broken = copy.deepcopy(api)
        del broken[name][0][key]
        assert validate(broken, name), f"{key} may be missing"
        broken = copy.deepcopy(api)
        broken[name][0][key] = -1.5
        assert validate(broken, name), f"{key} may be a number"
    broken = copy.deepcopy(api)
    broken[name][0]["more"] = "x"
    assert validate(broken, name), "a key that is not described passes"


def test_errors_name_the_runs_that_showed_them(api, known):
    assert {error["id"] for error in api["errors"]} == set(known.families)
    told = {(error["id"], run) for error in api["errors"] for run in error["runs"]}
    wanted = {
        (run.error, f"{incident.id}/{run.variant}@{environment}")
        for incident in known.incidents.values()
        for environment, evidence in incident.evidence.items()
        for run in evidence.runs
        if run.error
    }
    assert told == wanted
    for error in api["errors"]:
        assert error["incidents"] == [i.id for i in known.incidents.values() if error["id"] in i.meta.errors]


def test_pages_of_errors_are_there(api, built):
    for error in api["errors"]:
        page, _, anchor = error["page"].partition("#")
        for prefix in ("", "zh/"):
            html = (built / prefix / page / "index.html").read_text(encoding="utf-8")
            assert not anchor or f'id="{anchor}"' in html, error["id"]


def test_claims_are_all_there(api, known):
    wanted = {f"{incident.id}/{name}" for incident in known.incidents.values() for name in incident.meta.claims}
    assert [entry["id"] for entry in api["claims"]] and {entry["id"] for entry in api["claims"]} == wanted


def test_evidence_of_claims_is_in_the_repository(api, root):
    for entry in api["claims"]:
        assert bool(entry["evidence"]) == bool(entry["predicted"])
        assert all((root / path).is_file() for path in entry["evidence"])
