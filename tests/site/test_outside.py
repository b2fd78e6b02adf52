"""Nothing of the machine that builds gets onto a page."""

from readyonce.publish import site
from support.project import command


def test_nothing_is_shown_from_outside(copy, capfd):
    """Neither the terminal nor the site follows an include out of its folder, in any of its forms."""
    (copy / "secret.txt").write_text("do not show")
    page = copy / "docs/en/incidents/RO-0001.md"
    text = page.read_text(encoding="utf-8")
    forms = ('--8<-- "../secret.txt"', f'--8<-- "{copy}/secret.txt"', "--8<--\n../secret.txt\n--8<--")
    for include in forms:
        page.write_text(f"{text}\n{include}\n", encoding="utf-8")
        told = command("explain", "RO-0001", root=copy)
        assert told.returncode == 0 and "do not show" not in told.stdout
    assert site.build(copy, take_along=()) == 1
    told = capfd.readouterr()
    assert "../secret.txt" in told.err and "Traceback" not in told.err and "do not show" not in told.out
