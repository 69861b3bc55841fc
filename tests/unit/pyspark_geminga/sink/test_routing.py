"""Proves that rows go where the official clients send them, the same for every attempt."""

from __future__ import annotations

from collections import Counter

import pytest

from geminga_protocol.pulsar.topics.topic_names import TopicName
from pyspark_geminga.sink import routing
from pyspark_geminga.sink.routing import TopicRoute

ORDERS = TopicName.parse("orders")


def route(partitions: int, *, task: int = 0, turn_rows: int = 2) -> TopicRoute:
    return TopicRoute(ORDERS, partitions, hashing="java_string", turn_rows=turn_rows, task=task)


def index_of(name: str) -> int:
    return TopicName.parse(name).partition_index


def test_without_partitions_all_rows_go_to_the_topic() -> None:
    assert route(0).only == str(ORDERS) == route(0).destination("key")


def test_a_key_goes_where_its_hash_says() -> None:
    # "hello".hashCode() is 99162322 in Java.
    assert index_of(route(7).destination("hello")) == 99_162_322 % 7
    assert index_of(route(1).destination("hello")) == 0


def test_rows_without_key_take_turns_as_long_as_an_entry() -> None:
    spread = route(3, task=1)
    taken = [index_of(spread.destination(None)) for _ in range(8)]
    assert taken == [1, 1, 2, 2, 0, 0, 1, 1]


def test_rows_with_keys_do_not_move_the_turns_of_others() -> None:
    plain, mixed = route(3), route(3)
    wanted = [plain.destination(None) for _ in range(9)]
    found: list[str] = []
    for number in range(9):
        mixed.destination(str(number))
        found.append(mixed.destination(None))
    assert found == wanted


def test_more_keys_than_are_remembered_go_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    spread = route(4)
    first = [spread.destination(str(number)) for number in range(1000)]
    assert min(Counter(first).values()) > 150
    monkeypatch.setattr(routing, "KEYS_MAX", 10)
    forgetful = route(4)
    assert [forgetful.destination(str(number)) for number in range(1000)] == first
    assert len(forgetful._by_key) <= 10
