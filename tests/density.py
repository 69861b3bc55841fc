"""Counts how dense the code is: how often a reader has to jump, and how much is explained.

    python -m tests.density                # each room of the source, and all of them
    python -m tests.density --once FOLDER  # the private helpers there that are called once

Codebases that read well (trio, h11, websockets) have 30 to 45 functions in 1,000 lines; 1 to 3 % of
these are private helpers with a single call, and 9 to 17 of 100 lines have a comment.
``test_tidy.py`` says which figures we keep to.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from tests.project_files import sources, text_of, tree_of

# What tools read in comments explains nothing to people.
_DIRECTIVES = ("# noqa", "# type:", "# pyright:")


@dataclass(frozen=True, slots=True)
class Density:
    """Counts of some files; ``once`` has each private helper with a single call, ``path:name``."""

    modules: int
    lines: int
    functions: int
    comments: int
    once: tuple[str, ...]

    @property
    def functions_a_thousand_lines(self) -> float:
        """How often a reader meets another function."""
        return 1000 * self.functions / self.lines

    @property
    def once_percent(self) -> float:
        """Which part of the functions are private helpers with a single call."""
        return 100 * len(self.once) / self.functions

    @property
    def comments_percent(self) -> float:
        """How many of 100 lines have a comment."""
        return 100 * self.comments / self.lines

    def __str__(self) -> str:
        return (
            f"{self.modules:5} modules {self.lines:7} lines {self.functions:6} functions:"
            f" {self.functions_a_thousand_lines:5.1f} in 1,000 lines, {self.once_percent:4.1f} %"
            f" called once, {self.comments_percent:4.1f} comments in 100 lines"
        )


def _name_of(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def measure(names: Iterable[str]) -> Density:
    """Count the files with these paths."""
    modules = lines = functions = comments = 0
    once: list[str] = []
    for name in names:
        text = text_of(name)
        modules += 1
        lines += text.count("\n")
        defined: list[str] = []
        uses, calls = Counter[str](), Counter[str]()
        for node in ast.walk(tree_of(name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                defined.append(node.name)
            elif isinstance(node, ast.Call):
                calls[_name_of(node.func)] += 1
            uses[_name_of(node)] += 1
        functions += len(defined)
        # A private name is used within its module, so its uses there are all there are. One that is
        # handed on (a callback, a row of a table) cannot stand where it is called.
        once += [
            f"{name}:{each}"
            for each in defined
            if each.startswith("_") and not each.startswith("__") and uses[each] == calls[each] == 1
        ]
        comments += sum(
            token.type == tokenize.COMMENT and not token.string.startswith(_DIRECTIVES)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
        )
    return Density(modules, lines, functions, comments, tuple(once))


def modules_by_folder() -> Counter[str]:
    """How many modules each folder of the source has, faces (``__init__``) not counted."""
    return Counter(
        str(PurePosixPath(name).parent)
        for name in sources()
        if PurePosixPath(name).name != "__init__.py"
    )


def main() -> None:
    """Print the counts, or what is called once."""
    parser = argparse.ArgumentParser(prog="python -m tests.density", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--once", metavar="FOLDER", help="list its helpers with a single call")
    folder = parser.parse_args().once
    if folder is not None:
        print(*measure(name for name in sources() if name.startswith(folder)).once, sep="\n")
        return
    rooms = sorted({name.split("/")[1] for name in sources() if name.count("/") > 1})
    for room in rooms:
        print(f"{room:21}", measure(name for name in sources() if name.split("/")[1] == room))
    print(f"{'all':21}", measure(sources()))


if __name__ == "__main__":
    main()
