"""The simple commands of a shell script, as bash would see their words; nothing is executed.

Variables, arrays, defaults (`${A:-b}`), continued lines, quotes, `eval` of a string, here-documents. What only a run
can tell (`$(...)`, a variable that nobody sets, `"$@"`) makes a word unknown, never a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

SIZE = 8 << 20  # characters of a script
GROWTH = 1 << 20  # characters that its variables may expand to
DEPTH = 8  # of defaults within defaults, and of eval
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?=)")
_NUMBERED = re.compile(r"\d+[<>]")
_REDIRECTION = re.compile(r"&?\d*(<<-?|[<>]{1,3}&?|>\|)[ \t]*")
_QUOTED_END = re.compile(r'["\\$`]')
_PLAIN_END = re.compile(r"[\s;&|<>()\\'\"$`]")
_BRACKETS = re.compile(r"\\.|'[^']*'|[(){}]", re.DOTALL)
_OPENING = {"if", "for", "while", "until", "case", "select", "function"}
_CLOSING = {"fi", "done", "esac"}
_KEYWORDS = _OPENING | _CLOSING | {"then", "else", "elif", "do", "{", "}", "!", "time", "in"}
_DECLARING = {"export", "declare", "local", "readonly", "typeset"}


class Unreadable(Exception):
    """A file that cannot be judged: why, and in which line."""

    def __init__(self, what: str, line: int = 1):
        super().__init__(what)
        self.line = line


@dataclass(frozen=True)
class Word:
    text: str  # what is not known stands as it is written
    line: int
    known: bool = True


@dataclass
class Command:
    words: list[Word]
    environment: dict[
        str, str | None
    ]  # what it is told by export or in front of it; None: set, but to what is not known
    open: bool = False  # more words may come that are not known ("$@")

    @property
    def line(self) -> int:
        return self.words[0].line


@dataclass
class _State:
    variables: dict[str, list[str] | None] = field(default_factory=dict)  # None: not known
    exported: set[str] = field(default_factory=set)
    depth: int = 0  # of compound commands around
    grown: int = 0


def commands(text: str, first_line: int = 1) -> list[Command]:
    """All simple commands in the order in which they stand, those of every branch included."""
    if len(text) > SIZE:
        raise Unreadable(f"it is longer than {SIZE >> 20} million characters: give the launch alone")
    return _read(text.replace("\r\n", "\n"), first_line, _State(), 0)


def _read(text: str, line: int, state: _State, depth: int) -> list[Command]:
    found: list[Command] = []
    reader = _Reader(text, line, state)
    while (command := reader.command()) is not None:
        words, assigned, is_open = command
        _assign(state, assigned, exported=False, inline=bool(words))
        while words and words[0].text in _KEYWORDS and words[0].known:
            state.depth += (words[0].text in _OPENING) - (words[0].text in _CLOSING)
            if words[0].text in ("for", "select") and len(words) > 1:
                state.variables[words[1].text] = None
                words = []
                break
            words = words[1:]
        if not words:
            continue
        name = words[0].text
        if name in _DECLARING:
            _assign(state, [it for word in words[1:] if (it := _assignment_of(word))], name == "export")
            if name == "export":
                state.exported |= {word.text for word in words[1:] if _NAME.fullmatch(word.text)}
            continue
        if name == "eval" and depth < DEPTH:
            if all(word.known for word in words[1:]):
                found += _read(" ".join(word.text for word in words[1:]), words[0].line, state, depth + 1)
            continue
        environment = {key: _one(state.variables.get(key)) for key in state.exported}
        environment |= {key: _one(values) for key, values, _ in assigned}
        found.append(Command(words, environment, is_open))
    return found


def _one(values: list[str] | None) -> str | None:
    return " ".join(values) if values is not None else None


def _assignment_of(word: Word) -> tuple[str, list[str] | None, bool] | None:
    name, sign, value = word.text.partition("=")
    return (name, [value] if word.known else None, False) if sign and _NAME.fullmatch(name) else None


def _assign(state: _State, assigned: list[tuple], exported: bool, inline: bool = False) -> None:
    for name, values, more in assigned:
        if exported:
            state.exported.add(name)
        if inline:  # it is told to that one command
            continue
        before = state.variables.get(name, [])
        if more:
            values = [*before, *values] if before is not None and values is not None else None
        elif state.depth and name in state.variables and before != values:
            values = None  # it depends on the branch
        state.variables[name] = values


class _Reader:
    """Takes one simple command after the other from a text."""

    def __init__(self, text: str, line: int, state: _State):
        self.text, self.at, self.line, self.state = text, 0, line, state
        self.heredocs: list[str] = []

    def command(self) -> tuple[list[Word], list[tuple], bool] | None:
        """Its words, the assignments in front of them, and whether unknown words may be among them."""
        words: list[Word] = []
        assigned: list[tuple] = []
        is_open = False
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
                    return words, assigned, is_open
            elif letter in "<>" or _NUMBERED.match(text, self.at):
                self._redirection()
            elif not words and (match := _ASSIGNED.match(text, self.at)):
                self.at = match.end()
                if text.startswith("(", self.at):
                    values = self._array()
                else:
                    values = [word.text for word in self._word(split=False)] or [""]
                    if not self.all_known:
                        values = None
                assigned.append((match[1], values, match[2] == "+="))
            else:
                made = self._word()
                is_open |= self.opened
                words += made
        return (words, assigned, is_open) if words or assigned else None

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
                values += [word.text for word in self._word()]
                known &= self.all_known
                if self.at == before:  # a sign that has no meaning here
                    self.at += 1
        self.at += 1
        return values if known else None

    def _redirection(self) -> None:
        match = _REDIRECTION.match(self.text, self.at)
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
        text, begin = self.text, self.line
        parts: list[str] = []  # of the word under way
        done: list[Word] = []
        self.all_known, self.opened = True, False
        known, quoted = True, False
        while self.at < len(text):
            letter = text[self.at]
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
                        raw, values, is_list = self._expansion(0)
                        if values is None:
                            if raw in ("$@", "${@}", "$*") or is_list:
                                self.opened = True
                                quoted = bool(parts)
                            else:
                                known = False
                                parts.append(raw)
                        elif is_list:
                            if not values:
                                quoted = bool(parts)
                            for value in values[:-1]:
                                done.append(Word("".join(parts) + value, begin, known))
                                parts, known = [], True
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
                raw, values, _ = self._expansion(0)
                if values is None:
                    if raw in ("$@", "$*", "${@}") or (split and not parts and self._at_end()):
                        self.opened = True
                        if raw in ("$@", "$*", "${@}"):
                            continue
                    known = False
                    parts.append(raw)
                elif split:
                    pieces = [piece for value in values for piece in value.split()]
                    for piece in pieces[:-1]:
                        done.append(Word("".join(parts) + piece, begin, known))
                        parts, known = [], True
                    parts += pieces[-1:]
                else:
                    parts += [" ".join(values)]
            else:
                stop = _PLAIN_END.search(text, self.at)
                end = max(self.at + 1, stop.start() if stop else len(text))
                parts.append(text[self.at : end])
                self.at = end
        if parts or quoted:
            done.append(Word("".join(parts), begin, known))
        self.all_known = all(word.known for word in done) and not self.opened
        return done

    def _at_end(self) -> bool:
        return self.at >= len(self.text) or self.text[self.at] in " \t\n;&|<>()"

    def _expansion(self, depth: int) -> tuple[str, list[str] | None, bool]:
        """As it is written, its values (None: not known), and whether each value is a word of its own."""
        text, begin = self.text, self.at
        if text[begin] == "`":
            end = text.find("`", begin + 1)
            if end < 0:
                raise Unreadable("a ` is not closed", self.line)
            self.line += text.count("\n", begin, end)
            self.at = end + 1
            return text[begin : self.at], None, False
        following = text[begin + 1 : begin + 2]
        if following in ("(", "{"):
            end = self._closing(begin + 1, following, ")" if following == "(" else "}")
            self.at = end + 1
            self.line += text.count("\n", begin, end)
            raw = text[begin : self.at]
            if following == "(":
                return raw, None, False
            values, is_list = self._parameter(raw[2:-1], depth)
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
            self.state.grown += sum(map(len, values))
            if self.state.grown > GROWTH:
                raise Unreadable(f"its variables expand to more than {GROWTH >> 20} million characters", self.line)
        return values, True

    def _parameter(self, inside: str, depth: int) -> tuple[list[str] | None, bool]:
        """What stands in `${...}`."""
        match = re.match(r"(@|\*|[A-Za-z_]\w*)(\[[@*]\])?(?:(:?[-=+?])(.*))?$", inside, re.DOTALL)
        if not match or depth > DEPTH:
            return None, False
        name, is_list, sign, default = match[1], bool(match[2]), match[3] or "", match[4] or ""
        if name in "@*":
            return None, True
        values, is_set = self._value(name)
        empty = is_set and values in ([], [""]) and sign.startswith(":")
        if sign[-1:] in ("-", "=") and (not is_set or empty):
            inner = _Reader(default, self.line, self.state)
            made: list[str] | None = []
            while inner.at < len(default) and made is not None:
                if default[inner.at].isspace() or default[inner.at] in ";&|<>()":
                    made.append(default[inner.at])
                    inner.at += 1
                    continue
                words = inner._word(split=False)
                made = made + [word.text for word in words] if inner.all_known else None
            values = ["".join(made)] if made is not None else None
            if sign[-1] == "=":
                self.state.variables[name] = values
            return values, is_list
        if sign[-1:] == "+":
            return None if is_set else [], is_list
        if values is None and is_list and not is_set:
            return None, True
        return (values if is_list else values[:1] if values else values), is_list
