"""The list of a ledger directory's entry logs, version 1, by which a lost log is missed.

It is text, so that people can read it, and it is replaced as a whole. ``entry_logs.log_lists`` says
when it is written and what it is for.
"""

from __future__ import annotations

from collections.abc import Mapping

from crc32c import crc32c

from geminga_bookie.errors import CorruptFile, UnknownFormat

NAME = "entry-logs"
# A file; a line for each log: its number, and the bytes that it has at least:
#   geminga entry logs 1
#   7 268435731
#   8 32
#   crc32c 1a2b3c4d
_HEAD = "geminga entry logs"
VERSION = 1
_CHECKSUM = "crc32c"


def encode(sizes: Mapping[int, int]) -> bytes:
    """The list of logs, by number, with the bytes that each has at least."""
    lines = [f"{_HEAD} {VERSION}", *(f"{number} {size}" for number, size in sorted(sizes.items()))]
    checked = "".join(f"{line}\n" for line in lines).encode()
    return checked + f"{_CHECKSUM} {crc32c(checked):08x}\n".encode()


def decode(path: str, content: bytes) -> dict[int, int]:
    """The logs, by number, with the bytes that each has at least.

    Raises ``CorruptFile``, and ``UnknownFormat`` for a whole list of another version.
    """
    # The last line is checked against everything before it.
    end = content.rfind(f"{_CHECKSUM} ".encode())
    checked = content[: max(end, 0)]
    if end < 0 or content[end:] != f"{_CHECKSUM} {crc32c(checked):08x}\n".encode():
        raise CorruptFile(path, 0, "the list of entry logs is not what was written")
    head, *lines = checked.decode().splitlines()
    # Checked after the checksum: a damaged list must not pass for one of another version.
    if head != f"{_HEAD} {VERSION}":
        raise UnknownFormat(path, f"it is no list of entry logs of version {VERSION}")
    pairs = [line.split() for line in lines]
    return {int(number): int(size) for number, size in pairs}
