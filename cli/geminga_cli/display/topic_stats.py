"""The statistics of a topic for people: its rates, producers, subscriptions and consumers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from geminga_cli.display.text import INDENT, plain_text, size_words, table

# The JSON that brokers answer. A member that an older broker does not have is shown as 0 or as
# empty.
Stats = Mapping[str, Any]


# Statistics are upstream's ``TopicStats``; rates are averages of the broker's last period.
def show_stats(stats: Stats) -> Iterator[str]:
    """The lines of one topic, or of all partitions together."""
    yield (
        f"in   {_rate(stats, 'In')}, {stats.get('msgInCounter', 0):,} in all; "
        f"stored {size_words(stats.get('storageSize', 0))}"
    )
    yield (
        f"out  {_rate(stats, 'Out')}, {stats.get('msgOutCounter', 0):,} in all; "
        f"backlog {size_words(stats.get('backlogSize', 0))}"
    )
    producers = [
        (
            each.get("producerName"),
            f"{each.get('msgRateIn', 0.0):,.1f}",
            each.get("address"),
            each.get("clientVersion"),
        )
        for each in stats.get("publishers") or []
    ]
    yield "producers:" if producers else "producers: none"
    if producers:
        yield from _indented(table(("NAME", "MSG/S", "ADDRESS", "CLIENT"), producers))

    by_name: Mapping[str, Stats] = stats.get("subscriptions") or {}
    subscriptions = [
        (
            name,
            # Empty while the subscription has no consumer: its type is that of the first one.
            each.get("type") or None,
            each.get("msgBacklog", 0),
            each.get("unackedMessages", 0),
            f"{each.get('msgRateOut', 0.0):,.1f}",
            len(each.get("consumers") or []),
        )
        for name, each in by_name.items()
    ]
    yield "subscriptions:" if subscriptions else "subscriptions: none"
    if subscriptions:
        headings = ("NAME", "TYPE", "BACKLOG", "UNACKED", "MSG/S", "CONSUMERS")
        yield from _indented(table(headings, subscriptions))

    # By subscription, since a name of a consumer says nothing without it.
    consumers = [
        (
            name,
            each.get("consumerName"),
            each.get("unackedMessages", 0),
            each.get("availablePermits", 0),
            f"{each.get('msgRateOut', 0.0):,.1f}",
            each.get("address"),
            each.get("clientVersion"),
        )
        for name, subscription in by_name.items()
        for each in subscription.get("consumers") or []
    ]
    if consumers:
        yield "consumers:"
        names = ("SUBSCRIPTION", "NAME", "UNACKED", "PERMITS", "MSG/S", "ADDRESS", "CLIENT")
        yield from _indented(table(names, consumers))


def show_partitioned_stats(stats: Stats) -> Iterator[str]:
    """The lines of all partitions together, then of each partition in the answer."""
    # The number of partitions that the topic has, not of those that are loaded and answered.
    count = (stats.get("metadata") or {}).get("partitions", 0)
    yield f"{count} partitions"
    yield from show_stats(stats)
    for name, partition in (stats.get("partitions") or {}).items():
        yield ""
        yield plain_text(name)
        yield from _indented(show_stats(partition))


def _rate(stats: Stats, direction: str) -> str:
    messages = stats.get(f"msgRate{direction}", 0.0)
    size_bytes = stats.get(f"msgThroughput{direction}", 0.0)
    return f"{messages:,.1f} msg/s, {size_words(round(size_bytes))}/s"


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"{INDENT}{line}" for line in lines)
