"""The command `check`. It stands alone, since it is run after each edit and needs nothing that builds the wiki."""

from __future__ import annotations

import argparse
import gc

from readyonce.check import check as checks
from readyonce.cli.output import GOOD, count
from readyonce.data import catalog
from readyonce.data.reading import CatalogError


def check(options: argparse.Namespace) -> int:
    gc.disable()  # it is over in a second or two, a fifth of which looking for garbage would take
    known, problems = checks.checked(catalog.find_root())
    if problems:
        raise CatalogError(problems)
    families = count(len(known.families), "error family", "error families")
    print(f"{count(len(known.incidents), 'incident')}, {families}: nothing to mend.")
    return GOOD
