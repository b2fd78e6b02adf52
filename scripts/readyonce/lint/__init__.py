"""Judges a launch before it starts: what it reads (`shell`, `launch`), and what the stored runs say of it (`judge`).

Nothing that is read is ever executed, and no verdict is typed: each is a cell of the decision table, filled by runs.
At run time it needs compiled rules only; `rules` makes them from the catalogue.
"""
