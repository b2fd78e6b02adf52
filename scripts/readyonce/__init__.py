"""ReadyOnce: distributed-training failures, reproduced, and their fixes, proven.

Modules import one way only:

    catalog    what is known: incidents, error families, evidence; errors with file and line
    lab        runs variants and records what happened            (needs catalog, and torch)
    verdicts   judges claims by the evidence                      (needs catalog)
    articles   reads the Markdown pages                           (needs catalog)
    render     writes the includes that the pages show            (needs verdicts, articles)
    check      finds words that disagree with runs or each other  (needs render)
    book       sets the built pages of a language as a PDF        (needs words)
    site       builds and serves the wiki, packs the offline copy  (needs render, book)
    scaffold   makes the files of a new incident                  (needs catalog)
    cli        the command                                        (needs all)
"""

__version__ = "0.1.0"
