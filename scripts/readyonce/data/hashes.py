"""Hashes of contents: of Python by its syntax tree, so that a comment or a format changes nothing."""

from __future__ import annotations

import ast
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from readyonce.data import kept


def of(data: str | bytes) -> str:
    return "sha256:" + hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()


def of_file(path: Path) -> str:
    """The hash of a file: of Python the syntax tree without docstrings and comments, of all else the bytes."""
    data = path.read_bytes()
    if path.suffix != ".py":
        return of(data)
    return kept.answer(f"hash of Python {of(data)}", lambda: _of_python(data))


@cache
def _of_python(source: bytes) -> str:
    try:
        return of(json.dumps(_plain(ast.parse(source))))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # another rule says that it is no Python
        return of(source)


def _of_this_package(node: Any) -> bool:
    """Whether it imports from this package: its modules may move without a run being another one."""
    return isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == __name__.split(".")[0]


def _plain(node: Any) -> Any:
    """A syntax tree as lists, the same for each release of Python that can parse it: what is empty is left out."""
    if isinstance(node, list):
        return [_plain(one) for one in node if not _of_this_package(one)]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields: list[Any] = [type(node).__name__]
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            value = value[ast.get_docstring(node, clean=False) is not None :]
        if value not in (None, []) and name not in ("ctx", "kind", "type_comment"):
            fields.append([name, _plain(value)])
    return fields
