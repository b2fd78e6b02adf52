"""ReadyOnce: distributed-training failures, reproduced, and their fixes, proven.

Folders import one way only, from the top of this list to its end; `pyproject.toml` has the contract:

    cli        the command: a table of what it can do, and functions that print
    publish    what leaves the project: the site, the book, the API, the feed, the data of a wheel
    check      what `readyonce check` asks: a rule is a function that yields problems
    pages      the generated parts of the pages
    lab        runs: environments, launches, evidence and its address
    rules      the compilers: from the catalogue to the rules that `diagnose` and `lint` read
    triage     the logs of many jobs: which rank failed first
    lint       a launch before it starts, judged by the stored runs
    diagnose   the error that a log shows
    launches   what a launch sets: shell, YAML, JSON and Python, read into options
    data       the catalogue: what `snippets/` and `docs/` hold, read and asked
    compare    what `match` means (needs torch only)

`diagnose`, `lint` and `triage` know compiled rules only, never the catalogue.
"""

__version__ = "0.1.0"
