"""Proves that the passage's checks fail: each kind of damage is planted once, and found."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pytest
from tests.torture.evidence.passage import (
    NUMBER,
    PENDING_LINES_MAX,
    Arrived,
    PassageFailed,
    Received,
)

LINES = [b"line %d" % number for number in range(20)]
DIGEST = hashlib.sha256(b"".join(line + b"\n" for line in LINES)).hexdigest()


@dataclass
class FakeMessage:
    """A message and its id at once; every entry holds one message."""

    number: int
    entry: int
    line: bytes

    def data(self) -> bytes:
        return NUMBER.pack(self.number) + self.line

    def message_id(self) -> FakeMessage:
        return self

    def ledger_id(self) -> int:
        return 1

    def entry_id(self) -> int:
        return self.entry

    def batch_index(self) -> int:
        return -1


def arrived(numbers: list[int]) -> Arrived:
    """What is made of a topic that holds these lines."""
    received = Received()
    for entry, number in enumerate(numbers):
        received.take(FakeMessage(number, entry, LINES[number % len(LINES)]))
    return received.arrived()


def test_the_text_is_what_comes_without_its_repeats() -> None:
    assert arrived(list(range(20))) == Arrived(20, DIGEST, 0, 0, 0)
    assert arrived([*range(15), *range(5, 20)]) == Arrived(20, DIGEST, 10, 1, 0)


def test_a_lost_line_is_found_where_it_was_due() -> None:
    with pytest.raises(PassageFailed, match=r"line 8 came .* where 7 was due"):
        arrived([*range(7), *range(8, 20)])


def test_a_lost_tail_is_missing_in_the_count_and_in_the_digest() -> None:
    short = arrived(list(range(19)))
    assert short.lines == 19
    assert short.digest != DIGEST


def test_lines_that_changed_places_are_found() -> None:
    with pytest.raises(PassageFailed):
        arrived([0, 1, 3, 2, 4])


def test_a_changed_line_changes_the_digest() -> None:
    received = Received()
    for number, line in enumerate(LINES):
        received.take(FakeMessage(number, number, line.replace(b"line 7", b"line?7")))
    assert received.arrived().lines == 20
    assert received.arrived().digest != DIGEST


def test_a_changed_repeat_is_found() -> None:
    received = Received()
    received.take(FakeMessage(0, 0, LINES[0]))
    with pytest.raises(PassageFailed, match="another one"):
        received.take(FakeMessage(0, 1, b"line?"))


def test_each_place_where_lines_are_sent_again_is_counted() -> None:
    assert arrived([number for number in range(20) for _ in range(2)]).returns == 20


def test_lines_left_out_among_those_sent_again_are_found() -> None:
    with pytest.raises(PassageFailed, match="repeated"):
        arrived([*range(15), 5, 6, 8])


def test_lines_from_further_back_than_can_be_pending_are_found() -> None:
    sent = [*range(PENDING_LINES_MAX + 1)]
    assert arrived([*sent, *sent[1:]]).resent == PENDING_LINES_MAX
    with pytest.raises(PassageFailed, match="repeated"):
        arrived([*sent, *sent])


def test_what_is_delivered_again_under_its_id_is_not_sent_again() -> None:
    received = Received()
    for number in (0, 1, 2, 1, 2, 3):
        received.take(FakeMessage(number, number, LINES[number]))
    assert received.arrived().redelivered == 2
    assert received.arrived().returns == received.arrived().resent == 0
