"""A whole bookie: what it acknowledged is there after any death, and it speaks as the original."""

from __future__ import annotations

import asyncio
import errno
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.project_files import GOLDEN
from tests.unit.geminga_bookie.fakes import (
    KEY,
    OTHER_KEY,
    Client,
    MemoryNetwork,
    make_add,
    make_entry,
)
from tests.unit.geminga_bookie.host import Host
from tests.unit.geminga_bookie.memory_disk import MemoryDisk

from geminga_bookie.bookie import Bookie
from geminga_bookie.errors import CorruptFile, JournalFileMissing, UnknownFormat
from geminga_bookie.formats.journal_v1 import file_number
from geminga_bookie.index.memory_store import MemoryStore
from geminga_bookie.metrics import BookieMetrics
from geminga_protocol.bookkeeper.v2 import LAST_ENTRY, Flag, ReturnCode, encode_read
from geminga_protocol.records.bookies.bookie_info import AVAILABLE_PATH, READ_ONLY_PATH, BookieInfo
from geminga_server.config import ConnectionConfig
from geminga_simulation.event_loop.loop import SimulatedLoop

RECORDED = GOLDEN / "bookie"
FENCING, RECOVERY = int(Flag.FENCING), int(Flag.RECOVERY_ADD)


async def codes(client: Client, *requests: bytes) -> list[int]:
    return [answer[1] for answer in await client.ask(*requests)]


async def entries_of(client: Client, ledger_id: int, count: int) -> list[bytes]:
    answers = await client.ask(*(encode_read(ledger_id, number) for number in range(count)))
    return [answer[4] for answer in answers]


def payloads(ledger_id: int, count: int) -> list[bytes]:
    return [make_entry(ledger_id, number) for number in range(count)]


def journal_files(disk: MemoryDisk) -> list[str]:
    return [name for name in sorted(disk.files) if file_number(name) is not None]


async def crash(host: Host, bookie: Bookie, *, how: str) -> None:
    """End the bookie at this moment: what it still does changes nothing that the next one finds."""
    getattr(host, how)()
    await bookie.__aexit__(None, None, None)


@pytest.mark.parametrize("how", ["kill", "cut_power"])
@pytest.mark.parametrize("checkpoints", [0, 1, 2])
async def test_everything_acknowledged_is_there_after_a_crash(how: str, checkpoints: int) -> None:
    host = Host()
    bookie = host.bookie()
    await bookie.__aenter__()
    client = host.network.connect_client()
    assert set(await codes(client, *(make_add(1, number) for number in range(10)))) == {0}
    if checkpoints:
        await bookie.checkpointer.run()
    assert await codes(client, make_add(2, 5, key=OTHER_KEY)) == [0]
    assert await codes(client, encode_read(1, LAST_ENTRY, FENCING, KEY)) == [0]
    if checkpoints == 2:
        await bookie.checkpointer.run()
    await crash(host, bookie, how=how)

    async with host.bookie():
        client = host.network.connect_client()
        assert await entries_of(client, 1, 10) == payloads(1, 10)
        assert await codes(client, encode_read(2, 5)) == [0]
        assert await codes(client, make_add(1, 10)) == [ReturnCode.EFENCED]
        assert await codes(client, make_add(1, 10, flags=RECOVERY)) == [0]
        assert await codes(client, make_add(2, 6)) == [ReturnCode.EUA]
        assert await codes(client, make_add(2, 6, key=OTHER_KEY)) == [0]


async def test_a_clean_stop_leaves_nothing_to_replay() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = await host.network.connect_client().authorized()
        client.send(*(make_add(1, number) for number in range(10)))
    assert len(client.taken()) == 10
    assert client.transport.has_ended
    assert bookie.storage.write_cache.used_bytes == 0
    assert not [
        path
        for path in host.coordination.zookeeper.tree.values()
        if path.startswith(f"{AVAILABLE_PATH}/")
    ]
    assert not host.network.listeners[-1].is_open

    async with host.bookie() as again:
        assert again.storage.write_cache.used_bytes == 0
        assert await entries_of(host.network.connect_client(), 1, 10) == payloads(1, 10)
        assert again.storage.counts.entries == 10


async def test_replayed_entries_are_checkpointed_and_the_journal_trimmed() -> None:
    host = Host(journal_file_bytes_max=500)
    bookie = host.bookie()
    await bookie.__aenter__()
    client = host.network.connect_client()
    for number in range(30):
        await client.ask(make_add(1, number))
    assert len(journal_files(host.journal_disk)) > 3
    await crash(host, bookie, how="kill")

    async with host.bookie() as again:
        for _ in range(100):
            await asyncio.sleep(0)
        assert again.checkpointer.done == 1
        assert len(journal_files(host.journal_disk)) == 1
        assert await entries_of(host.network.connect_client(), 1, 30) == payloads(1, 30)


async def test_a_replay_larger_than_the_write_cache_makes_room_as_it_goes() -> None:
    host = Host()
    bookie = host.bookie()
    await bookie.__aenter__()
    client = host.network.connect_client()
    for number in range(50):
        await client.ask(make_add(1, number, bytes(1000)))
    await crash(host, bookie, how="kill")

    smaller = Host(host.config, write_cache_bytes_max=10_000)
    smaller.journal_disk, smaller.ledger_disk = host.journal_disk, host.ledger_disk
    smaller.store, smaller.coordination = host.store, host.coordination
    async with smaller.bookie() as again:
        assert again.checkpointer.done > 5
        assert again.storage.write_cache.used_bytes < 10_000
        found = await entries_of(smaller.network.connect_client(), 1, 50)
        assert found == [make_entry(1, number, bytes(1000)) for number in range(50)]


async def test_power_may_fail_after_a_start_that_did_not_make_the_replayed_file_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a killed process left of its last journal file may be in the page cache only: the
    checkpoint of a start that fails does not count it as what need not be replayed any more."""
    host = Host()
    bookie = host.bookie()
    await bookie.__aenter__()
    client = host.network.connect_client()
    assert await codes(client, make_add(1, 0)) == [0]
    (journal,) = journal_files(host.journal_disk)
    synced = len(host.journal_disk.files[journal].content)
    assert await codes(client, make_add(1, 1)) == [0]
    host.journal_disk.files[journal].reserved = 0  # nothing is cut off, nor synced by that
    await crash(host, bookie, how="kill")
    host.journal_disk.files[journal].synced = synced

    async def fail(path: str, content: bytes) -> None:
        raise OSError(errno.EIO, f"{len(content)} bytes are not written", path)

    monkeypatch.setattr(host.journal_disk, "write_file", fail)
    with pytest.raises(OSError, match="not written"):
        await host.bookie().__aenter__()
    host.cut_power()

    async with host.bookie():
        client = host.network.connect_client()
        assert await entries_of(client, 1, 2) == payloads(1, 2)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_power_cut_at_any_moment_loses_nothing_acknowledged(data: st.DataObject) -> None:
    async def run() -> None:
        host = Host(
            journal_file_bytes_max=data.draw(st.sampled_from([300, 2000, 1 << 30])),
            write_cache_bytes_max=data.draw(st.sampled_from([2000, 10_000, 1 << 30])),
            entry_log_bytes_max=data.draw(st.sampled_from([1000, 1 << 30])),
        )
        acknowledged: dict[tuple[int, int], bytes] = {}
        fenced: set[int] = set()
        next_entry = dict.fromkeys(range(3), 0)
        for _ in range(data.draw(st.integers(1, 3))):
            bookie = host.bookie()
            await bookie.__aenter__()
            client = host.network.connect_client()
            for ledger_id in range(3):
                await check_ledger(client, ledger_id, acknowledged, fenced)
            for _ in range(data.draw(st.integers(0, 8))):
                ledger_id = data.draw(st.integers(0, 2))
                if data.draw(st.integers(0, 9)) == 0:
                    await client.ask(encode_read(ledger_id, LAST_ENTRY, FENCING, KEY))
                    fenced.add(ledger_id)
                    continue
                count = data.draw(st.integers(1, 20))
                first = next_entry[ledger_id]
                next_entry[ledger_id] += count
                adds = [make_add(ledger_id, first + number) for number in range(count)]
                client.send(*adds)
                for _ in range(data.draw(st.integers(0, 30))):
                    await asyncio.sleep(0)
                note_acknowledged(client, acknowledged)
            for _ in range(data.draw(st.integers(0, 40))):
                await asyncio.sleep(0)
            note_acknowledged(client, acknowledged)
            host.cut_power(unsynced_bytes=data.draw(st.sampled_from([0, 1, 40, 1000])))
            await bookie.__aexit__(None, None, None)
        async with host.bookie():
            client = host.network.connect_client()
            for ledger_id in range(3):
                await check_ledger(client, ledger_id, acknowledged, fenced)

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(run())


def note_acknowledged(client: Client, acknowledged: dict[tuple[int, int], bytes]) -> None:
    for operation, code, ledger_id, entry_id, _ in client.taken():
        if operation == 1 and code == 0:
            acknowledged[ledger_id, entry_id] = make_entry(ledger_id, entry_id)


async def check_ledger(
    client: Client,
    ledger_id: int,
    acknowledged: dict[tuple[int, int], bytes],
    fenced: set[int],
) -> None:
    for (ledger, entry_id), entry in acknowledged.items():
        if ledger == ledger_id:
            ((_, code, _, _, found),) = await client.ask(encode_read(ledger_id, entry_id))
            assert (code, found) == (0, entry)
    if ledger_id in fenced:
        assert await codes(client, make_add(ledger_id, 99)) == [ReturnCode.EFENCED]


async def test_a_lost_index_is_rebuilt_and_nothing_else_is_lost() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        await client.ask(*(make_add(1, number) for number in range(10)))
        await bookie.checkpointer.run()
        await client.ask(make_add(1, 10), encode_read(2, 0, FENCING, KEY))
    host.kill()
    host.store = MemoryStore()
    async with host.bookie():
        client = host.network.connect_client()
        assert await entries_of(client, 1, 11) == payloads(1, 11)
        assert await codes(client, make_add(2, 0)) == [ReturnCode.EFENCED]


async def test_an_index_of_a_newer_version_is_refused() -> None:
    host = Host()
    host.store.write([(b"mformat", b"\0\x63")])
    with pytest.raises(UnknownFormat, match="version is 99"):
        async with host.bookie():
            pass


async def test_a_journal_damaged_in_the_middle_stops_the_start_and_is_left_alone() -> None:
    host = Host()
    bookie = host.bookie()
    await bookie.__aenter__()
    client = host.network.connect_client()
    for number in range(3):
        await client.ask(make_add(1, number))
    await crash(host, bookie, how="kill")
    (name,) = journal_files(host.journal_disk)
    host.journal_disk.files[name].content[60] ^= 1
    before = host.journal_disk.contents()
    with pytest.raises(CorruptFile, match=name):
        async with host.bookie():
            pass
    assert host.journal_disk.contents() == before


async def test_an_empty_journal_directory_stops_the_start() -> None:
    host = Host()
    async with host.bookie():
        await host.network.connect_client().ask(make_add(1, 0))
    for name in journal_files(host.journal_disk):
        del host.journal_disk.files[name]
    with pytest.raises(JournalFileMissing):
        async with host.bookie():
            pass


async def test_it_registers_with_its_address_and_keeps_its_id_when_its_port_changes() -> None:
    host = Host(bookie_id="", port=0, advertised_address="bookie.example")
    async with host.bookie() as bookie:
        bookie_id, port = bookie.bookie_id, bookie.port
        value, _ = host.coordination.zookeeper.tree.get(f"{AVAILABLE_PATH}/{bookie_id}")
        assert BookieInfo.decode(value, bookie_id).address == ("bookie.example", port)
    host.network.listeners.append(host.network.listeners[0])
    async with host.bookie() as bookie:
        assert bookie.bookie_id == bookie_id
        assert bookie.port != port


async def test_after_a_kill_it_registers_at_once() -> None:
    host = Host()
    bookie = host.bookie()
    await bookie.__aenter__()
    path = f"{AVAILABLE_PATH}/bookie-1"
    old = host.coordination.zookeeper.tree.get(path)
    host.kill()
    assert host.coordination.zookeeper.tree.get(path) == old
    async with host.bookie():
        owner = host.coordination.zookeeper.tree.get(path)[1].ephemeral_owner
        assert owner == host.coordination.session_id != old[1].ephemeral_owner
    await bookie.__aexit__(None, None, None)


async def test_a_journal_that_failed_is_told_to_zookeeper_and_a_restart_heals_it() -> None:
    host = Host()
    async with host.bookie():
        client = host.network.connect_client()
        host.journal_disk.fail("append", errno.ENOSPC)
        assert await codes(client, make_add(1, 0)) == [ReturnCode.EIO]
        for _ in range(30):
            await asyncio.sleep(0)
        assert host.coordination.zookeeper.tree.exists(f"{READ_ONLY_PATH}/bookie-1")
        assert host.coordination.zookeeper.tree.exists(f"{AVAILABLE_PATH}/bookie-1") is None
    async with host.bookie():
        assert host.coordination.zookeeper.tree.exists(f"{AVAILABLE_PATH}/bookie-1")
        assert await codes(host.network.connect_client(), make_add(1, 0)) == [0]


@pytest.mark.parametrize("port", [23181, 23182, 23183])
async def test_it_answers_the_recorded_requests_as_the_original_did(port: int) -> None:
    rows = [
        json.loads(line) for line in (RECORDED / f"frames-{port}.jsonl").read_text().splitlines()
    ]
    assert len(rows) > 50
    async with Host().bookie() as bookie:
        network = bookie._network
        client = network.connect_client()  # type: ignore[attr-defined]  # a MemoryNetwork
        assert isinstance(client, Client)
        for row in rows:
            client.send(bytes.fromhex(row["request"]))
            frames: list[bytes] = []
            while not frames:
                await asyncio.sleep(0.01)
                frames = client.taken_frames()
            assert [frame.hex() for frame in frames] == [row["answer"][8:]]


async def test_connections_are_limited_and_those_that_are_open_go_on() -> None:
    async with Host(connections=ConnectionConfig(connections_max=2)).bookie() as bookie:
        network = bookie._network
        assert isinstance(network, MemoryNetwork)
        clients = [network.connect_client() for _ in range(2)]
        assert network.connect_client().transport.has_ended
        assert await codes(clients[0], make_add(1, 0)) == [0]
        clients[1].session.connection_lost(None)
        assert await codes(network.connect_client(), make_add(1, 1)) == [0]
        assert len(bookie.back_pressure.connections) == 2
        metrics = {each.name: each for each in BookieMetrics(bookie).collect()}
        (refused,) = metrics["geminga_bookie_refused_connections"].samples
        assert refused.value == 1
        (limit,) = metrics["geminga_bookie_connections_max"].samples
        assert limit.value == 2
