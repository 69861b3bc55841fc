"""Proves what the siege's report says of recoveries, and which partitions are drawn."""

from __future__ import annotations

import time
from itertools import islice
from random import Random

import pulsar
from tests.torture.evidence.sent import Sent
from tests.torture.evidence.test_sent import EVEN, ODD, TOPIC
from tests.torture.harm.strikes import PARTITIONS, ZOOKEEPER, Deed, strikes
from tests.torture.ordeals.siege import CLUSTER_PARTS, recoveries

from geminga_runtime.coordination import SESSION_TIMEOUT_S


def test_a_recovery_ends_with_the_first_receipt_of_the_producer_that_waited_longest() -> None:
    quick, slow, silent = Sent(EVEN, TOPIC), Sent(ODD, TOPIC), Sent(4, TOPIC)
    struck = time.monotonic()
    for sent in (quick, slow):
        sent.payload()
        sent.answered(0, pulsar.Result.Ok)
    quick.answered_at[0], slow.answered_at[0] = struck + 1.0, struck + 7.0
    (recovery,) = recoveries([(struck, "broker killed")], [quick, slow, silent])
    assert str(recovery) == "broker killed 7.0 s"
    assert not recoveries([(time.monotonic(), "broker killed")], [quick, slow, silent])


def test_each_broker_is_parted_once_in_every_turn_and_only_where_that_can_be_done() -> None:
    def parted(*, has_partitions: bool) -> list[str]:
        drawn = strikes(
            Random(1),
            CLUSTER_PARTS,
            pause_s_max=2.0,
            has_power_cuts=False,
            has_partitions=has_partitions,
        )
        # A turn has 16 targets, and a partition of each broker.
        return [
            part for each in islice(drawn, 19) if each.deed in PARTITIONS for part in each.parts
        ]

    assert sorted(parted(has_partitions=True)) == list(CLUSTER_PARTS.brokers)
    assert not parted(has_partitions=False)


def test_zookeeper_stands_still_once_in_every_turn_for_longer_than_sessions_live() -> None:
    drawn = strikes(Random(1), CLUSTER_PARTS, pause_s_max=2.0, has_power_cuts=False)
    (pause_s,) = [
        each.pause_s
        for each in islice(drawn, 16)
        if each.deed is Deed.PAUSE and each.parts == (ZOOKEEPER,)
    ]
    assert pause_s > SESSION_TIMEOUT_S
