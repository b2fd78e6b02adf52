"""The catalogue: what `snippets/` and `docs/` hold, read, checked for its form, and asked."""
