"""What is said of a setting: the string that stands below its field in the config class.

Read from the source, and only for ``--help``: a string there costs a running part nothing.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import MISSING, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any


def words_of(kind: type[Any]) -> dict[str, str]:
    """What stands below the fields of a config class and its bases, by field, in one line."""
    words: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if is_dataclass(each):
            words |= _words_in(textwrap.dedent(inspect.getsource(each)))
    return words


def _words_in(source: str) -> dict[str, str]:
    (declaration,) = ast.parse(source).body
    assert isinstance(declaration, ast.ClassDef)
    words: dict[str, str] = {}
    for field, below in pairwise(declaration.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                words[name] = " ".join(text.split())
            case _:
                pass
    return words


def default_words(default: object) -> str:
    """A default as it would be written as an option."""
    if default is MISSING:
        return "none"
    if isinstance(default, tuple):
        return ",".join(map(default_words, default)) or "none"
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, (str, Path)):
        return str(default) or "empty"
    return repr(default)
