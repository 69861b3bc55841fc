"""A bookie that fails a writer is replaced: nothing fails, and nothing counts that is not there."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.geminga_ledger.world import World, settle, until
from tests.unit.geminga_ledger.writers import CONFIG, payloads, writing

from geminga_ledger import (
    AppendRefused,
    AppendTimedOut,
    LedgerClosedByOther,
    LedgerFenced,
    NoSuchLedger,
)
from geminga_protocol.bookkeeper.codes import Operation, ReturnCode
from geminga_protocol.records.ledgers.ledger_metadata import Fragment, LedgerState
from geminga_runtime.coordination import ANY_VERSION, ConnectionLost, NodeStat


def slow_down(world: World) -> list[str]:
    """From now on ZooKeeper takes half a second for a change; which were asked for."""
    writes: list[str] = []
    make_change = world.coordination.set

    async def change_slowly(path: str, value: bytes, *, version: int = ANY_VERSION) -> NodeStat:
        writes.append(path)
        await asyncio.sleep(0.5)
        return await make_change(path, value, version=version)

    world.coordination.set = change_slowly  # type: ignore[method-assign]
    return writes


async def test_a_bookie_that_dies_is_replaced_from_the_first_unconfirmed_entry_on() -> None:
    async with writing((2, 2, 2)) as bench:
        bench.append(3)
        await bench.all_confirmed()
        bench.bookies[1].kill()
        bench.append(4)
        await bench.all_confirmed()
        newcomer = bench.spare[0].bookie_id
        assert bench.fragments == (
            Fragment(0, bench.first),
            Fragment(3, (bench.first[0], newcomer)),
        )
        assert bench.spare[0].stored(0) == [3, 4, 5, 6]
        assert bench.listener.failures == []
        assert bench.ledgers.counters.ensemble_changes == 1
        assert bench.ledgers.counters.bookies_replaced == 1
        assert await bench.read_back() == payloads(7)


@pytest.mark.parametrize("code", [ReturnCode.EREADONLY, ReturnCode.EIO])
async def test_a_bookie_that_refuses_is_replaced(code: ReturnCode) -> None:
    async with writing((1, 1, 1)) as bench:
        bench.append(2)
        await bench.all_confirmed()
        bench.bookies[0].refusals[Operation.ADD] = code
        bench.append(300)
        await bench.all_confirmed()
        assert bench.fragments[1:] == (Fragment(2, (bench.spare[0].bookie_id,)),)
        assert bench.listener.failures == []


async def test_a_bookie_that_does_not_answer_is_replaced() -> None:
    async with writing((2, 2, 2)) as bench:
        bench.bookies[0].is_silent = True
        bench.append(2)
        before_s = bench.world.clock.monotonic()
        await bench.all_confirmed()
        waited_s = bench.world.clock.monotonic() - before_s
        assert CONFIG.answer_timeout_s <= waited_s <= 1.6 * CONFIG.answer_timeout_s
        assert bench.fragments == (Fragment(0, (bench.spare[0].bookie_id, bench.first[1])),)


async def test_a_bookie_that_does_not_answer_is_replaced_though_the_others_are_enough() -> None:
    async with writing((3, 3, 2)) as bench:
        bench.bookies[2].is_silent = True
        bench.append(2)
        await bench.all_confirmed()
        newcomer = await bench.replaced(2)
        bench.append(1)
        await until(lambda: bench.world.bookie(newcomer).stored(0) == [2])
        assert bench.fragments[1].first_entry == 2


async def test_a_bookie_away_is_replaced_though_the_others_are_enough() -> None:
    async with writing((3, 3, 2)) as bench:
        bench.bookies[1].kill()
        bench.append(5)
        await bench.all_confirmed()
        bench.append(4)  # the others may have confirmed the five before it was missed
        newcomer = await bench.replaced(1)
        bench.append(1)
        await until(lambda: bench.world.bookie(newcomer).stored(0)[-1:] == [9])
        assert bench.writer.last_confirmed == 9


async def test_a_writer_that_writes_nothing_changes_nothing() -> None:
    async with writing((2, 2, 2)) as bench:
        bench.append(1)
        await bench.all_confirmed()
        bench.bookies[0].kill()
        await asyncio.sleep(100)
        assert bench.beginnings == [0]
        bench.append(1)
        await bench.all_confirmed()
        assert bench.beginnings == [0, 1]


async def test_several_failures_are_one_change() -> None:
    async with writing((3, 3, 3), spare=2) as bench:
        bench.append(1)
        await bench.all_confirmed()
        for bookie in bench.bookies[:2]:
            bookie.refusals[Operation.ADD] = ReturnCode.EIO
        bench.append(1)
        await bench.all_confirmed()
        spare = {each.bookie_id for each in bench.spare}
        assert bench.beginnings == [0, 1]
        assert set(bench.fragments[1].ensemble) == spare | {bench.first[2]}


async def test_a_bookie_that_fails_while_a_change_is_under_way_is_the_next_change() -> None:
    async with writing((2, 2, 2), spare=2) as bench:
        bench.bookies[1].is_holding = True
        writes = slow_down(bench.world)
        bench.bookies[0].kill()
        bench.append(3)
        await until(lambda: writes)
        bench.bookies[1].kill()
        await bench.all_confirmed()
        assert set(bench.writer.ensemble) == {each.bookie_id for each in bench.spare}
        assert bench.fragments == (Fragment(0, bench.writer.ensemble),)
        assert len(writes) == 2
        assert await bench.read_back() == payloads(3)


async def test_a_newcomer_that_fails_is_replaced_too() -> None:
    async with writing((1, 1, 1), spare=2) as bench:
        for bookie in bench.spare:
            bookie.refusals[Operation.ADD] = ReturnCode.EREADONLY
        bench.bookies[0].kill()
        bench.append(1)
        await until(lambda: bench.listener.failures)
        (failure,) = bench.listener.failures
        assert isinstance(failure, AppendRefused)
        assert {failure.bookie_id} < {each.bookie_id for each in bench.spare}


async def test_a_newcomer_that_cannot_be_reached_is_never_in_the_metadata() -> None:
    async with writing((1, 1, 1), spare=3) as bench:
        for bookie in bench.spare[:2]:
            bookie.kill()
        bench.bookies[0].kill()
        bench.append(1)
        await bench.all_confirmed()
        assert bench.fragments == (Fragment(0, (bench.spare[2].bookie_id,)),)
        sets = [each for each in bench.world.coordination.requests if each.startswith("set ")]
        assert len(sets) == 1


async def test_what_the_replaced_bookie_had_stored_counts_no_more() -> None:
    """Else an entry would be confirmed with fewer copies in its ensemble than promised."""
    async with writing((3, 3, 2)) as bench:
        bench.bookies[1].is_holding = bench.bookies[2].is_holding = True
        bench.append(1)
        await settle()
        assert bench.bookies[0].stored(0) == [0]
        bench.spare[0].is_holding = True
        bench.bookies[0].kill()
        newcomer = await bench.replaced(0)
        bench.bookies[1].release()
        await settle()
        assert bench.writer.last_confirmed == -1
        await until(lambda: bench.spare[0].held)
        assert bench.world.bookie(newcomer).stored(0) == [0]
        bench.spare[0].release()
        await bench.all_confirmed()


async def test_answers_of_a_replaced_bookie_that_come_late_count_for_nothing() -> None:
    async with writing((2, 2, 1)) as bench:
        late, other = bench.bookies
        late.is_holding = other.is_holding = bench.spare[0].is_holding = True
        late.refusals[Operation.ADD, 0] = ReturnCode.EIO
        bench.append(2)
        await until(lambda: len(late.held) == 2)
        refusal, answer = late.held
        late.held = [refusal]
        late.release()
        await bench.replaced(0)
        late.held = [answer]
        late.release()
        await settle()
        assert bench.writer.last_confirmed == -1
        other.release()
        await bench.all_confirmed()


async def test_nothing_is_confirmed_while_the_change_is_written() -> None:
    """So the new fragment begins after all that is confirmed, and the newcomer gets all of it."""
    async with writing((3, 3, 2)) as bench:
        for bookie in bench.bookies[:2]:
            bookie.is_holding = True
        writes = slow_down(bench.world)
        bench.append(2)
        await settle()
        bench.bookies[2].kill()
        await until(lambda: writes)
        for bookie in bench.bookies[:2]:
            bookie.release()
        await settle()
        assert bench.writer.last_confirmed == -1
        await bench.all_confirmed()
        assert bench.fragments[-1].first_entry == 0
        await until(lambda: bench.spare[0].stored(0) == [0, 1])


async def test_where_zookeeper_is_away_the_bookies_that_stay_are_enough() -> None:
    async with writing((3, 3, 2)) as bench:
        is_away = True

        def refuse(method: str, path: str) -> None:
            if is_away and method in ("set", "get") and "/L0000" in path:
                raise ConnectionLost(path)

        bench.world.coordination.before = refuse
        bench.bookies[0].kill()
        bench.append(2)
        await bench.all_confirmed()
        for _ in range(100):
            bench.append(1)
            await asyncio.sleep(1)
        assert bench.writer.last_confirmed == 101
        assert bench.beginnings == [0]
        is_away = False
        await bench.replaced(0)
        assert bench.beginnings == [0, 102]
        assert bench.listener.failures == []
        assert await bench.read_back() == payloads(102)


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_lost_answer_of_zookeeper_makes_one_change(*, is_done: bool) -> None:
    async with writing((2, 2, 2)) as bench:
        bench.append(1)
        await bench.all_confirmed()
        bench.world.coordination.lose("set", "/L0000", is_done=is_done)
        bench.bookies[0].kill()
        bench.append(1)
        await bench.all_confirmed()
        assert bench.beginnings == [0, 1]
        await bench.writer.close()
        assert await bench.read_back() == payloads(2)


async def test_a_change_that_finds_a_recovery_under_way_fences_the_writer() -> None:
    async with writing((2, 2, 2)) as bench:
        bench.world.put_metadata(0, bench.world.metadata(0).in_recovery())
        bench.bookies[0].kill()
        bench.append(1)
        await until(lambda: bench.listener.failures)
        assert type(bench.listener.failures[0]) is LedgerFenced
        assert bench.fragments == (Fragment(0, bench.first),)
        with pytest.raises(LedgerFenced):
            await bench.writer.close()


async def test_a_change_that_finds_the_ledger_closed_fences_the_writer() -> None:
    async with writing((2, 2, 2)) as bench:
        bench.world.put_metadata(0, bench.world.metadata(0).closed(-1, 0))
        bench.bookies[0].kill()
        bench.append(1)
        await until(lambda: bench.listener.failures)
        assert type(bench.listener.failures[0]) is LedgerClosedByOther


async def test_a_change_that_finds_another_last_ensemble_fences_the_writer() -> None:
    async with writing((2, 2, 2)) as bench:
        metadata = bench.world.metadata(0)
        others = (Fragment(0, ("x", "y")),)
        bench.world.put_metadata(0, replace(metadata, fragments=others))
        bench.bookies[0].kill()
        bench.append(1)
        await until(lambda: bench.listener.failures)
        assert type(bench.listener.failures[0]) is LedgerFenced


async def test_a_change_that_finds_no_ledger_fails_the_writer() -> None:
    async with writing((2, 2, 2)) as bench:
        await bench.ledgers.delete(0)
        bench.bookies[0].kill()
        bench.append(1)
        await until(lambda: bench.listener.failures)
        assert isinstance(bench.listener.failures[0], NoSuchLedger)


async def test_what_others_wrote_into_earlier_fragments_stays() -> None:
    async with writing((2, 2, 2), spare=2) as bench:
        bench.append(1)
        await bench.all_confirmed()
        bench.bookies[0].kill()
        bench.append(1)
        await bench.all_confirmed()
        metadata = bench.world.metadata(0)
        moved = Fragment(0, ("moved", bench.first[1]))
        fragments = (moved, *metadata.fragments[1:])
        bench.world.put_metadata(0, replace(metadata, fragments=fragments))
        bench.bookies[1].kill()
        bench.append(1)
        await bench.all_confirmed()
        assert bench.fragments[0] == moved
        assert bench.beginnings == [0, 1, 2]


async def test_without_a_replacement_an_ack_quorum_goes_on_until_there_is_one() -> None:
    async with writing((3, 3, 2), spare=0) as bench:
        bench.bookies[0].refusals[Operation.ADD] = ReturnCode.EREADONLY
        bench.append(3)
        await bench.all_confirmed()
        bench.world.add_bookies(1)
        bench.append(1)
        assert await bench.replaced(0) == "b3"
        assert bench.listener.failures == []


async def test_without_a_replacement_a_full_ack_quorum_waits_for_one() -> None:
    async with writing((2, 2, 2), spare=0) as bench:
        bench.bookies[0].kill()
        bench.append(3)
        await asyncio.sleep(30)
        assert bench.writer.last_confirmed == -1
        bench.world.add_bookies(1)
        await bench.all_confirmed()
        assert bench.writer.ensemble[0] == "b2"
        assert bench.listener.failures == []


async def test_without_a_replacement_the_append_deadline_ends_it() -> None:
    async with writing((2, 2, 2), spare=0) as bench:
        bench.bookies[0].kill()
        bench.append(1)
        await until(lambda: bench.listener.failures)
        assert isinstance(bench.listener.failures[0], AppendTimedOut)


async def test_without_a_replacement_a_bookie_that_restarts_is_as_good_as_before() -> None:
    async with writing((2, 2, 2), spare=0) as bench:
        bench.bookies[0].kill()
        bench.append(3)
        await asyncio.sleep(1)
        bench.bookies[0].start()
        await bench.all_confirmed()
        assert bench.fragments == (Fragment(0, bench.first),)


async def test_striped_entries_are_sent_again_only_to_bookies_of_their_write_sets() -> None:
    async with writing((4, 2, 2)) as bench:
        bench.bookies[3].kill()
        bench.append(12)
        await bench.all_confirmed()
        assert bench.spare[0].stored(0) == [2, 3, 6, 7, 10, 11]
        assert await bench.read_back() == payloads(12)


async def test_closing_ends_a_change_that_is_under_way() -> None:
    async with writing((3, 3, 2)) as bench:

        def refuse(method: str, path: str) -> None:
            del path
            if method == "set" and bench.writer._refusal is None:
                raise ConnectionLost("away")

        bench.world.coordination.before = refuse
        bench.bookies[0].kill()
        bench.append(1)
        await bench.all_confirmed()
        await bench.writer.close()
        metadata = bench.world.metadata(0)
        assert (metadata.state, metadata.last_entry) == (LedgerState.CLOSED, 0)


async def test_a_reset_connection_alone_changes_nothing() -> None:
    async with writing((2, 2, 2)) as bench:
        bench.append(3)
        bench.bookies[0].drop_connections()
        bench.append(3)
        await bench.all_confirmed()
        assert bench.fragments == (Fragment(0, bench.first),)
