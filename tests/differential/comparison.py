"""Compares what Geminga answered with what was recorded, but for differences that are meant."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence

from tests.differential.plain import Json
from tests.differential.scenario import Scenario, Wanted
from tests.differential.transcript import Line, dump


def expected(recorded: list[Line], wanted: Sequence[Wanted]) -> list[Line]:
    """The transcript that Geminga should give: the recorded one with all that is meant to differ.

    Raises ``AssertionError`` for a difference that is not to be found in what was recorded.
    """
    for each in wanted:
        assert each.reason
        changed = _replaced(recorded, each)
        assert changed != recorded, f"recorded nowhere: {each}"
        recorded = changed
    return recorded


def difference(scenario: Scenario, ours: list[Line]) -> str:
    """How the answers differ from those that are expected of Geminga; empty if they do not."""
    recorded = json.loads(scenario.path.read_text(encoding="utf-8"))
    return differences(expected(recorded, scenario.wanted), ours)


def _replaced(value: Json, wanted: Wanted) -> Json:
    if value == wanted.theirs:
        return wanted.ours
    if isinstance(wanted.theirs, tuple):
        return _lines_replaced(value, [list(line) for line in wanted.theirs], wanted.ours)
    if isinstance(value, list):
        return [_replaced(each, wanted) for each in value]
    if isinstance(value, dict):
        return {key: _replaced(each, wanted) for key, each in value.items()}
    return value


def _lines_replaced(lines: list[Line], theirs: list[Line], ours: Json) -> list[Line]:
    replaced: list[Line] = []
    index = 0
    while index < len(lines):
        if lines[index : index + len(theirs)] == theirs:
            replaced += [list(line) for line in ours]
            index += len(theirs)
        else:
            replaced.append(lines[index])
            index += 1
    return replaced


def differences(theirs: list[Line], ours: list[Line]) -> str:
    """What differs, as a unified diff of the two files; empty if nothing does."""
    if as_json(theirs) == as_json(ours):
        return ""
    return "\n".join(
        difflib.unified_diff(
            dump(theirs).splitlines(), dump(ours).splitlines(), "recorded", "ours", lineterm="", n=2
        )
    )


def as_json(lines: list[Line]) -> Json:
    """What these lines are after being written and read."""
    return json.loads(json.dumps(lines))
