"""Tables, sizes and ranges as people read them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

GAP = "  "
NOTHING = "-"
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
_HEX_ROW_BYTES = 16
_FIRST_PRINTABLE, _LAST_PRINTABLE = 0x20, 0x7E


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Lines with columns below their headings; columns of numbers are aligned at the right."""
    cells = [[NOTHING if cell is None else str(cell) for cell in row] for row in rows]
    columns = list(zip(headings, *cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    are_numbers = [all(cell.isdigit() or cell == NOTHING for cell in each[1:]) for each in columns]
    for row in (headings, *cells):
        padded = (
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, are_numbers, strict=True)
        )
        yield GAP.join(padded).rstrip()


def size_words(size_bytes: int) -> str:
    """``75.7 GB``; thousands, as disks are sold."""
    unit = min(max(len(str(size_bytes)) - 1, 0) // 3, len(_UNITS) - 1)
    if not unit:
        return f"{size_bytes} {_UNITS[0]}"
    return f"{size_bytes / 1000**unit:.1f} {_UNITS[unit]}"


def ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first and last of each run of neighbours in rising numbers."""
    first: int | None = None
    last = 0
    for number in numbers:
        if first is None:
            first = number
        elif number != last + 1:
            yield first, last
            first = number
        last = number
    if first is not None:
        yield first, last


def ranges_words(numbers: Iterable[int]) -> str:
    """``0-3, 7``."""
    return ", ".join(
        str(first) if first == last else f"{first}-{last}" for first, last in ranges(numbers)
    )


def count_words(count: int, one: str, many: str = "") -> str:
    """``1 entry``, ``2 entries``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def hex_lines(content: bytes) -> Iterator[str]:
    """Offset, bytes and what of them can be printed, 16 in a line."""
    starts = range(0, len(content) + _HEX_ROW_BYTES, _HEX_ROW_BYTES)
    for start, end in pairwise(starts):
        row = content[start:end]
        shown = "".join(
            chr(byte) if _FIRST_PRINTABLE <= byte <= _LAST_PRINTABLE else "." for byte in row
        )
        yield f"{start:08x}  {row.hex(' '):{_HEX_ROW_BYTES * 3 - 1}}  {shown}"


def plain_text(content: bytes) -> str:
    """As UTF-8; what is none, and what would move a terminal's cursor, is escaped."""
    text = content.decode(errors="backslashreplace")
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
