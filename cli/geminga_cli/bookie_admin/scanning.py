"""Going through a file in windows: what comes next, and whether anything does. Pure."""

from __future__ import annotations

from collections.abc import Callable

from geminga_cli.bookie_admin.offline_file import Content

WINDOW_BYTES = 1024 * 1024


def find_ahead(
    file: Content, offset: int, find: Callable[[bytes], int], header_bytes: int
) -> int | None:
    """Where, from ``offset`` on, ``find`` sees a header (-1 for none) of so many bytes first."""
    while offset < file.size:
        window = file.read(offset, WINDOW_BYTES + header_bytes - 1)
        found = find(window)
        if found >= 0:
            return offset + found
        offset += WINDOW_BYTES
    return None


def only_zeros(file: Content, offset: int) -> bool:
    """Whether nothing but zeros stands from ``offset`` to the end."""
    while offset < file.size:
        window = file.read(offset, WINDOW_BYTES)
        if window.count(0) < len(window):
            return False
        offset += len(window)
    return True
