"""What ``internalStats`` say of a log, in the words of Geminga and of Apache Pulsar."""

from __future__ import annotations

from typing import Any

from geminga import LOG_START, LogPosition
from pyspark_geminga.log_layout import Ledger, LogLayout
from pyspark_geminga.rest import layout_of


def stats(last: str, *ledgers: tuple[int, int, int], current: tuple[int, int] = (0, 0)) -> Any:
    return {
        "entriesAddedCounter": 12,
        "lastConfirmedEntry": last,
        "currentLedgerEntries": current[0],
        "currentLedgerSize": current[1],
        "ledgers": [{"ledgerId": i, "entries": n, "size": size} for i, n, size in ledgers],
    }


def test_of_the_ledger_that_is_written_the_list_says_nothing() -> None:
    said = stats("9:1", (4, 10, 1000), (9, 0, 0), current=(2, 20))
    expected = LogLayout((Ledger(4, 10, 1000), Ledger(9, 2, 20)), LogPosition(9, 2), 12)
    assert layout_of(said) == expected


def test_entries_that_are_not_confirmed_yet_do_not_count() -> None:
    assert layout_of(stats("9:1", (9, 0, 0), current=(3, 30))).ledgers == (Ledger(9, 2, 30),)


def test_a_new_ledger_without_entries() -> None:
    layout = layout_of(stats("4:9", (4, 10, 1000), (9, 0, 0)))
    assert (layout.end, layout.settled(layout.end)) == (LogPosition(4, 10), LogPosition(9, 0))


def test_a_topic_without_messages() -> None:
    assert layout_of(stats("4:-1", (4, 0, 0))).end == LogPosition(4, 0)
    assert layout_of(stats("-1:-1")) == LogLayout((), LOG_START, 12)


def test_sizes_may_exceed_32_bits() -> None:
    layout = layout_of(stats(f"4:{2**33 - 1}", (4, 2**33, 2**45)))
    assert layout.ledgers == (Ledger(4, 2**33, 2**45),)
