"""Proves that comparing finds what differs, and that only what is meant is let pass."""

from __future__ import annotations

import pytest
from tests.differential.comparison import differences, expected
from tests.differential.plain import Plain, shape
from tests.differential.scenario import Wanted
from tests.differential.transcript import Line

RECORDED: list[Line] = [
    ["a", "> PRODUCER", {"producer_id": 1}],
    ["a", "< ERROR", {"error": "ProducerBusy", "message": "theirs"}],
    ["a", "< end of connection"],
]


def test_equal_transcripts_do_not_differ() -> None:
    assert differences(RECORDED, [list(line) for line in RECORDED]) == ""


def test_a_missing_line_is_a_difference() -> None:
    assert "end of connection" in differences(RECORDED, RECORDED[:2])


def test_a_value_that_is_meant_to_differ_is_expected_wherever_it_stands() -> None:
    lines = expected(RECORDED, [Wanted("theirs", "ours", "ours says more")])
    assert lines[1] == ["a", "< ERROR", {"error": "ProducerBusy", "message": "ours"}]
    assert differences(lines, RECORDED) != ""


def test_lines_that_are_meant_to_differ_may_be_more_or_fewer() -> None:
    theirs = (["a", "< end of connection"],)
    ours = (["a", "< PONG", {}], ["a", "< nothing"])
    lines = expected(RECORDED, [Wanted(theirs, ours, "it lives on")])
    assert lines == [*RECORDED[:2], *ours]


def test_a_meant_difference_that_was_never_recorded_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="recorded nowhere"):
        expected(RECORDED, [Wanted("a line that was never recorded", "ours", "a reason")])


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("pulsar://127.0.0.1:6650", "pulsar://ADDRESS"),
        ("from /127.0.0.1:41234.", "from ADDRESS."),
        ("[(17:1..17:2],(18:-1..18:4]]", "[(L0:1..L0:2],(L1:-1..L1:4]]"),
        ("standalone-3-17", "standalone-N-N"),
        ("at 1750000000000", "at MOMENT"),
        ("org.apache.pulsar.Service$BusyException: Topic is busy", "Topic is busy"),
        ("0x00000000_0x40000000", "0x00000000_0x40000000"),
        ("after 10 seconds", "after 10 seconds"),
    ],
)
def test_only_what_must_differ_is_replaced(text: str, plain: str) -> None:
    assert Plain().text(text) == plain


def test_ledgers_keep_their_symbols_from_answer_to_answer() -> None:
    plain = Plain()
    assert plain.json({"ledgerId": 44, "entryId": 2}) == {"ledgerId": "L0", "entryId": 2}
    assert plain.json(["45:0", "44:2"]) == ["L1:0", "L0:2"]
    assert plain.ledger(-1) == plain.ledger(2**64 - 1) == "-1"


def test_a_shape_has_names_and_types_and_no_values() -> None:
    value = {"b": [1.5, 2], "a": {"x": None, "y": True}, "c": []}
    assert shape(value) == {"a": {"x": "null", "y": "boolean"}, "b": ["number"], "c": []}
