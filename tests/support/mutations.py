"""Changes of a file by chance."""

import json
import random
import re

from readyonce.data import reading

ODD = "0 -1 1e999 null ~ [] {} *a &a !!python/name:os.system \0 \u2028 \x1b[ ``` ](#x) <script> {#x} @ ../.. * 🙂 TODO ' \" \t"
ODD = ["", '--8<-- "x"', "--8<-- [end:x]", *ODD.split(" ")]
VALUES = [None, True, -1, 10**30, 1e308, "", "x", "RO-0001", [], {}, [None], {"x": {}}, "match", "error", "2026-13-45"]


def change(chance: random.Random, data: bytes, suffix: str) -> bytes:
    text = data.decode()
    lines = text.splitlines(keepends=True) or [""]
    at = chance.randrange(len(lines))
    words = list(re.finditer(r"[^\s,:\[\]{}()]+", text)) or [re.match("", text)]
    word, other = chance.choice(words), chance.choice(words)
    match chance.randrange(12):
        case 0:
            return data[: chance.randrange(len(data) + 1)]
        case 1:
            return text.encode(chance.choice(["gbk", "utf-16", "utf-8-sig", "latin-1"]), "replace")
        case 2:
            del lines[at]
        case 3:
            lines.insert(at, lines[chance.randrange(len(lines))])
        case 4:
            lines[at] = " " * chance.randrange(5) + lines[at].lstrip()
        case 5:
            flipped = bytearray(data or b"x")
            flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
            return bytes(flipped)
        case 6:
            return (text[: word.start()] + text[word.end() :]).encode()
        case 7:
            return (text[: word.start()] + other[0] + text[word.end() :]).encode()
        case 8:
            return (text[: word.start()] + chance.choice(ODD) + text[word.end() :]).encode()
        case 9:
            place = chance.randrange(len(text) + 1)
            return (text[:place] + chance.choice(ODD) + text[place:]).encode()
        case _ if suffix in (".json", ".yml") and "!ENV" not in text:
            return restructured(chance, text).encode()
        case _:
            return b""
    return "".join(lines).encode()


def restructured(chance: random.Random, text: str) -> str:
    """Sound JSON, which is YAML too, with one value gone or another."""
    value = json.loads(json.dumps(reading.parse_yaml(text), default=str))
    inside, key = {"": value}, ""
    while isinstance(inside[key], dict | list) and inside[key] and chance.random() < 0.9:
        inside = inside[key]
        key = chance.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
    if chance.random() < 0.4 and key != "":
        del inside[key]
    else:
        inside[key] = chance.choice(VALUES)
        value = inside[key] if key == "" else value
    return json.dumps(value, ensure_ascii=False, indent=1)
