"""Prints facts about several bookies, some of which may not be known: a table, or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from geminga_cli.display.text import table


def print_report(
    found: Sequence[Mapping[str, object]],
    columns: Sequence[str],
    cell: Callable[[object], object],
    *,
    as_json: bool,
) -> int:
    """Print the ``columns`` of each bookie, as ``cell`` shows a value; returns the exit code.

    A bookie whose ``error`` is not None has it printed below the table, and makes the code 1.
    """
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        for line in table(columns, ([cell(each[name]) for name in columns] for each in found)):
            print(line)
        for each in found:
            if each["error"]:
                print(each["error"])
    return int(any(each["error"] for each in found))
