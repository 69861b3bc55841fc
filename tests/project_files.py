"""The project's own files as git lists them, read and taken apart once for all that judge them."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What a real Pulsar wrote: bytes on the wire, records, answers over REST.
GOLDEN = ROOT / "tests" / "golden"
SOURCE_FOLDERS = (
    *("runtime", "protocol", "client", "bookie", "broker"),
    *("proxy", "functions_worker", "cli", "spark_jobs"),
)


@cache
def tracked() -> tuple[str, ...]:
    """Every file of the project that exists, as git sees it: ignored ones are left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(sorted(name for name in listed.stdout.split("\0") if name and is_file(name)))


def is_file(name: str) -> bool:
    return (ROOT / name).is_file()


def is_generated(name: str) -> bool:
    return name.endswith(("_pb2.py", "_pb2.pyi", "_pb2_grpc.py"))


@cache
def python_files() -> tuple[str, ...]:
    """Our own Python files, sources and tests."""
    return tuple(name for name in tracked() if name.endswith(".py") and not is_generated(name))


def sources() -> Iterator[str]:
    return (name for name in python_files() if name.split("/")[0] in SOURCE_FOLDERS)


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse(text_of(name), name)


def imports_of(name: str) -> set[str]:
    """The topmost names of the modules a file imports."""
    found: set[str] = set()
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found
