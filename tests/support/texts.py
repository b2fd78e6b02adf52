"""What the texts of generated parts take."""

import string


def put_in(text: str) -> tuple[int, set[str]]:
    """How many values a text takes by their order, and the names of the others."""
    names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    by_order = [name for name in names if not name or name.isdigit()]
    return len(by_order), set(names) - set(by_order)
