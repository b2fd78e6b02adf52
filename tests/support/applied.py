"""A reader who does to the letter what the lint says of a text."""

import re


def applied(finding, text):
    """The text of the finding's file, with its fix: the option replaced, kept with the fix beside it, or the fix added."""
    suffix = finding.file.rpartition(".")[2]
    fix, option = finding.fix, finding.option
    if option is None and suffix in ("yaml", "yml"):
        return f"{fix}\n{text}"
    if option is None and suffix == "json":
        return text.replace("{", f"{{{fix}, ", 1)
    if option is None:  # behind what the command starts
        lines = text.split("\n")
        starts = re.compile(r"\.py\b|(?<=[\w}] )(?:sft|rlhf|train)(?=\s|$)|-m [\w.]+")
        at = next(i for i in range(finding.line - 1, len(lines)) if starts.search(lines[i]))
        lines[at] = starts.sub(lambda match: f"{match[0]} {fix}", lines[at], count=1)
        return "\n".join(lines)
    # Where a line goes on in the next one, and in a variable's own quotes.
    pattern = re.escape(option).replace(r"\ ", r"(?:\s|\\\n)+").replace('"', r'\\?"').replace("'", "'?")
    *_, found = re.finditer(rf"(?<![\w.-]){pattern}(?!\w)", text)
    if finding.change == "replace":
        made = fix.replace('"', '\\"') if '\\"' in found[0] and '\\"' not in fix else fix
        made = made if "'" in found[0] else made.replace("'", "")
    elif suffix == "py":
        made = f"{found[0]}, {fix}"
    elif suffix in ("yaml", "yml"):
        indent = text[: found.start()].rpartition("\n")[2]
        made = found[0] + "".join(f"\n{indent}{line}" for line in fix.split("\n"))
    else:
        made = f"{found[0]}, {fix}" if suffix == "json" else f"{found[0]} {fix}"
    return text[: found.start()] + made + text[found.end() :]
