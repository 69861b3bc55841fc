"""What ``internalStats`` say of a log, in the words of Geminga and of Apache Pulsar."""

from __future__ import annotations

from typing import Any

import pytest

from geminga import LOG_START, LogPosition
from pyspark_geminga.access import Access
from pyspark_geminga.log_layout import Ledger, LogLayout
from pyspark_geminga.rest import AdminClient, layout_of


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


@pytest.mark.parametrize(
    ("status", "body", "has_transactions"),
    [
        (200, b"[]", True),
        (404, b"", False),
        (503, b"not configured with transactionCoordinatorEnabled=true", False),
        (403, b"superusers only", True),  # it may have them
    ],
)
@pytest.mark.real_loop
async def test_whether_a_cluster_has_transactions(
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: bytes,
    has_transactions: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    access = Access.of({"service.url": "pulsar://x", "admin.url": "http://y"})
    client = AdminClient(access)
    monkeypatch.setattr(client, "_ask", lambda *_: (status, None, body))
    assert await client.has_transactions() is has_transactions
