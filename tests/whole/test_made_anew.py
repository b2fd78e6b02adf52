"""What is kept under `build/` is made anew where it is older than its sources, or damaged."""

import json

import pytest

from support.project import command, edit


@pytest.mark.parametrize(
    "file, find, replace, arguments, shown",
    [
        ("docs/en/incidents/RO-0005.md", "## Fix", "## Another fix", ["explain", "RO-0005"], "Another fix"),
        ("snippets/RO-0005/incident.yml", "short:\n  en: ", "short:\n  en: Another ", ["list"], "Another "),
        ("scripts/readyonce/data/words.en.yml", "\n", "\n# newer\n", ["explain", "RO-0005"], "RO-0005"),
    ],
)
def test_what_is_shown_is_made_anew_when_a_source_changed(copy, file, find, replace, arguments, shown):
    package = {"PYTHONPATH": str(copy / "scripts")}
    assert command(*arguments, root=copy, environment=package).returncode == 0
    made = next(path for path in (copy / "build").iterdir() if path.suffix in (".txt", ".json"))
    made.write_text(json.dumps({"en": "xyzzy"}), encoding="utf-8")
    assert "xyzzy" in command(*arguments, root=copy, environment=package).stdout  # what was made is read
    edit(copy / file, find, replace)
    after = command(*arguments, root=copy, environment=package).stdout
    assert shown in after and "xyzzy" not in after


@pytest.mark.parametrize("arguments", [["facts", "strategy=ddp"], ["link", "RO-0005", "--section", "fix"], ["list"]])
def test_what_was_damaged_is_made_anew(copy, arguments):
    environment = {"SITE_URL": "https://wiki.example.com", "PYTHONPATH": str(copy / "scripts")}
    before = command(*arguments, root=copy, environment=environment)
    (made,) = (copy / "build").glob("*.json")
    for damage in ("", "{}", "{"):
        made.write_text(damage, encoding="utf-8")
        after = command(*arguments, root=copy, environment=environment)
        assert (after.returncode, after.stdout) == (0, before.stdout) and after.stdout
