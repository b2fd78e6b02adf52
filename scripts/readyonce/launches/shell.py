"""The simple commands of a shell script, as bash would see their words; nothing is executed.

Variables, arrays, defaults (`${A:-b}`), continued lines, quotes, `eval` of a string, here-documents. What only a run
can tell (`$(...)`, a variable that nobody sets, `"$@"`) makes a word unknown, never a guess.

A parser was weighed, tree-sitter-bash 0.25.1: it finds errors in 12 of 78 public scripts (`<a placeholder>`, comments among
continued lines), loads in 44 ms beside 1 ms here, and leaves the values of words, most of this file, to its caller.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

SIZE = 8 << 20  # characters of a script
GROWTH = 1 << 20  # characters that its variables may expand to
COPIED = 64 << 20  # characters that are copied where a variable is added to
EXPANDED = f"its variables expand to more than {GROWTH >> 20} million characters"
DEPTH = 8  # of defaults within defaults, and of eval
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?=)")
_NUMBERED = re.compile(r"\d+[<>]")
_REDIRECTION = re.compile(r"&?\d*(<<-?|[<>]{1,3}&?|>\|)[ \t]*")
_PLACEHOLDER = re.compile(r"<[A-Za-z_][\w./-]*>")  # `<your_path>` of a document, and no redirection
_QUOTED_END = re.compile(r'["\\$`]')
_PLAIN_END = re.compile(r"[\s;&|<>()\\'\"$`]")
_BRACKETS = re.compile(r"\\.|'[^']*'|[(){}]", re.DOTALL)
_OPENING = {"if", "for", "while", "until", "case", "select", "function"}
_CLOSING = {"fi", "done", "esac"}
_KEYWORDS = _OPENING | _CLOSING | {"then", "else", "elif", "do", "{", "}", "!", "time", "in"}
_DECLARING = {"export", "declare", "local", "readonly", "typeset"}
_SHELLS = {"bash", "sh", "zsh", "dash", "ksh"}
_SCRIPT = re.compile(r"-[A-Za-z]*c[A-Za-z]*")  # `bash -lc`
# That start nothing, whatever their words are.
SPEAKING = {"echo", "printf", "cat", "grep", "which", "type", "alias", "pip", "git", "sed", "set", ":"}
SPEAKING |= {"ps", "kill", "pkill", "pgrep"}
# In a variable's value: what follows, up to white space, only a run can tell. Its own white space is hidden.
_MARK, _HIDDEN = "\0", "\1"
_ALL = ("$@", "$*", "${@}")
# What the script is given, `$@`, is left out of a text that a variable holds; of a list that nobody sets nothing is known.
_GIVEN = re.compile(r"(?!.*\$\{\w+\[)(?=.*(?:\$[@*]|\$\{@\}))", re.DOTALL)


class Unreadable(Exception):
    """A file that cannot be judged: why, and in which line."""

    def __init__(self, what: str, line: int = 1):
        super().__init__(what)
        self.line = line


class Word(NamedTuple):
    text: str  # what is not known stands as it is written
    line: int
    known: bool = True
    written: str = ""  # with its quotes; empty where it is one of several words that a variable holds


# The name, the values that were set (None: not known), and how they were: "", or added to a "text" or a "list".
_Assignment = tuple[str, list[str] | None, str]


class Command(NamedTuple):
    words: list[Word]
    # What it is told in front of it, and by export where one asks for that; None: set, but to what is not known.
    environment: dict[str, str | None]


class _State:
    def __init__(self, exported: Iterable[str] = (), grown: int = 0, copied: int = 0):
        self.variables: dict[str, list[str] | None] = {}  # None: not known
        self.exported = set(exported)
        self.depth = 0  # of compound commands around
        self.grown, self.copied = grown, copied

    def grows(self, letters: int, line: int) -> None:
        self.grown += letters
        if self.grown > GROWTH:
            raise Unreadable(EXPANDED, line)

    def copies(self, letters: int) -> None:
        self.copied += letters
        if self.copied > COPIED:
            raise Unreadable(EXPANDED)


def commands(text: str, first_line: int = 1, asked: Collection[str] = ()) -> list[Command]:
    """All simple commands in the order in which they stand, those of every branch included.

    `asked` are the exported variables that one wants to know: all of them for every command would be too many.
    """
    if len(text) > SIZE:
        raise Unreadable(f"it is larger than {SIZE >> 20} MiB: give the launch alone")
    return _read(text.replace("\r\n", "\n"), first_line, _State(), 0, asked)


def _read(text: str, line: int, state: _State, depth: int, asked: Collection[str]) -> list[Command]:
    found: list[Command] = []
    reader = _Reader(text, line, state)
    while (command := reader.command()) is not None:
        words, assigned = command
        _assign(state, assigned, exported=False, inline=bool(words))
        while words and words[0].text in _KEYWORDS and words[0].known:
            state.depth += (words[0].text in _OPENING) - (words[0].text in _CLOSING)
            if words[0].text in ("for", "select") and len(words) > 1:
                state.variables[words[1].text] = None
                words = []
                break
            words = words[1:]
            if _assignment_of(words[0] if words else Word("", 0)):  # `then STAGE=3`
                behind = next((i for i, word in enumerate(words) if not _assignment_of(word)), len(words))
                set_here = [assignment for word in words[:behind] if (assignment := _assignment_of(word))]
                words = words[behind:]
                assigned += set_here
                _assign(state, set_here, exported=False, inline=bool(words))
        if not words:
            continue
        name = words[0].text
        if name in _DECLARING:
            _assign(state, [assignment for word in words[1:] if (assignment := _assignment_of(word))], name == "export")
            if name == "export":
                state.exported |= {word.text for word in words[1:] if _NAME.fullmatch(word.text)}
            continue
        if name == "eval" and depth < DEPTH:
            # What is not known stands as it is written, and is as little known when it is read again.
            found += _read(" ".join(word.text for word in words[1:]), words[0].line, state, depth + 1, asked)
            continue
        # `env NAME=value`, `docker run -e NAME=value`: told to what stands behind it.
        assigned += [assignment for word in words[1:] if (assignment := _assignment_of(word))]
        if name not in SPEAKING and depth < DEPTH and (inner := _inner(words)):
            child = _child(state, assigned)
            found += _read(inner.text, inner.line, child, depth + 1, asked)
            state.grown, state.copied = child.grown, child.copied
            continue
        environment = {key: _one(state.variables.get(key)) for key in asked if key in state.exported}
        environment |= {key: _one(values) for key, values, _ in assigned}
        found.append(Command(words, environment))
    return found


def _inner(words: list[Word]) -> Word | None:
    """The script behind `bash -c`, whatever starts that shell: srun, docker, nohup."""
    at = next((i for i, word in enumerate(words) if word.text.rpartition("/")[2] in _SHELLS), len(words))
    while (at := at + 1) + 1 < len(words) and words[at].text.startswith("-"):
        if _SCRIPT.fullmatch(words[at].text):
            return words[at + 1]
        at += words[at].text.endswith("o")  # -o pipefail
    return None


def _child(state: _State, assigned: list[_Assignment]) -> _State:
    """What a shell that is started knows: what is exported. All else that the script sets is not known there."""
    handed = {name: values for name, values in state.variables.items() if values is not None and name in state.exported}
    state.copies(16 * (len(state.variables) + len(state.exported) + sum(map(len, handed.values()))))
    child = _State({*state.exported, *(assignment[0] for assignment in assigned)}, state.grown, state.copied)
    child.variables = dict.fromkeys(state.variables) | {name: [*values] for name, values in handed.items()}
    child.variables |= {name: values for name, values, _ in assigned}
    return child


def _one(values: list[str] | None) -> str | None:
    return " ".join(values) if values is not None and _MARK not in "".join(values) else None


def _marked(raw: str) -> str:
    return _MARK + re.sub(r"\s", _HIDDEN, raw)


def _shown(text: str) -> str:
    return text.replace(_MARK, "").replace(_HIDDEN, " ")


def _assignment_of(word: Word) -> _Assignment | None:
    name, sign, value = word.text.partition("=")
    return (name, [value] if word.known else None, "") if sign and _NAME.fullmatch(name) else None


def _assign(state: _State, assigned: list[_Assignment], exported: bool, inline: bool = False) -> None:
    for name, values, more in assigned:
        if exported:
            state.exported.add(name)
        if inline:  # it is told to that one command
            continue
        before = state.variables.get(name, [])
        if not more:
            if state.depth and name in state.variables and before != values:
                values = None  # it depends on the branch
        elif before is None or values is None:
            values = None
        elif more == "list":
            before += values  # in place: a script may do so a million times
            values = before
        else:  # "text": behind what is there, or behind a list's first
            state.copies(sum(map(len, before[:1])))
            before[:1] = ["".join((*before[:1], *values))]
            values = before
        state.variables[name] = values


class _Reader:
    """Takes one simple command after the other from a text."""

    def __init__(self, text: str, line: int, state: _State, depth: int = 0):
        self.text, self.at, self.line, self.state, self.depth = text, 0, line, state, depth
        self.heredocs: list[str] = []

    def command(self) -> tuple[list[Word], list[_Assignment]] | None:
        """Its words, and the assignments in front of them."""
        words: list[Word] = []
        assigned: list[_Assignment] = []
        text = self.text
        while self.at < len(text):
            letter = text[self.at]
            if letter in " \t":
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at, self.line = self.at + 2, self.line + 1
            elif letter == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif letter in "\n;&|()":
                if letter == "&" and text.startswith("&>", self.at):
                    self._redirection()
                    continue
                self.at += 1
                if letter == "\n":
                    self.line += 1
                    self._skip_heredocs()
                if words or assigned:
                    return words, assigned
            elif (letter in "<>" and not _PLACEHOLDER.match(text, self.at)) or _NUMBERED.match(text, self.at):
                self._redirection()
            elif not words and (match := _ASSIGNED.match(text, self.at)):
                self.at = match.end()
                is_list = text.startswith("(", self.at)
                if is_list:
                    values = self._array()
                else:
                    start = self.at
                    made, is_known = self._words(split=False)
                    values = (made or [""]) if is_known or _GIVEN.search(text[start : self.at]) else None
                assigned.append((match[1], values, ("list" if is_list else "text") if match[2] == "+=" else ""))
            else:
                words += self._word()
        return (words, assigned) if words or assigned else None

    def _array(self) -> list[str] | None:
        values: list[str] = []
        known = True
        self.at += 1
        text = self.text
        while self.at < len(text) and text[self.at] != ")":
            if text.startswith("\\\n", self.at):
                self.at, self.line = self.at + 2, self.line + 1
            elif text[self.at].isspace():
                self.line += text[self.at] == "\n"
                self.at += 1
            elif text[self.at] == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                before = self.at
                start = self.at
                made, is_known = self._words()
                values += made
                # What the script is given, `"$@"`, is left out, as it is of a command.
                known &= is_known or text[start : self.at].strip('"') in _ALL
                if self.at == before:  # a sign that has no meaning here
                    self.at += 1
        self.at += 1
        return values if known else None

    def _redirection(self) -> None:
        match = _REDIRECTION.match(self.text, self.at)
        assert match  # as it was asked before this was called
        self.at = match.end()
        heredoc = match[1] in ("<<", "<<-")
        made = self._word(split=False)
        if heredoc and made:
            self.heredocs.append(made[0].text)

    def _skip_heredocs(self) -> None:
        for mark in self.heredocs:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end].strip()
                self.at, self.line = end + 1, self.line + 1
                if line == mark:
                    break
        self.heredocs = []

    def _word(self, split: bool = True) -> list[Word]:
        """The words that one word of the script stands for: none, one, or as many as its variables hold."""
        begin, start = self.line, self.at
        made, _ = self._words(split)
        written = self.text[start : self.at] if len(made) == 1 else ""
        return [Word(_shown(word), begin, _MARK not in word, written) for word in made]

    def _words(self, split: bool = True) -> tuple[list[str], bool]:
        """The same with what is not known marked, and whether it is all."""
        text, begin = self.text, self.line
        parts: list[str] = []  # of the word under way
        done: list[str] = []
        opened, quoted = False, False
        while self.at < len(text):
            letter = text[self.at]
            if match := _PLACEHOLDER.match(text, self.at):
                parts.append(_marked(match[0]))
                self.at = match.end()
                continue
            if letter in " \t\n;&|<>()":
                break
            if letter == "\\":
                if text.startswith("\\\n", self.at):
                    self.line += 1
                else:
                    parts.append(text[self.at + 1 : self.at + 2])
                self.at += 2
            elif letter == "'" or text.startswith("$'", self.at):
                start = self.at + 1 + (letter == "$")
                end = text.find("'", start)
                if end < 0:
                    raise Unreadable("a quote ' is not closed", begin)
                parts.append(text[start:end])
                self.line += text.count("\n", start, end)
                self.at, quoted = end + 1, True
            elif letter == '"':
                self.at, quoted = self.at + 1, True
                while True:
                    if self.at >= len(text):
                        raise Unreadable('a quote " is not closed', begin)
                    letter = text[self.at]
                    if letter == '"':
                        self.at += 1
                        break
                    if letter == "\\" and text[self.at + 1 : self.at + 2] in ('"', "\\", "$", "`", "\n"):
                        self.line += text[self.at + 1] == "\n"
                        parts.append(text[self.at + 1].replace("\n", ""))
                        self.at += 2
                    elif letter in "$`":
                        raw, values, is_list = self._expansion()
                        if values is None:
                            if raw in _ALL or is_list:
                                opened = True
                                quoted = bool(parts)
                            else:
                                parts.append(_marked(raw))
                        elif is_list:
                            if not values:
                                quoted = bool(parts)
                            for value in values[:-1]:
                                done.append("".join(parts) + value)
                                parts = []
                            parts += values[-1:]
                        else:
                            parts += values
                    else:
                        stop = _QUOTED_END.search(text, self.at)
                        end = max(self.at + 1, stop.start() if stop else len(text))
                        parts.append(text[self.at : end])
                        self.line += text.count("\n", self.at, end)
                        self.at = end
            elif letter in "$`":
                raw, values, _ = self._expansion()
                if values is None:
                    if raw in _ALL:
                        opened = True
                    else:
                        parts.append(_marked(raw))
                elif split:
                    pieces = [piece for value in values for piece in value.split()]
                    for piece in pieces[:-1]:
                        done.append("".join(parts) + piece)
                        parts = []
                    parts += pieces[-1:]
                else:
                    parts += [" ".join(values)]
            else:
                stop = _PLAIN_END.search(text, self.at)
                end = max(self.at + 1, stop.start() if stop else len(text))
                parts.append(text[self.at : end])
                self.at = end
        if parts or quoted:
            done.append("".join(parts))
        return done, not opened

    def _expansion(self) -> tuple[str, list[str] | None, bool]:
        """As it is written, its values (None: not known), and whether each value is a word of its own."""
        text, begin = self.text, self.at
        if text[begin] == "`":
            end = text.find("`", begin + 1)
            if end < 0:
                raise Unreadable("a ` is not closed", self.line)
            self.line += text.count("\n", begin, end)
            self.at = end + 1
            is_comment = text[begin + 1 : end].lstrip().startswith("#")
            return text[begin : self.at], [] if is_comment else None, False
        following = text[begin + 1 : begin + 2]
        if following in ("(", "{"):
            end = self._closing(begin + 1, following, ")" if following == "(" else "}")
            self.at = end + 1
            self.line += text.count("\n", begin, end)
            raw = text[begin : self.at]
            if following == "(":
                return raw, None, False
            values, is_list = self._parameter(raw[2:-1])
            return raw, values, is_list
        if following in "@*" and following:
            self.at = begin + 2
            return text[begin : self.at], None, True
        match = _NAME.match(text, begin + 1)
        if not match:
            self.at = begin + (2 if re.match(r"[\d#?$!-]", following) else 1)
            raw = text[begin : self.at]
            return raw, [raw] if raw == "$" else None, False
        self.at = match.end()
        values, _ = self._value(match[0])
        return text[begin : self.at], values[:1] if values is not None else None, False

    def _closing(self, at: int, opening: str, closing: str) -> int:
        deep = 0
        for match in _BRACKETS.finditer(self.text, at):
            deep += (match[0] == opening) - (match[0] == closing)
            if not deep:
                return match.start()
        raise Unreadable(f"a ${opening} is not closed", self.line)

    def _value(self, name: str) -> tuple[list[str] | None, bool]:
        """The values of a variable, and whether anything sets it."""
        if name not in self.state.variables:
            return None, False
        values = self.state.variables[name]
        if values is not None:
            self.state.grows(sum(map(len, values)), self.line)
        return values, True

    def _parameter(self, inside: str) -> tuple[list[str] | None, bool]:
        """What stands in `${...}`."""
        match = re.match(r"(@|\*|\d|[A-Za-z_]\w*)(\[[@*]\])?(?:(:?[-=+?])(.*))?$", inside, re.DOTALL)
        if not match or self.depth > DEPTH:
            return None, False
        name, is_list, sign, default = match[1], bool(match[2]), match[3] or "", match[4] or ""
        if name in "@*":
            return None, True
        values, is_set = self._value(name)
        empty = is_set and values in ([], [""]) and sign.startswith(":")
        if sign[-1:] in ("-", "=") and (not is_set or empty):
            inner = _Reader(default, self.line, self.state, self.depth + 1)
            made: list[str] | None = []
            while inner.at < len(default) and made is not None:
                if default[inner.at].isspace() or default[inner.at] in ";&|<>()":
                    made.append(default[inner.at])
                    inner.at += 1
                    continue
                words, is_known = inner._words(split=False)
                made = made + words if is_known else None
            values = ["".join(made)] if made is not None else None
            if sign[-1] == "=":
                self.state.variables[name] = values and [*values]
            return values, is_list
        if sign[-1:] == "+":
            return None if is_set else [], is_list
        if values is None and is_list and not is_set:
            return None, True
        return (values if is_list else values[:1] if values else values), is_list
