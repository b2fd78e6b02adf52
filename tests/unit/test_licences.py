"""The licences, and whose version is named."""

from importlib import metadata

from support.hosting import HOSTING
from support.project import ROOT


def test_the_themes_version_and_licence_are_those_installed():
    theme = metadata.distribution("mkdocs-material")
    assert f"mkdocs-material) {theme.version} | {theme.metadata['License-Expression']} |" in (
        HOSTING / "shipped.md"
    ).read_text(encoding="utf-8")


def test_licences_stand_in_full():
    apache = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert (
        "Apache License" in apache and "Version 2.0, January 2004" in apache and "END OF TERMS AND CONDITIONS" in apache
    )
    assert "creativecommons.org/licenses/by/4.0/" in (ROOT / "docs" / "LICENSE").read_text(encoding="utf-8")
