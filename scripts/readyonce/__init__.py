"""ReadyOnce: distributed-training failures, reproduced, and their fixes, proven.

Modules import one way only:

    project    where the project is, or the data that the wheel carries
    terminal   what is shown gives a terminal no orders           (needs nothing)
    catalog    what is known: incidents, error families, evidence; errors with file and line
    operators  compiles DeepSpeed's operators before runs need them (needs project)
    compare    what `match` means: how far a run is from training in one process (needs torch only)
    hashes     what a file says as a hash                         (needs nothing)
    launches   starts runs and reads how they ended               (needs catalog, and torch)
    lab        makes environments, and records what runs showed   (needs launches)
    made_from  the address of evidence: a hash of each input      (needs lab)
    launch     runs a framework's own command, and compares       (needs lab)
    canary     runs all with the newest releases, and compares    (needs launch)
    verdicts   judges claims by the evidence                      (needs catalog)
    articles   reads the Markdown pages                           (needs catalog)
    rules      compiles the signatures of errors                  (needs catalog)
    diagnose   finds the error in a log                           (needs compiled rules only)
    inputs     what `diagnose` is given: files, folders, an issue (needs diagnose)
    report     a diagnosis for people                             (needs diagnose)
    guard      what the guard said of every run, as tables        (needs links, words)
    render     writes the includes that the pages show            (needs verdicts, articles, rules, news)
    check      finds words that disagree with runs or each other  (needs render)
    links      links to pages in the forms of trackers            (needs nothing)
    history    when what was touched, and how it was, from git    (needs nothing)
    news       what changed for readers                           (needs history, verdicts)
    feed       what lies beside the pages for programs            (needs history, links, articles)
    book       sets the built pages of a language as a PDF        (needs words)
    policy     what the hosted pages may load and run             (needs catalog)
    site       builds and serves the wiki, packs the offline copy  (needs render, book, policy)
    scaffold   makes the files of a new incident                  (needs catalog)
    cli        the command                                        (needs all)
"""

__version__ = "0.1.0"
