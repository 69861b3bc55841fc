"""Our ledger client on Java bookies, and ledgers whose ensemble is ours and Java's at once."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest
from tests.bookkeeper.clusters import Cluster, running_cluster
from tests.bookkeeper.java_bookkeeper import JavaBookKeeper
from tests.bookkeeper.words import payload, words_of

from geminga_ledger import LedgerConfig, LedgerError, LedgerFenced, LedgerWriter
from geminga_ledger.ledgers import Ledgers

ENTRIES = 200
SIZE = 500
READ_BYTES = 10_000_000
WAIT_S = 60.0
MIXED = (2, 1)
ALL_JAVA = (0, 3)


@pytest.fixture(scope="module", params=[MIXED, ALL_JAVA], ids=["mixed", "java"])
def cluster(
    request: pytest.FixtureRequest,
    java: JavaBookKeeper,
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[Cluster, None, None]:
    """Three bookies, so that every ledger of three is on all of them."""
    ours, javas = request.param
    directory = tmp_path_factory.mktemp("mixed")
    with running_cluster(directory, java, ours=ours, javas=javas) as cluster:
        yield cluster


class Listener:
    """Hears what became of a writer's entries."""

    def __init__(self) -> None:
        self.error: LedgerError | None = None

    def entries_confirmed(self, last_confirmed: int) -> None:
        """Nothing to do: the writer is asked."""

    def writer_failed(self, error: LedgerError) -> None:
        self.error = error


async def written(ledgers: Ledgers, listener: Listener) -> LedgerWriter:
    """A ledger on all three bookies, with entries that are confirmed."""
    writer = await ledgers.create(listener=listener, ensemble_size=3, write_quorum=3, ack_quorum=2)
    writer.append_all([payload(entry_id, SIZE) for entry_id in range(ENTRIES)])
    await writer.drained()
    assert writer.last_confirmed == ENTRIES - 1
    return writer


async def read(ledgers: Ledgers, ledger_id: int) -> list[bytes]:
    """All entries, after a recovery where it is needed."""
    reader = await ledgers.open(ledger_id, recover=True)
    return await reader.read(0, reader.last_confirmed, bytes_max=READ_BYTES)


async def test_what_we_write_both_clients_read(java: JavaBookKeeper, cluster: Cluster) -> None:
    async with cluster.ledgers() as ledgers:
        writer = await written(ledgers, Listener())
        await writer.close()
        wanted = [payload(entry_id, SIZE) for entry_id in range(ENTRIES)]
        assert await read(ledgers, writer.ledger_id) == wanted
    for version in ("v2", "v3"):
        ledger = str(writer.ledger_id)
        words = words_of(java.run_program(cluster.zookeeper, version, "read", ledger))
        assert words == {"last": "199", "length": str(ENTRIES * SIZE), "right": str(ENTRIES)}


@pytest.mark.parametrize("version", ["v2", "v3"])
async def test_what_java_writes_we_read(
    java: JavaBookKeeper, cluster: Cluster, version: str
) -> None:
    output = java.run_program(cluster.zookeeper, version, "write", str(ENTRIES), str(SIZE))
    async with cluster.ledgers() as ledgers:
        entries = await read(ledgers, int(words_of(output)["ledger"]))
    assert entries == [payload(entry_id, SIZE) for entry_id in range(ENTRIES)]


async def test_our_reader_follows_our_writer(cluster: Cluster) -> None:
    async with cluster.ledgers() as ledgers, cluster.ledgers() as others:
        writer = await written(ledgers, Listener())
        reader = await others.open(writer.ledger_id, recover=False)
        for entry_id in range(ENTRIES, ENTRIES + 20):
            after = reader.last_confirmed
            waiting = asyncio.ensure_future(reader.wait_for_confirmed(after, timeout_s=WAIT_S))
            writer.append(payload(entry_id, SIZE))
            await writer.drained()
            # Each entry tells that the one before it is confirmed.
            assert await waiting > after
            assert await reader.wait_for_confirmed(entry_id - 2, timeout_s=WAIT_S) == entry_id - 1
            (newest,) = await reader.read(entry_id - 1, entry_id - 1, bytes_max=READ_BYTES)
            assert newest == payload(entry_id - 1, SIZE)
        waiting = asyncio.ensure_future(
            reader.wait_for_confirmed(reader.last_confirmed, timeout_s=WAIT_S)
        )
        await writer.close()
        assert await waiting == ENTRIES + 19
        assert reader.view.is_closed


async def test_what_our_writer_confirms_at_a_pause_all_readers_see(
    java: JavaBookKeeper, cluster: Cluster
) -> None:
    config = LedgerConfig(explicit_lac_interval_s=0.1)
    async with cluster.ledgers(config) as ledgers, cluster.ledgers() as others:
        writer = await written(ledgers, Listener())
        reader = await others.open(writer.ledger_id, recover=False)
        assert await reader.wait_for_confirmed(ENTRIES - 2, timeout_s=WAIT_S) == ENTRIES - 1
        newcomer = await others.open(writer.ledger_id, recover=False)
        assert await newcomer.view.ask_bookies() == ENTRIES - 1
        ledger = str(writer.ledger_id)
        words = words_of(java.run_program(cluster.zookeeper, "v3", "confirmed", ledger))
        assert words == {"explicit": str(ENTRIES - 1)}
        await writer.close()


async def test_we_recover_our_own_ledger_and_its_writer_is_fenced(cluster: Cluster) -> None:
    async with cluster.ledgers() as ledgers, cluster.ledgers() as others:
        listener = Listener()
        writer = await written(ledgers, listener)
        assert len(await read(others, writer.ledger_id)) == ENTRIES
        writer.append(b"too late")
        await writer.drained()
        assert isinstance(listener.error, LedgerFenced)


@pytest.mark.parametrize("version", ["v2", "v3"])
async def test_java_recovers_our_ledger_and_our_writer_is_fenced(
    java: JavaBookKeeper, cluster: Cluster, version: str
) -> None:
    async with cluster.ledgers() as ledgers:
        listener = Listener()
        writer = await written(ledgers, listener)
        ledger = str(writer.ledger_id)
        words = words_of(java.run_program(cluster.zookeeper, version, "read", ledger))
        assert (words["last"], words["right"]) == ("199", str(ENTRIES))
        writer.append(b"too late")
        await writer.drained()
        assert isinstance(listener.error, LedgerFenced)


def test_java_recovers_its_own_ledger(java: JavaBookKeeper, cluster: Cluster) -> None:
    words = words_of(java.run_program(cluster.zookeeper, "v3", "recover", "50"))
    assert words == {"last": "49", "right": "50", "writer": "fenced"}
