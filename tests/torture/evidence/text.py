"""A real text of any size: the source lines of every installed Python package, one after the other.

Real lines, not padding: empty ones, very long ones, every encoding people use. Where the packages
have fewer than wanted they are read again from the first.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Text:
    """A file of lines; ``digest`` is the SHA-256 of the file."""

    path: Path
    lines: int
    size_bytes: int
    digest: str

    def __iter__(self) -> Iterator[bytes]:
        """Its lines without their ends."""
        with self.path.open("rb") as file:
            for line in file:
                yield line[:-1]


def write_text(path: Path, *, lines_min: int, bytes_min: int) -> Text:
    """Write the lines of installed packages to ``path`` until it has both sizes."""
    lines = size_bytes = 0
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for line in chain.from_iterable(map(_lines, chain.from_iterable(repeat(_sources())))):
            file.write(line)
            digest.update(line)
            lines += 1
            size_bytes += len(line)
            if lines >= lines_min and size_bytes >= bytes_min:
                break
    return Text(path, lines, size_bytes, digest.hexdigest())


def _sources() -> list[Path]:
    """The source files of all installed packages, in an order that is the same every time."""
    sources = sorted(Path(sysconfig.get_path("purelib")).rglob("*.py"))
    assert any(source.stat().st_size for source in sources), "no package is installed"
    return sources


def _lines(source: Path) -> Iterator[bytes]:
    """Its lines, each with one newline; the last one may lack it in the file."""
    for line in source.read_bytes().split(b"\n"):
        yield line + b"\n"
