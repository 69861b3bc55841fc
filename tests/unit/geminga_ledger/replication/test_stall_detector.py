"""A bookie is silent from the look that found the same last answers as the look before."""

from __future__ import annotations

from geminga_ledger.replication.stall_detector import StallDetector


def test_silence_is_counted_from_the_first_look_without_news() -> None:
    detector = StallDetector()
    last = [1, 2]
    assert detector.silent_s(0, last, 10.0, owes=True) == 0
    assert detector.silent_s(0, last, 12.0, owes=True) == 2
    assert detector.silent_s(0, last, 15.0, owes=True) == 5


def test_an_answer_ends_it_even_if_it_is_the_same_again() -> None:
    detector = StallDetector()
    detector.silent_s(0, [1], 10.0, owes=True)
    assert detector.silent_s(0, [1], 12.0, owes=True) == 0


def test_who_owes_nothing_may_be_silent() -> None:
    detector = StallDetector()
    last = [1]
    detector.silent_s(0, last, 10.0, owes=False)
    assert detector.silent_s(0, last, 100.0, owes=False) == 0
    assert detector.silent_s(0, last, 102.0, owes=True) == 2


def test_bookies_are_told_apart() -> None:
    detector = StallDetector()
    last = [1]
    detector.silent_s(0, last, 10.0, owes=True)
    assert detector.silent_s(1, last, 20.0, owes=True) == 0
    assert detector.silent_s(0, last, 20.0, owes=True) == 10


def test_an_entry_waits_from_the_first_look_that_finds_it_in_front() -> None:
    detector = StallDetector()
    assert detector.waited_s(4, 10.0) == 0
    assert detector.waited_s(4, 13.0) == 3
    assert detector.waited_s(5, 14.0) == 0
    assert detector.waited_s(4, 15.0) == 0
