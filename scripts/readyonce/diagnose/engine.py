"""Finds the error family and the incidents behind a pasted log. Needs nothing but compiled rules; above 1 MiB ahocorasick_rs.

Everything works on bytes and on literal strings. A log is cut into pieces (its lines, without rank prefixes, colours and
quote marks), and the pieces are joined without white space: so a wrap in the middle of a word, any number of spaces and
any prefix vanish, and every position leads back to its line. docs/theme/javascripts/diagnose.js does the same in a browser,
with the same patterns, words and limits, which stand in matching.toml; the tests hold the two against each other.
"""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from readyonce.data.project import Language

if TYPE_CHECKING:
    from ahocorasick_rs import BytesAhoCorasick


def _matching() -> dict[str, dict[str, Any]]:
    """The tables of `matching.toml`, each pattern in one piece."""
    tables = tomllib.loads(Path(__file__).with_name("matching.toml").read_text(encoding="utf-8"))
    pieces = {"ENDINGS": f"(?:{'|'.join(tables['words']['ENDINGS'])})"}
    for name, parts in tables["patterns"].items():
        whole = "".join(parts)
        for above, piece in pieces.items():
            whole = whole.replace(f"<{above}>", piece)
        pieces[name] = whole
    return tables | {"patterns": pieces}


def _pattern(name: str) -> re.Pattern[bytes]:
    return re.compile(MATCHING["patterns"][name].encode())


MATCHING = _matching()  # the browser has it with the rules
_WORDS, _LIMITS = MATCHING["words"], MATCHING["limits"]
WHOLE: int = _LIMITS["WHOLE"]
REACH: int = _LIMITS["REACH"]
HEAD: int = _LIMITS["HEAD"]
NEXT: int = _LIMITS["NEXT"]
TRIES: int = _LIMITS["TRIES"]
AROUND: int = _LIMITS["AROUND"]
NEAR: int = _LIMITS["NEAR"]
SHOWN: int = _LIMITS["SHOWN"]
TYPED_IN: int = _LIMITS["TYPED_IN"]
LEAD: int = _LIMITS["LEAD"]
PART_OF: int = _LIMITS["PART_OF"]
BETWEEN: int = _LIMITS["BETWEEN"]
DIGITS: int = _LIMITS["DIGITS"]
LEADING: int = _LIMITS["LEADING"]
QUOTED: int = _LIMITS["QUOTED"]
SHORT = 8  # letters up to which a literal is not halved
BLOCK, PART = 512 << 10, 16 << 10
RUN = 8  # so many parts in a row are read as one
MARGIN, RIM = 32 << 10, 8 << 10  # what is read around them; what begins in the rim is left to the neighbours
ORDINARY = 64  # parts with half a literal, after which a log is taken to have it in its ordinary lines

_SPACES, _QUOTES = tuple(_WORDS["SPACES"]), tuple(_WORDS["QUOTES"])
_HANDS_ON = _WORDS["HANDS_ON"].encode()
_ENTITIES: dict[bytes, bytes] = {name.encode(): letter.encode() for name, letter in _WORDS["ENTITIES"].items()}
_DELETED = bytes(range(33)) + b"\"'`\x7f"
_OPENING = (b'"', b"'")
_RAISED = (b"raise ", b"warnings.warn(")
ENDINGS = MATCHING["patterns"]["ENDINGS"].encode()
_ENDING = re.compile(ENDINGS)
_GAP = re.compile(b"[" + re.escape(_DELETED) + b"]*")
_UNSEEN = re.compile(MATCHING["patterns"]["UNSEEN"])  # of text
_COLOUR = _pattern("COLOUR")
_ENTITY = _pattern("ENTITY")
_PREFIX = _pattern("PREFIX")
_EXCEPTION = _pattern("EXCEPTION")
_NAME = _pattern("NAME")
_WORD = _pattern("WORD")
_COMPLAINT = _pattern("COMPLAINT")
_SENTENCE = _pattern("SENTENCE")
_LEVELS = _pattern("LEVELS")
_CODE = _pattern("CODE")
_PROSE = _pattern("PROSE")
_CLAUSE = _pattern("CLAUSE")
_SENTENCE_END = _pattern("SENTENCE_END")
_SOFT = _pattern("SOFT")
_SAYS = _pattern("SAYS")
_RANK = _pattern("RANK")
_JSON_STRING = _pattern("JSON_STRING")
_LOGGED = _pattern("LOGGED")
_BAR = _pattern("BAR")
_TYPED = _pattern("TYPED")
_LISTED = _pattern("LISTED")
_STRING = _pattern("STRING")
_OPEN = _pattern("OPEN")
_COLON = _pattern("COLON")
_CUT = _pattern("CUT")
_FRAME = _pattern("FRAME")
_SECTION = _pattern("SECTION")
_MARK = _pattern("MARK")
_CLOSING = _pattern("CLOSING")


def squeeze(text: bytes) -> bytes:
    return text.translate(None, _DELETED)


def uncoloured(text: bytes) -> bytes:
    return _COLOUR.sub(b"", text) if b"\x1b" in text or b"m" in text else text


def _plain(text: bytes) -> bytes:
    """Without HTML entities."""
    return _ENTITY.sub(_character, text) if b"&" in text else text


def _character(entity: re.Match[bytes]) -> bytes:
    name = entity[1]
    if not name.startswith(b"#"):
        return _ENTITIES[name]
    code = int(name[2:], 16) if name[1:2] in b"xX" else int(name[1:])
    return b" " if code == 160 else bytes([code]) if 32 <= code < 127 else entity[0]


def _clean(text: bytes) -> bytes:
    """Colours and HTML entities out; every kind of space and quote mark becomes an ASCII one."""
    text = uncoloured(_plain(text))
    for char in _SPACES:
        text = text.replace(char.encode(), b" ")
    for char in _QUOTES:
        text = text.replace(char.encode(), b'"')
    return text


# ------------------------------------------------------------------------------ rules


@dataclass(frozen=True)
class Wording:
    family: str
    yields: str | None
    all: tuple[bytes, ...]  # squeezed
    none: tuple[bytes, ...]
    needs: tuple[bytes, ...] = ()
    without: tuple[bytes, ...] = ()
    frame: tuple[bytes, ...] = ()
    bare: bool = False
    quotes: int = 0  # quote marks that the first literal itself begins with
    typed: bool = False  # whether it names the exception itself


class Rules:
    """A compiled rule set, its literals in the form that is searched for."""

    def __init__(self, data: dict[str, Any]):
        self.data = data
        self.families = {family["family"]: family for family in data["families"]}
        # What shows the strategy that a wording names, or denies it, counts as its own.
        shown = {name: (tuple(marks["any"]), tuple(marks["none"])) for name, marks in data["strategies"].items()}
        shown[None] = (), ()
        self.wordings = [
            Wording(
                family["family"],
                family["yields"],
                tuple(_literals(wording["all"])),
                tuple(_literals(wording.get("none", ()))),
                tuple(_literals((*wording.get("needs", ()), *shown[wording.get("strategy")][0]))),
                tuple(_literals((*wording.get("without", ()), *shown[wording.get("strategy")][1]))),
                tuple(_literals(wording.get("frame", ()))),
                wording.get("bare", False),
                len(wording["all"][0]) - len(wording["all"][0].lstrip("\"'`")),
                bool(_EXCEPTION.match(squeeze(wording["all"][0].encode()))),
            )
            for family in data["families"]
            for wording in family["wordings"]
        ]
        self.longest = sorted({max(wording.all, key=len) for wording in self.wordings})
        self.titles = [(family["family"], _bare(family["title"])) for family in data["families"]]
        of_error = [incident for incident in data["incidents"] if incident["errors"]]
        self.titles += [(incident["errors"][0], _bare(title)) for incident in of_error for title in incident["titles"]]
        self.looks = looks_of(data["incidents"])
        # A text that needs other words or a frame is too common for its parts to say anything; source is in every traceback.
        self.fragments = [
            wording
            for wording in self.wordings
            if not wording.needs and (wording.bare or not wording.frame) and not wording.all[0].startswith(b"assert")
        ]
        self.launcher = _literals(data["launcher"])
        self.launcher_names = data["launcherErrors"]
        self.consequences = _literals(data["consequences"])
        self.progress = _literals(data["progress"])
        self.guides, self.notes, self.remarks = (
            [text.encode() for text in data[key]] for key in ("guides", "notes", "remarks")
        )
        self.spoken = self.guides + self.notes
        self.complaints, self.remedies, self.unsolved = (
            tuple(text.lower() for text in _literals(data["sections"][key]))
            for key in ("complaints", "remedies", "unsolved")
        )
        # What the answer may depend on, wherever it stands.
        clues = [text for incident in data["incidents"] for hint in incident["hints"] for text in hint["any"]]
        clues += [text for framework in data["frameworks"] for text in framework["logs"]]
        others = [family["elsewhere"] for family in data["families"] if family["elsewhere"]]
        clues += [text for other in others for text in other["any"] + other["none"]]
        asked = [text for wording in self.wordings for text in wording.needs + wording.without]
        self.clues = sorted({*_literals(clues), *asked})
        self.unset = _literals(data["unset"])

    def seen(self, text: bytes) -> set[bytes]:
        """The clues in a text without white space; an option that is printed and not set is none."""
        for option in self.unset:
            text = text.replace(option, b"")
        return {clue for clue in self.clues if clue in text}

    def sought(self) -> tuple[BytesAhoCorasick, list[bytes], list[tuple[bytes, bytes]]]:
        """What finds the strings of all wordings at once in a text without white space, these strings, and the pairs of a
        half and its literal: a prefix may stand where a literal was wrapped."""
        from ahocorasick_rs import BytesAhoCorasick, Implementation  # only large logs need it

        literals = sorted({max(wording.all, key=len) for wording in self.wordings}.union(self.launcher))
        halved = ((literal, len(literal) // 2 if len(literal) > SHORT else 0) for literal in literals)
        pairs = [(half, literal) for literal, at in halved for half in {literal[:at], literal[at:]} if half]
        strings = sorted({text for pair in pairs for text in pair})
        return BytesAhoCorasick(strings, implementation=Implementation.DFA), strings, pairs


def _bare(title: str) -> bytes:
    return _CLOSING.sub(b"", squeeze(title.encode()))


def _literals(texts: Iterable[str]) -> list[bytes]:
    return [squeeze(text.encode()) for text in texts]


# ------------------------------------------------------------------------------ matching


class _Form:
    """A text in pieces, and joined without white space."""

    def __init__(self, text: bytes, line: int):
        self.prefixes, self.pieces, self.lines, self.starts, bodies = [], [], [], [], []
        self._quoting: _Quoting | None = None
        at = 0
        for raw in _clean(text).split(b"\n"):
            for piece in raw.split(b"\r"):
                if prefix := _PREFIX.match(piece):
                    piece = piece[prefix.end() :]
                if body := squeeze(piece):
                    self.prefixes.append(prefix[0] if prefix else b"")
                    self.pieces.append(piece)
                    self.lines.append(line)
                    self.starts.append(at)
                    bodies.append(body)
                    at += len(body)
            line += 1
        self.text = b"".join(bodies)

    def with_names(self, low: int, high: int) -> Iterator[int]:
        """The pieces that begin in this part of the text and in which the name of an exception may end."""
        index, after = bisect_left(self.starts, low), bisect_left(self.starts, high)
        while index < after and (found := _ENDING.search(self.text, self.starts[index])):
            index = self.piece_at(found.start())
            if index < after:
                yield index
            index += 1

    def piece_at(self, position: int) -> int:
        return bisect_right(self.starts, position) - 1

    def body(self, index: int, limit: int = 200) -> bytes:
        end = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.text)
        return self.text[self.starts[index] : min(end, self.starts[index] + limit)]

    def find(self, literal: bytes, low: int, high: int, tries: int) -> tuple[int, int] | None:
        at = self.text.find(literal[:HEAD], low, high)
        while at >= 0 and tries:
            if end := self._extend(literal, at):
                return at, end
            at = self.text.find(literal[:HEAD], at + 1, high)
            tries -= 1
        return None

    def _extend(self, literal: bytes, at: int) -> int:
        """Where the literal ends that begins at `at`; 0 if it does not stand there.

        At the end of a line it may go on in one of the next lines, behind a prefix that is not known, and up to three
        letters may be lost.
        """
        text, done = self.text, 0
        while True:
            if text.startswith(literal[done:], at):
                return at + len(literal) - done
            while at < len(text) and done < len(literal) and text[at] == literal[done]:
                at += 1
                done += 1
            line = bisect_left(self.starts, at)
            if (
                line == len(self.starts)
                or self.starts[line] != at
                or (resumed := self._resume(literal, done, line)) is None
            ):
                return 0
            at, done = resumed

    def _resume(self, literal: bytes, done: int, line: int) -> tuple[int, int] | None:
        for start in self.starts[line : line + NEXT]:
            for lost in range(4):
                rest = literal[done + lost : done + lost + HEAD]
                if not rest or (lost and not literal[done : done + lost].isalpha()):
                    break
                # A few letters could stand anywhere: they must begin the line.
                at = self.text.find(rest, start, start + len(rest) + (48 if len(rest) > 3 else 0))
                if at >= 0:
                    return at, done + lost
        return None

    def match(self, wording: Wording, low: int) -> tuple[int, int] | None:
        """The wording's literals in order, none far from the one before."""
        while found := self.find(wording.all[0], low, len(self.text), -1):
            start, end = found
            for literal in wording.all[1:]:
                if not (found := self.find(literal, end, end + REACH, TRIES)):
                    break
                end = found[1]
            else:
                if not any(self.find(literal, max(0, start - 300), end + 800, TRIES) for literal in wording.none):
                    return start, end
            low = start + 1
        return None

    def in_its_frame(self, wording: Wording, start: int) -> bool:
        """Whether the frame nearest above the text is one that the wording names."""
        if not wording.frame:
            return True
        above = self.text[max(0, start - REACH) : start]
        heads = [found.start() for found in _FRAME.finditer(above)]
        while len(heads) > 1 and above.endswith(_HANDS_ON, 0, heads[-1]):
            heads.pop()
        if not heads:
            return wording.bare
        frame = above[max(0, above.rfind(b"File", 0, heads[-1])) :]
        return any(literal in frame for literal in wording.frame)

    def mentioned(self, rules: Rules, wording: Wording, start: int, end: int) -> bool:
        """Whether the text only speaks of the error: a guide, source code, a list of changes."""
        index = self.piece_at(start)
        if self._quoting is None or self._quoting.index != index:
            self._quoting = _Quoting(rules, self, index)
        quoting, piece = self._quoting, self.pieces[index]
        before, behind = quoting.offset(start - self.starts[index]), b""
        if self.piece_at(end - 1) == index:
            last = _raw_offset(piece, before, end - 1 - start)
            behind = piece[last + 1 : last + 1 + NEAR]
        if quoting.spoken <= before or quoting.explained or any(remark in behind[:200] for remark in rules.remarks):
            return True
        lead = quoting.lead
        bare = piece[max(lead, before - NEAR) : before]
        ends = before - len(bare)
        bare = bare.rstrip(b" \t")
        if piece[lead : min(ends + len(bare), lead + NEAR)].startswith(_RAISED):
            return True
        if wording.quotes:  # its own
            bare = bare[: -wording.quotes].rstrip(b" \t")
        typed = _TYPED.search(bare[-160:])
        if not typed and (quoting.in_string(ends + len(bare)) or _OPEN.search(bare[-200:])):
            return True
        if typed:
            bare = bare[: len(bare) - len(typed[0])].rstrip(b" \t")
            if typed[0][-1:] in b"\"'":
                return False
        if _LISTED.match(bare):  # an item of a list
            return True
        if bare[-1:] and bare[-1:] in b"\"'`":
            return _quoted(bare[:-1].rstrip(b" \t"), bare[-1:], behind, bool(typed) or wording.typed)
        clause = _CLAUSE.split(bare[-400:])[-1]
        return not (typed or wording.typed) and wording.all[0][:1].isupper() and len(_PROSE.findall(clause)) >= 2

    def section(self, index: int) -> tuple[bytes, bytes, bool] | None:
        """(the name of the section that this piece begins, the first words in it, whether it is marked as a heading)."""
        found = _SECTION.match(self.pieces[index])
        if not found:
            return None
        heading = b"#" in self.prefixes[index] or bool(_MARK.search(found[1]))
        if not (heading or _COLON.search(found[3])):
            return None
        name, words = (squeeze(text).lower() for text in (found[2], self.pieces[index][found.end() :][:80]))
        return name.rstrip(b"0123456789."), words, heading

    def explained_below(self, rules: Rules, index: int) -> bool:
        """Whether the next section tells the cause or the remedy: who writes so explains an error and reports none."""
        above = (self.section(at) for at in range(max(0, index - AROUND), index))
        plain = any(section and section[0] in rules.complaints for section in above)
        below = range(index + 1, len(self.starts))
        for at in takewhile(lambda at: self.starts[at] <= self.starts[index + 1] + REACH, below):
            if not (section := self.section(at)):
                continue
            name, words, heading = section
            if name in rules.remedies and (heading or plain or name[0] > 127):
                if not words and at + 1 in below and not ((under := self.section(at + 1)) and under[2]):
                    words = self.body(at + 1).lower()
                if words and not words.startswith(rules.unsolved):
                    return True
            elif heading:
                return False
        return False

    def exception(self, index: int, spoken: Iterable[bytes]) -> tuple[str, str | None] | None:
        """(the exception that this piece says was raised, whose rank it is by what stands before it on the line), if it does.

        In a JSON object a whole traceback may stand in one string.
        """
        piece = self.pieces[index]
        parts = piece[: 16 << 10].split(b"\\n")[:64] if piece.lstrip(b" \t").startswith(b"{") else [piece]
        for number, part in enumerate(parts):
            part = part[: LEADING + 2 * QUOTED]
            for name in _NAME.finditer(part[:LEADING]):
                before, text = part[: name.start()].rstrip(b" \t"), part[name.start() :]
                if _WORD.match(text) or not _raised(before, text, spoken):
                    continue
                if number or before.endswith(b'"'):
                    text = (_JSON_STRING.match(text) or name)[0]
                elif before.endswith(b"`"):
                    text = text.partition(b"`")[0]
                rank = _RANK.search(self.prefixes[index] + before)
                return _shown(text), (rank[1] or rank[2]).decode() if rank else None
        return None

    def complaint(self, rules: Rules, index: int) -> tuple[str, str | None] | None:
        """The same for a sentence behind a word for an error, where no exception is named."""
        piece, prefix = self.pieces[index], self.prefixes[index]
        word = _COMPLAINT.match(piece)
        said = piece[word.end() if word else 0 :][:QUOTED]
        if (
            not (word or _LEVELS.search(prefix))
            or not _SENTENCE.search(said)
            or _SOFT.search(said)
            or said.startswith(b"=")
        ):
            return None
        if self._written_of(rules, index, piece):
            return None
        rank = _RANK.search(prefix)
        return _shown(piece), (rank[1] or rank[2]).decode() if rank else None

    def part_of(self, rules: Rules, index: int) -> list[str]:
        """The families whose title or text this piece is a part of, and nothing besides."""
        piece, whole = self.pieces[index], self.body(index, 401)
        if not 14 <= len(whole) <= 400:
            return []
        starts = [0, *(colon.end() for colon in _COLON.finditer(whole, 0, LEAD + 3))]
        for start in starts:
            if start > LEAD or any(sign in whole[:start] for sign in (b"(", b"=")):
                break
            body = _CLOSING.sub(b"", whole[start:])
            names = {name for name, title in rules.titles if body == title}
            if not names and len(body) >= PART_OF:
                names = {name for name, title in rules.titles if body in title}
                names |= {wording.family for wording in rules.fragments if _is_part(body, wording.all)}
            if names:
                other = len(names) > 3 or self._written_of(rules, index, piece)
                return [] if other or self._of_another_cause(rules, index, names) else sorted(names)
        return []

    def _of_another_cause(self, rules: Rules, index: int, names: set[str]) -> bool:
        """Whether the piece holds a whole text of these families, where its frame or what stands near denies it."""
        start = self.starts[index]
        for wording in rules.wordings:
            found = self.match(replace(wording, none=()), start) if wording.family in names else None
            if (
                found
                and self.piece_at(found[0]) == index
                and not (self.match(wording, found[0]) == found and self.in_its_frame(wording, found[0]))
            ):
                return True
        return False

    def _written_of(self, rules: Rules, index: int, piece: bytes) -> bool:
        """Whether a guide, a list or source code says it."""
        return (
            _Quoting(rules, self, index).spoken <= len(piece)
            or any(remark in piece for remark in rules.remarks)
            or bool(_LISTED.match((piece.split(None, 1) or [b""])[0]))
            or (len(self.pieces) > 1 and (b"#" in self.prefixes[index] or bool(_STRING.match(piece.lstrip(b" \t")))))
        )


def _shown(text: bytes) -> str:
    return _UNSEEN.sub("", text[:QUOTED].decode("utf-8", "ignore")).strip(" ")


def _is_part(body: bytes, literals: tuple[bytes, ...]) -> bool:
    """Whether a text ends inside a wording, and begins in it; between two literals there may be a name or a number."""
    joined = b"".join(literals)
    if body in joined:
        return True
    if len(literals) < 2:
        return False
    at = body.find(literals[1][:HEAD])
    if at < HEAD or not joined[len(literals[0]) :].startswith(body[at:]):
        return False
    begun = literals[0].find(body[:HEAD])
    known = literals[0][begun:] if begun >= 0 else b""
    return bool(known) and body.startswith(known) and at - len(known) <= BETWEEN


class _Quoting:
    """A piece that quotes errors, and what is asked of it for each: there may be thousands on one line."""

    def __init__(self, rules: Rules, form: _Form, index: int):
        self.index, self.piece = index, form.pieces[index]
        above = b" ".join(piece[-400:] for piece in form.pieces[max(0, index - 2) : index])
        whole = b"##" in form.prefixes[index] or any(guide in above for guide in rules.guides)  # ##: a heading
        words = () if whole else rules.spoken
        ends = (at + len(word) for word in words if (at := self.piece.find(word)) >= 0)
        self.spoken = 0 if whole else min(ends, default=len(self.piece) + 1)  # from here on it only speaks of errors
        # Not where each line is behind such a mark.
        self.explained = b"#" not in form.prefixes[index] and form.explained_below(rules, index)
        self.lead = len(self.piece) - len(self.piece.lstrip(b" \t"))
        string = _STRING.match(self.piece, self.lead)
        self._quote, self._opened = (string[1], string.end()) if string else (b"", 0)
        self._letters = self._offset = 0
        self._counted, self._odd = self.lead, 0

    def offset(self, letters: int) -> int:
        """Where letter number `letters` stands: from the last one asked for, the next is near."""
        if letters < self._letters:
            self._letters = self._offset = 0
        self._offset = _raw_offset(self.piece, self._offset, letters - self._letters)
        self._letters = letters
        return self._offset

    def in_string(self, end: int) -> bool:
        """Whether the piece begins with a string that is still open at `end`."""
        if not self._quote or end < self._opened:
            return False
        self._odd ^= self.piece.count(self._quote, min(self._counted, end), max(self._counted, end)) % 2
        self._counted = end
        return self._odd == 1


def _raised(before: bytes, text: bytes, spoken: Iterable[bytes]) -> bool:
    """Whether an exception that begins `text` was raised, by what stands before it on its line."""
    if not before:
        return True
    if _CODE.search(before[-40:]) or _LISTED.match(before) or any(word in before for word in spoken):
        return False
    if before[-1:] in b"\"'`":
        return not _quoted(before[:-1].rstrip(b" \t"), before[-1:], text, typed=True)
    if _SOFT.search(before[-400:]):  # it speaks of something that may be missing
        return False
    sentence = _SENTENCE_END.split(before[-400:])[-1]  # nothing, where a colon stands before the exception
    return len(_PROSE.findall(sentence)) < 2 or bool(_SAYS.search(sentence))


def _quoted(opener: bytes, quote: bytes, behind: bytes, typed: bool) -> bool:
    """Whether what stands in quote marks is code or prose, and not a value in JSON or a whole pasted line."""
    if opener.endswith((b'":', b"':")):
        return False
    if not typed or opener[-1:] in (b"(", b",", b"=", b"["):
        return True
    closing = re.search(quote + rb"(?![A-Za-z0-9_])", behind)
    return bool(closing and re.search(rb"[A-Za-z0-9\x80-\xff]", behind[closing.end() :]))


def _raw_offset(piece: bytes, offset: int, letters: int) -> int:
    """Where the letter stands that comes `letters` after the first one at `offset` or behind it."""
    while True:
        gap = _GAP.match(piece, offset)
        assert gap  # of no length, if there is none
        offset = gap.end()
        if not letters or offset == len(piece):
            return offset
        passed = piece[offset : offset + letters]
        letters -= len(squeeze(passed))
        offset += len(passed)


# ------------------------------------------------------------------------------ what a log holds


@dataclass
class Findings:
    """What was found so far, in one text or in the parts of a large one, in their order."""

    hits: dict[tuple[str | None, str], int] = field(default_factory=dict)  # (yields, family) → its first line
    done: set[int] = field(default_factory=set)  # wordings that were hit: numbers in the rules
    error: int | None = None  # first line of an exception of no known family
    cause: int | None = None  # of one that does not follow from something else
    errors: set[int] = field(
        default_factory=set
    )  # both again, and the lines that a family's text covers: the last ones,
    causes: set[int] = field(default_factory=set)  # of which the next part may still explain some
    explained: set[int] = field(default_factory=set)
    said: dict[int, tuple[str, str | None]] = field(default_factory=dict)  # line → its exception, and whose rank it is
    mentions: dict[str, int] = field(default_factory=dict)  # family → the first line that only speaks of it
    launcher: int | None = None
    rank: str | None = None
    progress: bool = False
    clues: set[bytes] = field(default_factory=set)

    def read(self, rules: Rules, text: bytes, line: int = 1, rims: tuple[bytes, bytes] = (b"", b"")) -> _Form:
        """Take in a part; what begins in one of its rims is left to the neighbours, which know more of it."""
        form = _Form(text, line)
        low, high = (len(_Form(rim, 1).text) if rim else 0 for rim in rims)
        high = len(form.text) - high
        self._settle(line)
        self.clues |= rules.seen(form.text)
        for number, wording in enumerate(rules.wordings):
            fits = not wording.needs or any(text in self.clues for text in wording.needs)
            if number not in self.done and fits and not any(text in self.clues for text in wording.without):
                self._look_for(rules, form, number, low, high)
        for index in form.with_names(low, high):
            said = form.exception(index, rules.spoken)
            if said is None or any(name in said[0] for name in rules.launcher_names):
                continue
            self.said.setdefault(form.lines[index], said)
            self.errors.add(form.lines[index])
            if not any(literal in form.body(index) for literal in rules.consequences):
                self.causes.add(form.lines[index])
        places = [at for literal in rules.launcher if (at := form.text.find(literal)) >= 0]
        if places:
            self.launcher = min(filter(None, (self.launcher, form.lines[form.piece_at(min(places))])))
            self.rank = self.rank or _rank(form.text)
        self.progress = self.progress or any(literal in form.text for literal in rules.progress)
        return form

    def _look_for(self, rules: Rules, form: _Form, number: int, low: int, high: int) -> None:
        wording = rules.wordings[number]
        while (found := form.match(wording, low)) and found[0] < high:
            start, end = found
            low = start + 1
            if not form.in_its_frame(wording, start):
                continue
            first, last = form.lines[form.piece_at(start)], form.lines[form.piece_at(end - 1)]
            self.explained.update(range(first, min(last, first + 50) + 1))
            if form.mentioned(rules, wording, start, end):
                self.mentions[wording.family] = min(self.mentions.get(wording.family, first), first)
            else:
                hit = (wording.yields, wording.family)
                self.hits[hit] = min(self.hits.get(hit, first), first)
                self.done.add(number)
                return

    def _settle(self, line: int) -> None:
        """Of what stands above `line` only the first is kept: a log may say the same a million times."""
        self.error, self.cause = self._first(self.error, self.errors, line), self._first(self.cause, self.causes, line)
        for lines in (self.errors, self.causes, self.explained):
            lines.intersection_update([later for later in lines if later >= line])
        kept = {self.error, self.cause, *self.errors}
        self.said = {at: text for at, text in self.said.items() if at in kept}

    def _first(self, settled: int | None, lines: set[int], line: int) -> int | None:
        return (
            min((earlier for earlier in lines if earlier < line and earlier not in self.explained), default=None)
            if settled is None
            else settled
        )

    def first(self, yields: str | None) -> tuple[int, str] | None:
        return min(((line, family) for (kind, family), line in self.hits.items() if kind == yields), default=None)

    def verdict(self) -> tuple[str | None, int | None, bool]:
        """(family, line, whether only a launcher speaks)."""
        error, cause = self.exceptions()
        if hit := self.first(None):
            return hit[1], hit[0], False
        if (hit := self.first("consequence")) and not (cause and cause < hit[0]):
            return hit[1], hit[0], False
        if self.launcher and not error:
            return None, self.launcher, True
        if (hit := self.first("warning")) and not (error or self.launcher or self.progress):
            return hit[1], hit[0], False
        return None, cause or error, False

    def exceptions(self) -> tuple[int | None, int | None]:
        """The lines of the first exception of no known family, and of the first that follows from nothing else."""
        end = 1 << 62
        return self._first(self.error, self.errors, end), self._first(self.cause, self.causes, end)


def _rank(text: bytes) -> str | None:
    """The rank that a launcher's report names as the first to fail."""
    at = text.find(b"RootCause")
    found = re.compile(rb"rank:([0-9]{1,6})").search(text, at, at + 400) if at >= 0 else None
    return found[1].decode() if found else None


@dataclass
class Answer:
    """`json` is the answer in the form that programs rely on; the rest is for people."""

    json: dict[str, Any]
    language: Language
    line: int | None = None
    rank: str | None = None
    around: list[tuple[int, str]] = field(default_factory=list)
    # `empty`, `binary`, of an unknown exception `not-covered`, of an error that is only spoken of `mention`, of code
    # without one `look`, of words and numbers without one `silent`
    note: str | None = None

    def to_json(self) -> str:
        text = json.dumps(self.json, ensure_ascii=False, separators=(",", ":"))
        return re.sub(
            "[\x7f-\x9f\u202a-\u202e\u2066-\u2069]", lambda found: f"\\u{ord(found[0]):04x}", text
        )  # JSON escapes the others


def answer(
    rules: Rules, found: Findings, file: str, language: Language, part: tuple[int, list[str]] | None = None
) -> Answer:
    family, line, launcher = found.verdict()
    line, words_of = part or (line, [])
    own = family is not None and rules.families[family]["page"] == "own"
    kind = "wrapper-only" if launcher else "fragment" if part else "known" if own else "look-alike"
    if kind == "look-alike" and family is None:
        kind = "unknown"
    ranked = []
    for incident in rules.data["incidents"] if kind in ("known", "look-alike") else []:
        if family in incident["errors"]:
            hints = [h for h in incident["hints"] if any(text in found.clues for text in _literals(h["any"]))]
            weight = sum(hint["weight"] for hint in hints)
            ranked.append((-weight, incident["id"], [hint["why"][language] for hint in hints]))
    json_: dict[str, Any] = {
        "file": file,
        "kind": kind,
        "error": family,
        "line": line,
        "words_of": words_of,
        "also": [
            {"name": name, "line": at}
            for at, name in sorted((at, name) for (yields, name), at in found.hits.items() if yields != "warning")
            if name != family
        ],
        "incidents": [{"id": id, "why": why} for _, id, why in sorted(ranked)],
        "look": [],
    }
    json_["fix"] = fix_of(rules, family, json_["incidents"], found.clues, language) if own and family else None
    json_["exception"] = _exception(rules, *found.said[line], language) if kind == "unknown" and line else None
    json_["silent"] = []
    note = "not-covered" if json_["exception"] else None
    return Answer(json_, language, line, found.rank if launcher else None, note=note)


def _exception(rules: Rules, text: str, rank: str | None, language: Language) -> dict[str, Any]:
    """An exception of no known family: its words, whose rank it is, of which class it is, and where to look next."""
    squeezed = squeeze(text.encode())
    fits = (each for each in rules.data["classes"] if any(mark in squeezed for mark in _literals(each["any"])))
    found = next(fits, rules.data["classes"][-1])  # the last is for all others
    return {"text": text, "rank": rank, "class": found["class"], "next": found["next"][language]}


@cache
def _said(words: tuple[str, ...]) -> re.Pattern[bytes]:
    """What finds one of these words in a line of small letters; `…` is up to 60 bytes of anything."""
    parts = ([".{0,60}?" if word == "…" else re.escape(word) for word in text.lower().split()] for text in words)
    each = map("[ \t]*".join, parts)
    return re.compile(f"(?<![a-z])(?:{'|'.join(each)})".encode())


def _silent(rules: Rules, form: _Form, language: Language, untold: bool) -> list[dict[str, Any]]:
    """Words and logged numbers of training that goes wrong without an error, the first place of each: no diagnosis.

    The words stand in one line, with any white space between them, and no letter before them: `hangs` is not in "changs".
    `untold`: the text is short and holds no error, so that a word for a failure says that one is missing.
    """
    lower, logged, places = [piece.lower() for piece in form.pieces], _logged(form), []
    for sign in rules.data["silent"]:
        if sign["failing"] and not untold:
            continue
        said = _said(tuple(sign["any"])) if sign["any"] else None
        having = (form.lines[index] for index, piece in enumerate(lower) if said and said.search(piece))
        lines = list(islice(having, 1))
        lines += filter(None, (_run(values, sign) for name, values in logged if name in sign["numbers"]))
        if lines:
            places.append({"line": min(lines), "text": sign["text"][language], "page": sign["page"]})
    return places


def _logged(form: _Form) -> list[tuple[str, list[tuple[bytes, int, bool]]]]:
    """(name, its values in order): of each name and rank by itself, and of each step of a progress bar the first alone.
    A value is its text, its line, and whether a bar shows it."""
    series: dict[tuple[bytes, bytes, str], list[tuple[bytes, int, bool]]] = {}
    steps: dict[tuple[bytes, bytes, str], bytes] = {}
    for index, piece in enumerate(form.pieces):
        for found in _LOGGED.finditer(piece.lower()):
            rank = _RANK.search(form.prefixes[index] + piece[:80])
            name = "loss" if found[2] else "grad_norm" if found[3] else "learning_rate"
            key = (found[1], rank[0] if rank else b"", name)
            bar = _BAR.search(piece[:NEAR])
            if bar and steps.get(key) == bar[1]:
                continue
            steps[key] = bar[1] if bar else b""
            series.setdefault(key, []).append((found[5], form.lines[index], bool(bar)))
    return [(key[2], values) for key, values in series.items()]


def _run(logged: list[tuple[bytes, int, bool]], sign: dict[str, Any]) -> int:
    """The line in which so many numbers in a row begin that are among those of a sign, or all the same where it names none; else 0."""
    length, before = 0, b""
    for number, (text, _, bar) in enumerate(logged):
        value = float(text)
        if sign["values"]:
            fits = any(value == other or (value != value and other != other) for other in map(float, sign["values"]))
            length = length + 1 if fits else 0
        elif bar or len(re.sub(rb"e.*|[^0-9]", b"", text).lstrip(b"0")) < DIGITS:
            length = 0  # a bar may show an old value again, and few digits are often the same
        else:
            length = length + 1 if length and text == before else 1
        before = text
        if length >= sign["times"]:
            return logged[number + 1 - length][1]
    return 0


def fix_of(
    rules: Rules, family: str, ranked: list[dict[str, Any]], clues: set[bytes], language: Language
) -> dict[str, Any]:
    """What to do first. An incident's own fix only where the log has its framework, and a hint at its cause; else the
    family's, as each framework writes it, the log's own first."""

    def seen(texts: Iterable[str]) -> bool:
        return any(text in clues for text in _literals(texts))

    known = rules.families[family]
    frameworks = rules.data["frameworks"]
    stacks = [framework["name"] for framework in reversed(frameworks) if seen(framework["logs"])]
    of = {incident["id"]: incident for incident in rules.data["incidents"]}
    for best in [of[entry["id"]] for entry in ranked[:1]]:
        its_own = seen(text for hint in best["hints"] if hint.get("cause") for text in hint["any"])
        if (its_own and best["stack"] in (None, *stacks)) or not known["fix"]:
            form = {"stack": best["stack"], "setting": "checkpointing", "versions": "", "when": None}
            form |= {"language": best["language"], "code": best["code"], "text": None, "proof": "run"}
            advice = {"incident": best["id"], "stack": best["stack"], "text": best["fix"][language]}
            return advice | {"forms": [form], "questions": []}
    questions = [_in(language, question) for question in known["questions"]]
    stack = stacks[0] if stacks else None
    if (other := known["elsewhere"]) and seen(other["any"]) and not seen(other["none"]):
        text = other["text"][language]
        return {"incident": None, "stack": stack, "text": text, "forms": [], "questions": questions}
    order = {name: number for number, name in enumerate(stacks)}
    forms = [
        {"stack": framework["name"], **{key: _in(language, value) for key, value in form.items()}}
        for framework in sorted(frameworks, key=lambda entry: order.get(entry["name"], len(order)))
        for setting in known["settings"]
        for form in framework["forms"]
        if form["setting"] == setting
    ]
    advice = {"incident": None, "stack": stack, "text": _in(language, known["fix"]) or ""}
    return advice | {"forms": forms, "questions": questions}


def _in(language: Language, value: Any) -> Any:
    return value[language] if isinstance(value, dict) else value


# ------------------------------------------------------------------------------ input


def diagnose(rules: Rules, data: bytes, file: str = "-", language: Language = "en") -> Answer:
    """The answer for a text that is there as a whole."""
    return diagnose_stream(rules, iter([data]), file, language)


def diagnose_stream(rules: Rules, blocks: Iterator[bytes], file: str, language: Language) -> Answer:
    """The answer for a text of any size, in a memory that does not grow with it."""
    found, kept = Findings(), _Kept()
    start = _at_least(WHOLE + 1, blocks)
    note = "empty" if not start.strip() else "binary" if b"\0" in start[:8192] else None
    form = None  # of a text that is read as one
    if len(start) <= WHOLE:
        if note is None:
            form = found.read(rules, start)
            kept.lines(start, 1, found.verdict()[1])
    elif note != "binary":
        blank = _read_parts(rules, found, kept, _blocks(start, blocks))
        note = "empty" if blank else None
    family, error, launcher = found.verdict()
    typed_in = form if len(start) <= TYPED_IN else None
    part = quoted = None
    if not (note or family or launcher):
        part = _part(rules, found, error, typed_in, kept.around(error))
        quoted = _mention(found, error) if typed_in and not part else None
        if words := part or quoted:
            kept.lines(start, 1, words[0])
    result = answer(rules, found, file, language, part or quoted)
    if result.json["kind"] == "unknown" and not (note or result.note) and form:
        if typed_in:
            result.json["look"] = look(rules.looks, start, language)
        complaint, frames = _complaint(rules, found, form), list(_CUT.finditer(form.text))
        untold = bool(typed_in) and not (found.progress or complaint or frames[1:])
        result.json["silent"] = [] if result.json["look"] else _silent(rules, form, language, untold)
        result.note = "look" if result.json["look"] else "silent" if result.json["silent"] else None
        if not result.note and complaint:
            result.line = result.json["line"] = complaint[0]
            result.json["exception"], result.note = _exception(rules, *complaint[1], language), "not-covered"
            kept.lines(start, 1, complaint[0])
        elif not result.note and frames[1:]:  # a traceback without its last line
            result.line = result.json["line"] = form.lines[form.piece_at(frames[-1].start())]
            result.note = "cut"
            kept.lines(start, 1, result.line)
    result.note, result.around = note or ("mention" if quoted else result.note), kept.around(result.line)
    return result


def looks_of(incidents: Iterable[dict[str, Any]]) -> list[tuple[str, dict[str, str], Wording]]:
    """What code each incident's reader is told to look at, in the form that is searched for: (id, why, literals)."""
    return [
        (
            incident["id"],
            each["why"],
            Wording("", None, tuple(_literals(each["all"])), tuple(_literals(each["none"]))),
        )
        for incident in incidents
        for each in incident["look"]
    ]


def look(looks: Iterable[tuple[str, dict[str, str], Wording]], text: bytes, language: str) -> list[dict[str, Any]]:
    """What in code belongs to an incident without an error, the first place of each: where to look, no diagnosis."""
    form, by_id = _Form(text, 1), {}
    for id, why, wording in looks:
        if id not in by_id and (found := form.match(wording, 0)):
            by_id[id] = {"id": id, "line": form.lines[form.piece_at(found[0])], "why": why[language]}
    return list(by_id.values())


def _part(
    rules: Rules, found: Findings, error: int | None, typed_in: _Form | None, around: list[tuple[int, str]]
) -> tuple[int, list[str]] | None:
    """(line, families) of words that belong to an error without being a whole one: of a short text anywhere before its
    first exception, of another in that exception's line."""
    form = typed_in or _Form("\n".join(row for _, row in around).encode(), around[0][0] if around else 1)
    for index, line in enumerate(form.lines):
        if line > (error or line):
            return None
        if (typed_in or line == error) and line not in found.explained and (names := form.part_of(rules, index)):
            return line, names
    return None


def _complaint(rules: Rules, found: Findings, form: _Form) -> tuple[int, tuple[str, str | None]] | None:
    """(line, what it says) of the first sentence behind a word for an error; none where training went on."""
    told = ((form.lines[at], form.complaint(rules, at)) for at in range(len(form.lines)) if not found.progress)
    return next(((line, said) for line, said in told if said), None)


def _mention(found: Findings, error: int | None) -> tuple[int, list[str]] | None:
    """(line, families) of errors that a short text only speaks of; where nothing else is found, or not before them."""
    spoken = sorted((line, name) for name, line in found.mentions.items() if line <= (error or line))
    return (spoken[0][0], [name for _, name in spoken[:3]]) if spoken else None


def _at_least(size: int, blocks: Iterator[bytes]) -> bytes:
    parts, length = [], 0
    for block in blocks:
        parts.append(block)
        length += len(block)
        if length >= size:
            break
    return b"".join(parts)


def _blocks(start: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    """The same in blocks of one size; only the last may be shorter."""
    left = b""
    for data in chain([start], rest):
        data = left + data
        whole = len(data) - len(data) % BLOCK
        yield from (data[at : at + BLOCK] for at in range(0, whole, BLOCK))
        left = data[whole:]
    if left:
        yield left


def _read_parts(rules: Rules, found: Findings, kept: _Kept, blocks: Iterator[bytes]) -> bool:
    """Read every block, and in full only the parts around something that can matter; returns whether all is blank."""
    automaton, strings, pairs = rules.sought()
    looking = ORDINARY  # parts that are read only because they may hold an exception
    halves: Counter[bytes] = Counter()  # in how many parts each was found
    line, before, block, first, blank = 1, b"", next(blocks), True, True  # `before` begins in this line
    begun = _Begun(rules)
    while block:
        behind = next(blocks, b"")
        region, end = before + block + behind[:MARGIN], len(before) + len(block)
        start = max(0, len(before) - 2048)
        matches = automaton.find_matches_as_indexes(squeeze(_plain(region[start : end + 2048])), overlapping=True)
        present = {strings[number] for number in {match[0] for match in matches}}
        wanted = {literal if halves[half] > ORDINARY else half for half, literal in pairs if half in present} & present
        looking = looking if found.error is None and not found.errors else 0
        worth = []
        for low in range(start, end, PART) if wanted or first or (looking and b"Error:" in region) else ():
            part = region[low : low + PART + 2048]
            squeezed = squeeze(_plain(part)) if wanted else b""
            there = [text for text in wanted if text in squeezed]
            halves.update(there)
            if first or there:
                worth.append(low)
            elif looking and b"Error:" in part:
                worth.append(low)
                looking -= 1
        here, passed = copy(begun), 0
        for low, high in _runs(worth):
            # From the start of a line on, where lines are not endless.
            begin = max(0, low - 2 * RIM)
            begin = region.rfind(b"\n", max(0, begin - MARGIN), begin) + 1 or begin
            here.goes_by(region[passed:begin])
            window, head, passed = region[begin : high + MARGIN], here.text(), begin
            last = high + MARGIN >= len(region) and len(behind) <= MARGIN
            rims = (head + window[:RIM] if here.any else b"", b"" if last else window[-RIM:])
            at = line + region.count(b"\n", 0, begin)
            found.read(rules, head + window, at, rims)
            kept.lines(head + window, at, found.verdict()[1])
        blank = blank and not block.strip()
        cut = max(0, end - MARGIN)
        begun.goes_by(region[:cut])
        line += region.count(b"\n", 0, cut)
        before, block, first = region[cut:end], behind, False
    return blank


def _runs(parts: list[int]) -> Iterator[tuple[int, int]]:
    """(from, to) for parts that follow one another."""
    while parts:
        count = next(
            (index for index in range(1, min(RUN, len(parts))) if parts[index] > parts[index - 1] + MARGIN),
            min(RUN, len(parts)),
        )
        yield parts[0], parts[count - 1] + PART
        parts = parts[count:]


class _Begun:
    """What stands for the beginning of a line where what is read begins inside the line."""

    def __init__(self, rules: Rules):
        self.words, self.any = rules.spoken, False
        self.line = self.rest = self.spoken = b""
        self.odd: tuple[int, ...] = (0, 0)

    def goes_by(self, text: bytes) -> None:
        """`text` is left behind."""
        self.any = self.any or bool(text)
        if at := max(text.rfind(b"\n"), text.rfind(b"\r")) + 1:
            self.line = self.rest = self.spoken = b""
            self.odd = (0, 0)
        room = SHOWN - len(self.line)
        self.line += text[at : at + room]
        if more := text[at + room :]:
            over = self.line[-64:] + self.rest + more
            self.spoken = self.spoken or next((word for word in self.words if word in over), b"")
            self.odd = tuple(odd ^ _clean(more).count(quote) % 2 for odd, quote in zip(self.odd, _OPENING))
            self.rest = over[-64:]

    def text(self) -> bytes:
        """The line's first letters, whether it spoke of errors, and which quote marks are open."""
        return self.line + self.spoken + b"".join(quote for odd, quote in zip(self.odd, _OPENING) if odd)


class _Kept:
    """The lines around what may be the winning one."""

    def __init__(self) -> None:
        self.seen: dict[int, list[tuple[int, str]]] = {}

    def lines(self, text: bytes, first: int, line: int | None) -> None:
        if line and line not in self.seen and first <= line:
            rows = text.split(b"\n")
            at = line - first
            if at < len(rows):
                shown = range(max(0, at - AROUND), min(len(rows), at + AROUND + 1))
                self.seen = {
                    line: [(first + i, rows[i][:SHOWN].decode("utf-8", "replace").rstrip("\r")) for i in shown]
                }

    def around(self, line: int | None) -> list[tuple[int, str]]:
        return self.seen.get(line, []) if line else []


def load(text: str) -> Rules:
    return Rules(json.loads(text))
