"""A copy is worth what its bookie and its digest say."""

from __future__ import annotations

import pytest
from tests.unit.magnetar_bookie.admin.cluster import Cluster as Simulated
from tests.unit.magnetar_cli.bookie_admin.simulated import run

from magnetar_bookie.errors import CorruptFile
from magnetar_cli.bookie_admin.cluster import Cluster
from magnetar_cli.bookie_admin.copy_reads import CopyState, read_copies
from magnetar_ledger.digests import entry_decoder
from magnetar_protocol.records.ledger_metadata import DigestType

DECODE = entry_decoder(DigestType.CRC32C, b"")


def test_what_a_bookie_cannot_read_is_neither_missing_nor_unreachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(_ledger_id: int, _entry_id: int) -> bytes:
        raise CorruptFile("1.entries", 32, "a block is not what was written")

    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        ledger_id = await simulated.write(b"one")
        bookie = simulated.bookies[0]
        await bookie.checkpointer.run()
        monkeypatch.setattr(bookie.storage, "_read", broken)
        wanted = [("b1", 0), ("b2", 0), ("b2", 1), ("b9", 0)]
        copies = await read_copies(cluster.links, ledger_id, wanted, DECODE)
        assert [copy.state for copy in copies] == [
            CopyState.UNREADABLE,
            CopyState.OK,
            CopyState.MISSING,
            CopyState.UNREACHABLE,
        ]
        assert "EIO" in copies[0].why
        assert copies[1].content.endswith(b"one")
        assert copies[3].why

    run(scenario)
