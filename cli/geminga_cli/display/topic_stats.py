"""A topic's statistics as people read them: what goes through it, who writes, who reads. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from geminga_cli.display.text import INDENT, plain_text, size_words, table

Stats = Mapping[str, Any]


def show_stats(stats: Stats) -> Iterator[str]:
    """One topic, or all partitions together."""
    yield (
        f"in   {_rate(stats, 'In')}, {stats.get('msgInCounter', 0):,} in all; "
        f"stored {size_words(stats.get('storageSize', 0))}"
    )
    yield (
        f"out  {_rate(stats, 'Out')}, {stats.get('msgOutCounter', 0):,} in all; "
        f"backlog {size_words(stats.get('backlogSize', 0))}"
    )
    yield from _producers(stats.get("publishers") or [])
    subscriptions = stats.get("subscriptions") or {}
    yield from _subscriptions(subscriptions)
    yield from _consumers(subscriptions)


def show_partitioned_stats(stats: Stats) -> Iterator[str]:
    """All partitions together, then each that is shown."""
    count = (stats.get("metadata") or {}).get("partitions", 0)
    yield f"{count} partitions"
    yield from show_stats(stats)
    for name, partition in (stats.get("partitions") or {}).items():
        yield ""
        yield plain_text(name)
        yield from (f"{INDENT}{line}" for line in show_stats(partition))


def _rate(stats: Stats, way: str) -> str:
    messages, size = stats.get(f"msgRate{way}", 0.0), stats.get(f"msgThroughput{way}", 0.0)
    return f"{messages:,.1f} msg/s, {size_words(round(size))}/s"


def _producers(publishers: Sequence[Stats]) -> Iterator[str]:
    if not publishers:
        yield "producers: none"
        return
    yield "producers:"
    rows = (
        (
            each.get("producerName"),
            f"{each.get('msgRateIn', 0.0):,.1f}",
            each.get("address"),
            each.get("clientVersion"),
        )
        for each in publishers
    )
    yield from _indented(("NAME", "MSG/S", "ADDRESS", "CLIENT"), rows)


def _subscriptions(subscriptions: Mapping[str, Stats]) -> Iterator[str]:
    if not subscriptions:
        yield "subscriptions: none"
        return
    yield "subscriptions:"
    rows = (
        (
            name,
            each.get("type") or None,
            each.get("msgBacklog", 0),
            each.get("unackedMessages", 0),
            f"{each.get('msgRateOut', 0.0):,.1f}",
            len(each.get("consumers") or []),
        )
        for name, each in subscriptions.items()
    )
    yield from _indented(("NAME", "TYPE", "BACKLOG", "UNACKED", "MSG/S", "CONSUMERS"), rows)


def _consumers(subscriptions: Mapping[str, Stats]) -> Iterator[str]:
    rows = [
        (
            name,
            each.get("consumerName"),
            each.get("unackedMessages", 0),
            each.get("availablePermits", 0),
            f"{each.get('msgRateOut', 0.0):,.1f}",
            each.get("address"),
            each.get("clientVersion"),
        )
        for name, subscription in subscriptions.items()
        for each in subscription.get("consumers") or []
    ]
    if rows:
        yield "consumers:"
        headings = ("SUBSCRIPTION", "NAME", "UNACKED", "PERMITS", "MSG/S", "ADDRESS", "CLIENT")
        yield from _indented(headings, rows)


def _indented(headings: Sequence[str], rows: Any) -> Iterator[str]:  # noqa: ANN401 - rows of cells
    return (f"{INDENT}{line}" for line in table(headings, rows))
