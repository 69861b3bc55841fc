"""Ledgers are created on bookies that are there, opened as they are, and deleted."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from dataclasses import replace

import pytest
from tests.unit.geminga_ledger.world import Listener, World, payload_of, until

from geminga_ledger import (
    LedgerConfig,
    NoSuchLedger,
    NotEnoughBookies,
    UnsupportedLedger,
)
from geminga_protocol.bookkeeper.codes import Operation, ReturnCode
from geminga_protocol.bookkeeper.digest import master_key
from geminga_protocol.records.bookies.bookie_info import READ_ONLY_PATH
from geminga_protocol.records.bookies.racks import RACKS_PATH, BookieRack, BookieRacks
from geminga_protocol.records.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
)

CONFIG = LedgerConfig()
CUSTOM = {"application": b"pulsar", "component": b"managed-ledger"}
# Seen: 4,200 with CPython 3.11, of which the stand-ins for ZooKeeper take 500. A broker may have
# 100,000 idle topics, each with a ledger, in a GB.
LEDGER_BYTES_MAX = 5_000


async def test_a_new_ledgers_metadata_says_all_that_was_asked_for() -> None:
    world = World(4)
    async with world.ledgers() as ledgers:
        writer = await ledgers.create(
            listener=Listener(), ensemble_size=3, write_quorum=2, ack_quorum=1, custom=CUSTOM
        )
    metadata = world.metadata(writer.ledger_id)
    (fragment,) = metadata.fragments
    assert replace(metadata, creation_token=0) == LedgerMetadata(
        ensemble_size=3,
        write_quorum=2,
        ack_quorum=1,
        fragments=(Fragment(0, fragment.ensemble),),
        state=LedgerState.OPEN,
        digest_type=DigestType.CRC32C,
        custom=CUSTOM,
    )
    assert len(set(fragment.ensemble)) == 3


async def test_ledgers_spread_over_the_bookies() -> None:
    world = World(5)
    async with world.ledgers() as ledgers:
        writers = [await ledgers.create(listener=Listener()) for _ in range(30)]
    used = {world.metadata(writer.ledger_id).fragments[0].ensemble for writer in writers}
    assert used == {(f"b{number}",) for number in range(5)}


async def test_the_options_give_sizes_and_password_where_nothing_is_said() -> None:
    world = World(3)
    config = LedgerConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"secret")
    async with world.ledgers(config) as ledgers:
        writer = await ledgers.create(listener=Listener())
        writer.append(payload_of(0))
        await until(lambda: writer.last_confirmed == 0)
    metadata = world.metadata(0)
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (3, 3, 2)
    assert metadata.password == b"secret"
    assert world.bookies[0].master_keys[0] == master_key(b"secret")


async def test_sizes_that_make_no_sense_are_refused() -> None:
    async with World(3).ledgers() as ledgers:
        with pytest.raises(ValueError, match="at most the next"):
            await ledgers.create(listener=Listener(), ensemble_size=2, write_quorum=3)


async def test_creating_waits_for_bookies_that_come_one_after_the_other() -> None:
    world = World()
    async with world.ledgers() as ledgers:
        creating = asyncio.ensure_future(ledgers.create(listener=Listener(), ensemble_size=3))
        for _ in range(3):
            await asyncio.sleep(0.9 * CONFIG.registration_grace_s)
            assert not creating.done()
            world.add_bookies(1)
        assert (await creating).ledger_id == 0


async def test_creating_waits_for_bookies_that_are_read_only_up_to_the_deadline() -> None:
    world = World(1)
    world.coordination.zookeeper.put(f"{READ_ONLY_PATH}/b9", b"")
    async with world.ledgers() as ledgers:
        creating = asyncio.ensure_future(ledgers.create(listener=Listener(), ensemble_size=2))
        await asyncio.sleep(CONFIG.create_deadline_s - 1)
        assert not creating.done()
        world.add_bookies(1)
        assert (await creating).ledger_id == 0
        with pytest.raises(NotEnoughBookies):
            await ledgers.create(listener=Listener(), ensemble_size=3)


async def test_more_bookies_than_are_registered_are_hardly_waited_for() -> None:
    world = World(2)
    async with world.ledgers() as ledgers:
        began_s = world.clock.monotonic()
        with pytest.raises(NotEnoughBookies) as caught:
            await ledgers.create(listener=Listener(), ensemble_size=3)
        waited_s = world.clock.monotonic() - began_s
    assert (caught.value.wanted, caught.value.available) == (3, 2)
    assert waited_s == pytest.approx(CONFIG.registration_grace_s)


async def test_a_bookie_that_could_not_be_reached_is_chosen_last() -> None:
    world = World(3)
    world.bookies[1].kill()
    async with world.ledgers() as ledgers:
        links = ledgers._links
        await asyncio.gather(
            *(links.link(f"b{number}").connected() for number in range(3)), return_exceptions=True
        )
        for _ in range(5):
            writer = await ledgers.create(listener=Listener(), ensemble_size=2, write_quorum=2)
            assert "b1" not in world.metadata(writer.ledger_id).fragments[0].ensemble


async def test_what_was_written_is_read_back() -> None:
    world = World(3)
    async with world.ledgers() as ledgers:
        writer = await ledgers.create(
            listener=Listener(), ensemble_size=3, write_quorum=2, ack_quorum=2
        )
        payloads = [payload_of(number) for number in range(100)]
        for payload in payloads:
            writer.append(payload)
        await writer.close()
        reader = await ledgers.open(writer.ledger_id, recover=False)
        assert await reader.read(0, 99, bytes_max=100_000) == payloads
        assert (await ledgers.metadata(0)).state is LedgerState.CLOSED


async def test_a_ledger_that_is_not_there_cannot_be_opened() -> None:
    async with World(1).ledgers() as ledgers:
        for recover in (False, True):
            with pytest.raises(NoSuchLedger):
                await ledgers.open(9, recover=recover)
        with pytest.raises(NoSuchLedger):
            await ledgers.metadata(9)


async def test_a_deleted_ledger_is_gone() -> None:
    world = World(1)
    async with world.ledgers() as ledgers:
        writer = await ledgers.create(listener=Listener())
        await writer.close()
        await ledgers.delete(writer.ledger_id)
        await ledgers.delete(writer.ledger_id)
        with pytest.raises(NoSuchLedger):
            await ledgers.open(writer.ledger_id, recover=False)


async def test_a_ledger_with_another_digest_is_not_recovered() -> None:
    world = World(1)
    world.left_behind(5, (1, 1, 1), {})
    metadata = replace(world.metadata(5), digest_type=DigestType.HMAC)
    world.put_metadata(5, metadata)
    async with world.ledgers() as ledgers:
        with pytest.raises(UnsupportedLedger, match="digest"):
            await ledgers.open(5, recover=True)
    assert world.metadata(5) == metadata


async def test_a_ledger_whose_fragments_make_no_sense_is_not_served() -> None:
    world = World(1)
    world.left_behind(5, (1, 1, 1), {})
    world.put_metadata(5, replace(world.metadata(5), ensemble_size=2))
    async with world.ledgers() as ledgers:
        with pytest.raises(UnsupportedLedger, match="fragments"):
            await ledgers.open(5, recover=True)


async def test_a_reader_of_an_open_ledger_waits_for_its_bookies() -> None:
    world = World(1)
    world.left_behind(5, (1, 1, 1), {0: (0,), 1: (0,)})
    world.bookies[0].kill()
    async with world.ledgers() as ledgers:
        opening = asyncio.ensure_future(ledgers.open(5, recover=False))
        await asyncio.sleep(5)
        world.bookies[0].start()
        assert (await opening).last_confirmed == 0


async def test_an_open_ledger_is_opened_where_its_writer_went_meanwhile() -> None:
    world = World(2)
    world.left_behind(5, (1, 1, 1), {0: (0,)})
    world.bookies[0].kill()
    async with world.ledgers() as ledgers:
        opening = asyncio.ensure_future(ledgers.open(5, recover=False))
        await asyncio.sleep(5)
        moved = (Fragment(0, ("b0",)), Fragment(1, ("b1",)))
        world.put_metadata(5, replace(world.metadata(5), fragments=moved))
        assert (await opening).last_confirmed == 0


async def test_new_ledgers_spread_over_the_racks() -> None:
    world = World(4)
    racks = {f"b{number}": BookieRack(rack=f"/r{number % 2}") for number in range(4)}
    world.coordination.zookeeper.put(RACKS_PATH, BookieRacks({"default": racks}).encode())
    async with world.ledgers() as ledgers:
        for _ in range(10):
            writer = await ledgers.create(listener=Listener(), ensemble_size=2, write_quorum=2)
            assert len({racks[bookie_id].rack for bookie_id in writer.ensemble}) == 2


async def test_a_bookie_in_quarantine_gets_no_new_ledgers_while_there_are_others() -> None:
    world = World(2)
    config = LedgerConfig(quarantine_errors_max=1)
    async with world.ledgers(config) as ledgers:
        world.bookies[0].refusals[Operation.ADD] = ReturnCode.EIO
        for _ in range(20):
            writer = await ledgers.create(listener=Listener())
            writer.append(b"entry")
            await until(lambda each=writer: each.last_confirmed == 0)  # type: ignore[misc]
        await asyncio.sleep(config.doubt_s)
        ensembles = {(await ledgers.create(listener=Listener())).ensemble for _ in range(20)}
        assert ensembles == {("b1",)}


async def test_an_open_ledger_without_entries_takes_a_few_kilobytes() -> None:
    world = World(1)
    async with world.ledgers() as ledgers:
        kept = [await ledgers.create(listener=Listener(), custom=CUSTOM)]
        gc.collect()
        tracemalloc.start()
        try:
            kept += [await ledgers.create(listener=Listener(), custom=CUSTOM) for _ in range(100)]
            gc.collect()
            bytes_now, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert bytes_now / 100 < LEDGER_BYTES_MAX
