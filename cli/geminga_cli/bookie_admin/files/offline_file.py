"""A file of a bookie that need not run: opened for reading only, and searched in windows."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from geminga_cli.bookie_admin.errors import UnreadableFile

# How much of a file is searched at once.
WINDOW_BYTES = 1024 * 1024


class Content(Protocol):
    """Bytes that can be read at any offset."""

    # How many bytes there are.
    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Bytes from ``offset``; fewer only at the end. Raises ``OSError``."""
        ...


class OfflineFile:
    """The ``Content`` of an open descriptor; its size is the one at the time of opening."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # A running bookie may make the file longer meanwhile: what comes after this size is not
        # looked at.
        self.size = os.fstat(descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        """Bytes from ``offset``; fewer only at the end. Raises ``OSError``."""
        # A read may return less than was asked for.
        pieces: list[bytes] = []
        while length > 0 and (piece := os.pread(self._descriptor, length, offset)):
            pieces.append(piece)
            offset += len(piece)
            length -= len(piece)
        return b"".join(pieces)


@contextmanager
def opened(path: Path) -> Generator[OfflineFile, None, None]:
    """Open the file at ``path``. Raises ``UnreadableFile``."""
    try:
        # Read-only: the dump of a running bookie must not be able to change its files.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    try:
        # A directory can be opened for reading, too.
        if path.is_dir():
            raise UnreadableFile(path, "it is a directory; name the files in it")
        yield OfflineFile(descriptor)
    finally:
        os.close(descriptor)


def find_ahead(
    file: Content, offset: int, find: Callable[[bytes], int], header_bytes: int
) -> int | None:
    """The place of the first header from ``offset`` on; None if there is none.

    ``find`` returns the place of the first header in some bytes, or -1.
    """
    while offset < file.size:
        # Windows overlap: a header that begins in one may end in the next.
        window = file.read(offset, WINDOW_BYTES + header_bytes - 1)
        found = find(window)
        if found >= 0:
            return offset + found
        offset += WINDOW_BYTES
    return None


def only_zeros(file: Content, offset: int) -> bool:
    """Whether all bytes from ``offset`` to the end are zeros."""
    while offset < file.size:
        window = file.read(offset, WINDOW_BYTES)
        if window.count(0) < len(window):
            return False
        offset += len(window)
    return True
