"""torch's Flight Recorder: which collective each rank has begun, and where.

Its files are JSON, or a pickle of plain values. A pickle can run code when it is loaded, so it is read here, opcode by opcode,
and what a plain value does not need is refused. The format is described at
https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/distributed/c10d/FlightRecorder.hpp.
"""

from __future__ import annotations

import json
import pickletools
import re
from collections.abc import Iterator
from typing import Any

from readyonce.triage.stands import FRAMES, SHOWN, Frame, Stand

MOST = 8 << 20  # bytes of one file
HEAD = 1 << 16  # bytes by which it is known
HELD = 400_000  # lists and dictionaries in one: some bytes are enough for each, and it takes a hundred in memory
KEYS = (b"pg_config", b"collective_seq_id")  # of which the head of each file has one, and no other file
_HEAD = re.compile(rb'\s*\{\s*"(?:entries|pg_config|pg_status|version|comm_lib_version|nccl_version)"')
_MARK = object()
_PLAIN = {
    *("BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE8"),
}
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def is_one(head: bytes) -> bool:
    """By the first bytes of a file."""
    return bool(head.startswith(b"\x80\x02") or _HEAD.match(head)) and any(key in head[:HEAD] for key in KEYS)


def stands(data: bytes) -> list[Stand]:
    """Where the process was that wrote this. Raises ValueError where it is none of torch's."""
    if len(data) > MOST:
        raise ValueError(f"it has more than {MOST >> 20} MiB")
    if sum(map(data.count, (b"{", b"["))) > HELD and not data.startswith(b"\x80"):
        raise ValueError(f"it holds more than {HELD} lists")
    told = _unpickled(data) if data.startswith(b"\x80") else json.loads(data)
    entries = told.get("entries", []) if isinstance(told, dict) else None  # where nothing was begun there are none
    if not isinstance(entries, list):
        raise ValueError("it is no file of the Flight Recorder")
    entries = [entry for entry in entries if isinstance(entry, dict) and not entry.get("is_p2p")]
    # What is not done holds the process up; else the last that it did.
    entry = next((it for it in entries if not _done(it)), entries[-1] if entries else None)
    if entry is None:
        return []
    group = _group(entry)
    begun = entry.get("collective_seq_id")
    return [
        Stand(
            tuple(_frames(entry)),
            call=_text(entry.get("profiling_name")),
            group=group,
            sizes=_sizes(entry.get("input_sizes")),
            begun=begun if isinstance(begun, int) else None,
            over=_done(entry),
            ranks=_ranks(told),
        )
    ]


def _done(entry: dict[str, Any]) -> bool:
    return entry.get("state") == "completed" or entry.get("retired") is True  # gloo's state stays at `scheduled`


def _group(entry: dict[str, Any]) -> str:
    """By what it is for, if torch knows that, and its name, which alone is its own."""
    named = entry.get("process_group")
    name, use = (_text(it) for it in named) if isinstance(named, list | tuple) and len(named) == 2 else ("", "")
    return f"{use} {name}" if use not in ("", "undefined") else name


def _text(value: Any) -> str:
    """Nothing but a text: values that hold each other may be endless when they are written down."""
    return value[:SHOWN] if isinstance(value, str) else ""


def _sizes(tensors: Any) -> str:
    """As [[4, 8], [2]]."""
    if not isinstance(tensors, list | tuple):
        return ""
    shapes = [shape[:8] for shape in tensors[:8] if isinstance(shape, list | tuple)]
    return str([[size for size in shape if isinstance(size, int)] for shape in shapes])


def _frames(entry: dict[str, Any]) -> Iterator[Frame]:
    frames = entry.get("frames")
    for frame in frames[:FRAMES] if isinstance(frames, list) else []:
        if isinstance(frame, dict) and isinstance(line := frame.get("line"), int):
            yield Frame(_text(frame.get("filename")), line, _text(frame.get("name")))


def _ranks(told: dict[str, Any]) -> int:
    """How many ranks the job has, by its largest group, which holds them all; 0 where it does not."""
    config = told.get("pg_config")
    lists = [it.get("ranks") for it in config.values() if isinstance(it, dict)] if isinstance(config, dict) else []
    largest = max((text for text in lists if isinstance(text, str)), key=len, default="")
    ranks = [int(number) for number in re.findall(r"\d{1,6}", largest)]
    return len(ranks) if sorted(ranks) == [*range(len(ranks))] else 0


def _unpickled(data: bytes) -> Any:
    """A pickle of dictionaries, lists, tuples, texts and numbers. Raises ValueError at anything else."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    held = 0
    try:
        for opcode, value, _ in pickletools.genops(data):
            name = opcode.name
            held += name in ("EMPTY_DICT", "EMPTY_LIST", "MARK") or name in _TUPLES
            if held > 2 * HELD:
                raise ValueError(f"it holds more than {HELD} lists")
            if name in _PLAIN:
                stack.append(value)
            elif name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            elif name == "EMPTY_DICT":
                stack.append({})
            elif name == "EMPTY_LIST":
                stack.append([])
            elif name == "MARK":
                stack.append(_MARK)
            elif name in ("BINPUT", "LONG_BINPUT"):
                memo[int(value or 0)] = stack[-1]
            elif name in ("BINGET", "LONG_BINGET"):
                stack.append(memo[int(value or 0)])
            elif name in _TUPLES:
                count = _TUPLES[name]
                stack[len(stack) - count :] = [tuple(stack[len(stack) - count :])]
            elif name in ("SETITEMS", "APPENDS", "TUPLE"):
                items = _since_mark(stack)
                if name == "TUPLE":
                    stack.append(tuple(items))
                elif name == "APPENDS":
                    stack[-1].extend(items)
                else:
                    _fill(stack[-1], items)
            elif name == "APPEND":
                item = stack.pop()
                stack[-1].append(item)
            elif name == "SETITEM":
                pair = stack[-2:]
                del stack[-2:]
                _fill(stack[-1], pair)
            elif name == "STOP":
                return stack.pop()
            elif name != "PROTO":
                raise ValueError(f"it is a pickle with {name}, which no plain value needs")
    except (IndexError, KeyError, AttributeError, TypeError) as error:
        raise ValueError("it is a damaged pickle") from error
    raise ValueError("it is half a pickle")


def _fill(given: Any, items: list[Any]) -> None:
    if not all(isinstance(key, str | int) for key in items[::2]):
        raise ValueError("it has a key that is no text")
    given.update(zip(items[::2], items[1::2], strict=True))


def _since_mark(stack: list[Any]) -> list[Any]:
    items: list[Any] = []
    while (item := stack.pop()) is not _MARK:
        items.append(item)
    return items[::-1]
