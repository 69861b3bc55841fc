"""Tables, answers, sizes and ranges for people, JSON for programs. Pure.

Names, keys and properties come from clients of the cluster, who may be hostile to an administrator.
``plain_text`` escapes what would move the cursor of a terminal, change its title or fake a line.
Tables and answers are escaped here; commands that print such text themselves call ``plain_text``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

# Between the columns of a table, and before the lines of what is inside something.
GAP = "  "
INDENT = "  "
# An empty cell or value.
NOTHING = "-"
NOT_SET = "not set"
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
_HEX_ROW_BYTES = 16
_FIRST_PRINTABLE, _LAST_PRINTABLE = 0x20, 0x7E


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The lines of a table with headings; columns of numbers are aligned at the right.

    A cell that is None is shown as ``-``.
    """
    #     bookie   mode      free
    #     b1:3181  writable  75.7 GB        a column of words: "75.7 GB" is no number
    cells = [[NOTHING if cell is None else plain_text(str(cell)) for cell in row] for row in rows]
    titles = [plain_text(heading) for heading in headings]
    # ``strict`` refuses a row with another number of cells than there are headings: that is our own
    # mistake.
    columns = list(zip(titles, *cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    # By the whole column: one word among numbers makes it a column of words.
    are_numbers = [all(cell.isdigit() or cell == NOTHING for cell in each[1:]) for each in columns]
    for row in (titles, *cells):
        padded = (
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, are_numbers, strict=True)
        )
        # Without the padding of the last column, which a reader may copy.
        yield GAP.join(padded).rstrip()


def show_value(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """The lines of any JSON value; None, the answer to most orders, has none."""
    if value is None:
        return
    if isinstance(value, Mapping):
        # A member in each line; what a member contains is indented below it. Of names as they are
        # shown: an escaped one is longer.
        width = max(map(len, map(plain_text, value)), default=0)
        for name, each in value.items():
            if isinstance(each, Mapping | list) and each:
                yield f"{plain_text(name)}:"
                yield from (f"{INDENT}{line}" for line in show_value(each))
            else:
                yield f"{plain_text(name):{width}}{GAP}{_word(each)}"
    elif isinstance(value, list):
        yield from _list(value)
    else:
        yield _word(value)


def show_policy(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """The lines of a policy; one that is empty is not set."""
    yield from show_value(NOT_SET if value in (None, {}, []) else value)


def show_json(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """The lines of an answer as JSON in ASCII, for programs."""
    yield from json.dumps(value, indent=2).splitlines()


def _list(values: Sequence[Any]) -> Iterator[str]:
    def is_flat(each: Any) -> bool:  # noqa: ANN401 - JSON
        return isinstance(each, Mapping) and not any(
            isinstance(inner, Mapping | list) and inner for inner in each.values()
        )

    # Records without anything inside them are the rows of a table.
    if values and all(map(is_flat, values)):
        # All names of all records, in the order in which they come first: records of one list may
        # differ.
        headings = list(dict.fromkeys(name for each in values for name in each))
        rows = ([_word(each.get(name)) for name in headings] for each in values)
        yield from table(headings, rows)
        return
    for each in values:
        lines = list(show_value(each))
        if isinstance(each, Mapping | list):
            # As in YAML: the first line has the dash, the others stand below it.
            lines = [f"{'- ' if not at else INDENT}{line}" for at, line in enumerate(lines)]
        yield from lines


def _word(value: Any) -> str:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return plain_text(value)
    if value is None or value in ({}, []):
        return NOTHING
    return json.dumps(value)


def size_words(size_bytes: int) -> str:
    """``75.7 GB``: units of 1,000, as for disks."""
    # By digits: the rounding of a logarithm might choose the wrong unit.
    unit = min(max(len(str(size_bytes)) - 1, 0) // 3, len(_UNITS) - 1)
    if not unit:
        return f"{size_bytes} {_UNITS[0]}"
    return f"{size_bytes / 1000**unit:.1f} {_UNITS[unit]}"


def ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first and the last number of each run without a gap; the numbers must rise."""
    # ``first`` is None before the first number only; from then on ``first`` to ``last`` is the run
    # that is not yielded yet.
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
    """A hex dump: offset, bytes, and their printable characters, 16 in a line."""
    # Pairs of these are the rows; the last one may reach beyond the content.
    starts = range(0, len(content) + _HEX_ROW_BYTES, _HEX_ROW_BYTES)
    for start, end in pairwise(starts):
        row = content[start:end]
        shown = "".join(
            chr(byte) if _FIRST_PRINTABLE <= byte <= _LAST_PRINTABLE else "." for byte in row
        )
        yield f"{start:08x}  {row.hex(' '):{_HEX_ROW_BYTES * 3 - 1}}  {shown}"


def plain_text(content: bytes | str) -> str:
    """The text, in which everything is escaped that is not printable, or is not UTF-8."""
    text = content if isinstance(content, str) else content.decode(errors="backslashreplace")
    # Line ends and tabs are not printable, so they are escaped too: one text never becomes two
    # lines.
    #
    # Nearly every text is: this spares it the loop.
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
