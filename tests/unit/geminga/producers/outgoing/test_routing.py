"""Proves that keys go where the official clients send them, and that other messages are spread."""

from __future__ import annotations

from typing import Any

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.producers.outgoing.routing import (
    PartitionRouter,
    RoutedMessage,
    java_string_hash,
    murmur3_hash,
)

PLAIN = RoutedMessage(b"", None, {})


# What the tests of upstream's clients expect (HashTest).
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("key1", 3288498),
        ("key2", 3288499),
        ("keykeykeykeykey1", 434058482),
        ("keykeykey2", 42978643),
        ("", 0),
        ("\xe4", 228),  # one UTF-16 unit
        ("\U0001f600", (31 * 0xD83D + 0xDE00) & 0x7FFF_FFFF),  # two
    ],
)
def test_keys_have_the_hashes_that_java_gives_them(key: str, expected: int) -> None:
    assert java_string_hash(key) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("k1", 2110152746),
        ("k2", 1479966664),
        ("key1", 462881061),
        ("key2", 1936800180),
        ("key01", 39696932),
        ("key02", 751761803),
    ],
)
def test_murmur3_is_upstreams(key: str, expected: int) -> None:
    assert murmur3_hash(key) == expected


# The partition, of 97, to which the official Python client (3.13.0) sent a message with the key:
# every length of the last block, and texts that are no ASCII.
@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("o", 67),
        ("or", 63),
        ("ord", 77),
        ("orde", 52),
        ("order", 28),
        ("order-", 76),
        ("order-1", 2),
        ("order-12", 34),
        ("order-123", 0),
        ("order-1234567890", 22),
        ("order-12345678901234567", 28),
        ("order-1234567890123456789", 34),
        ("\xe9", 74),
        ("\u2615 hot", 57),
    ],
)
def test_boosts_hash_is_that_of_the_official_python_client(key: str, partition: int) -> None:
    routing = PartitionRouter("round_robin", "boost", 0)
    assert routing.partition(RoutedMessage(b"", key, {}), 97, has_open_batch=False) == partition


@given(st.text())
def test_murmur3_is_the_one_of_its_library(key: str) -> None:
    assert murmur3_hash(key) == mmh3.hash(key, signed=False) & 0x7FFF_FFFF


def test_turns_last_as_long_as_a_batch_gathers() -> None:
    routing = PartitionRouter("round_robin", "java_string", 6)
    assert routing.turn(4) == 2
    chosen = [
        routing.partition(PLAIN, 4, has_open_batch=has_open_batch)
        for has_open_batch in (False, True, True, False, False, False)
    ]
    assert chosen == [3, 3, 3, 0, 1, 2]


def test_a_single_partition_takes_all_but_keys() -> None:
    routing = PartitionRouter("single", "murmur3", 7)
    assert {routing.partition(PLAIN, 4, has_open_batch=False) for _ in range(9)} == {3}
    keyed = RoutedMessage(b"", "key1", {})
    assert routing.partition(keyed, 4, has_open_batch=True) == 462881061 % 4


def test_a_function_of_ones_own_decides_about_everything() -> None:
    seen: list[tuple[RoutedMessage, int]] = []

    def router(message: RoutedMessage, partitions: int) -> int:
        seen.append((message, partitions))
        return int(message.payload)

    routing = PartitionRouter(router, "java_string", 0)
    message = RoutedMessage(b"2", "k", {"p": "q"})
    assert routing.partition(message, 3, has_open_batch=True) == 2
    assert seen == [(message, 3)]
    for outside in (b"3", b"-1"):
        with pytest.raises(ValueError, match="the router chose partition"):
            routing.partition(RoutedMessage(outside, None, {}), 3, has_open_batch=False)


@pytest.mark.parametrize(("router", "hashing"), [("random", "murmur3"), ("single", "md5")])
def test_names_that_mean_nothing_are_refused(router: Any, hashing: Any) -> None:
    with pytest.raises(ValueError, match="is no "):
        PartitionRouter(router, hashing, 0)
