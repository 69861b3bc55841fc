"""Unclosed ledgers are closed with their own password."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.unit.geminga_autorecovery.cluster import LEDGER_OPTIONS, Cluster, metadata_of
from tests.unit.geminga_ledger.world import entry_of

from geminga_autorecovery.replication.take_over import PASSWORDS_MAX, TakeOvers
from geminga_ledger.metadata.store import StoredMetadata
from geminga_protocol.bookkeeper.digest import master_key
from geminga_protocol.records.ledgers.ledger_metadata import LedgerState

UNCLOSED = metadata_of((2, 2, 2), [(0, (0, 1))])


def take_overs_of(cluster: Cluster) -> TakeOvers:
    return TakeOvers(
        cluster.coordination, cluster.network, cluster.clock, Random(1), LEDGER_OPTIONS
    )


@pytest.mark.parametrize("password", [b"", b"secret"])
async def test_a_ledger_is_closed_with_the_password_in_its_metadata(password: bytes) -> None:
    cluster = Cluster(2)
    metadata = replace(UNCLOSED, password=password)
    cluster.put_metadata(7, metadata)
    for entry_id in range(3):
        for bookie in cluster.bookies:
            bookie.store(7, entry_id, entry_of(7, entry_id, entry_id - 1), master_key(password))
    async with take_overs_of(cluster) as take_overs:
        for _ in range(2):
            await take_overs.close_ledger(StoredMetadata(7, metadata, 0))
    closed = cluster.metadata(7)
    assert (closed.state, closed.last_entry) == (LedgerState.CLOSED, 2)
    assert all(7 in bookie.fenced for bookie in cluster.bookies)


async def test_ledgers_of_more_passwords_than_are_remembered_are_closed_too() -> None:
    cluster = Cluster(2)
    async with take_overs_of(cluster) as take_overs:
        for number in range(PASSWORDS_MAX + 2):
            metadata = replace(UNCLOSED, password=b"%d" % number)
            cluster.put_metadata(number, metadata)
            await take_overs.close_ledger(StoredMetadata(number, metadata, 0))
            assert cluster.metadata(number).state is LedgerState.CLOSED
