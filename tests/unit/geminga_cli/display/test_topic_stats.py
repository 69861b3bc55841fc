"""Proves what people are shown of a topic's statistics."""

from __future__ import annotations

from geminga_cli.display.topic_stats import show_partitioned_stats, show_stats

STATS = {
    "msgRateIn": 1_234.56,
    "msgThroughputIn": 2_000_000.0,
    "msgInCounter": 12_345,
    "storageSize": 5_000,
    "backlogSize": 700,
    "publishers": [
        {"producerName": "p", "msgRateIn": 1.0, "address": "/h:1", "clientVersion": "v1"}
    ],
    "subscriptions": {
        "billing": {
            "type": "Shared",
            "msgBacklog": 42,
            "unackedMessages": 3,
            "consumers": [{"consumerName": "c", "availablePermits": 997, "address": "/h:2"}],
        }
    },
}


def test_a_topic() -> None:
    text = "\n".join(show_stats(STATS))
    assert "in   1,234.6 msg/s, 2.0 MB/s, 12,345 in all; stored 5.0 kB" in text
    assert "backlog 700 bytes" in text
    row = next(line for line in text.splitlines() if "Shared" in line)
    assert row.split() == ["billing", "Shared", "42", "3", "0.0", "1"]
    assert "997" in text.splitlines()[-1]


def test_a_topic_without_clients_has_no_tables() -> None:
    lines = list(show_stats({}))
    assert lines[2:] == ["producers: none", "subscriptions: none"]


def test_a_partitioned_topic() -> None:
    lines = list(
        show_partitioned_stats({"metadata": {"partitions": 2}, "partitions": {"a-partition-0": {}}})
    )
    assert lines[0] == "2 partitions"
    assert lines[-2:] == ["  producers: none", "  subscriptions: none"]
    assert "a-partition-0" in lines
