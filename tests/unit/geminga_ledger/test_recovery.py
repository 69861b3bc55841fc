"""Recovery keeps all that was confirmed, invents nothing, and ends where BookKeeper's would."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga_ledger.world import (
    KEY,
    Listener,
    World,
    entry_of,
    payload_of,
    settle,
    until,
)

from geminga_ledger import (
    LedgerConfig,
    LedgerFenced,
    LedgerReader,
    RecoveryUndecided,
    WrongPassword,
)
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.bookkeeper.codes import Flag, Operation, ReturnCode
from geminga_protocol.bookkeeper.digest import decode_entry
from geminga_protocol.records.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from geminga_simulation.event_loop.loop import SimulatedLoop

LEDGER = 5
ALL = (0, 1, 2)
HASTY = LedgerConfig(recovery_deadline_s=0.0)

Holders = dict[int, tuple[int, ...]]


async def recover(world: World, config: LedgerConfig | None = None) -> LedgerReader:
    async with world.ledgers(config) as ledgers:
        return await ledgers.open(LEDGER, recover=True)


def ended_at(world: World, last_entry: int) -> bool:
    """Whether the ledger is closed there, with the length that its entries have together."""
    metadata = world.metadata(LEDGER)
    return (metadata.state, metadata.last_entry, metadata.length) == (
        LedgerState.CLOSED,
        last_entry,
        10 * (last_entry + 1),
    )


# Ledgers with E=3 Qw=3 Qa=2, and where they end. An entry is on the bookies given.
HOLES = {
    "nothing was written": ({}, -1),
    "all is everywhere": (dict.fromkeys(range(4), ALL), 3),
    "the tail is on an ack quorum": ({0: ALL, 1: (0, 1), 2: (1, 2)}, 2),
    # One bookie with it: kept, for another may have had it and lost it.
    "the tail is on the bookie asked first": ({0: ALL, 1: (1,)}, 1),
    "the tail is on the bookie asked second": ({0: ALL, 1: (2,)}, 1),
    # Here BookKeeper ends the ledger with entry 0: bookies 1 and 2 were asked before.
    "the tail is on the bookie asked last": ({0: ALL, 1: (0,)}, 1),
    "one copy is no hole": ({0: ALL, 1: (0,), 2: ALL, 3: ALL}, 3),
    "behind a hole nothing is confirmed": ({0: ALL, 2: ALL, 3: ALL}, 0),
    "the hole is the first entry": ({1: ALL, 2: ALL}, -1),
    "several holes": ({0: (0, 1), 1: (1, 2), 2: (2, 0), 4: ALL, 6: ALL}, 2),
}


@pytest.mark.parametrize(("holders", "last_entry"), HOLES.values(), ids=HOLES.keys())
async def test_the_end_is_behind_the_last_entry_of_which_there_is_a_copy(
    holders: Holders, last_entry: int
) -> None:
    world = World(3)
    # No entry knows of a confirmation, so that every one of them has to be looked for.
    world.left_behind(LEDGER, (3, 3, 2), holders, told=dict.fromkeys(holders, -1))
    reader = await recover(world)
    assert reader.last_confirmed == last_entry
    assert ended_at(world, last_entry)
    for entry_id in range(last_entry + 1):
        assert sum(entry_id in bookie.stored(LEDGER) for bookie in world.bookies) >= 2


def end_of(quorum: Quorum, holders: Holders, down: frozenset[int]) -> int | None:
    """``LedgerRecoveryOp`` in a few lines, but it asks every bookie: the last entry, None where
    that cannot be told."""
    entry_id = 0
    while True:
        up = set(quorum.write_set(entry_id)) - down
        if not up & set(holders.get(entry_id, ())):
            is_proven = len(up) > quorum.write_quorum - quorum.ack_quorum
            return entry_id - 1 if is_proven else None
        entry_id += 1


@st.composite
def leftovers(draw: st.DrawFn) -> tuple[Quorum, Holders, int, frozenset[int]]:
    """A quorum, who holds what, the last entry that was confirmed, and who is down."""
    quorum = draw(
        st.sampled_from([Quorum(3, 3, 2), Quorum(3, 2, 2), Quorum(4, 3, 2), Quorum(2, 2, 1)])
    )
    confirmed = draw(st.integers(-1, 4))
    holders: Holders = {}
    for entry_id in range(confirmed + 4):
        fewest = quorum.ack_quorum if entry_id <= confirmed else 0
        chosen = draw(
            st.sets(st.sampled_from(quorum.write_set(entry_id)), min_size=fewest), label="holders"
        )
        if chosen:
            holders[entry_id] = tuple(chosen)
    down = draw(st.frozensets(st.integers(0, quorum.ensemble_size - 1), max_size=1))
    return quorum, holders, confirmed, down


@settings(max_examples=100, deadline=None)
@given(leftovers(), st.booleans())
def test_recovery_ends_any_leftovers_where_the_model_does(
    leftover: tuple[Quorum, Holders, int, frozenset[int]],
    is_telling: bool,  # noqa: FBT001 - given by hypothesis
) -> None:
    # With Qa 1 a confirmed entry may be on the bookie that is down alone; with Qa = Qw it cannot be
    # written again without that bookie. Then it does matter whether it is known to be confirmed.
    are_told = is_telling and 1 < leftover[0].ack_quorum < leftover[0].write_quorum
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(recovery_equals_the_model(*leftover, are_told=are_told))


async def recovery_equals_the_model(
    quorum: Quorum, holders: Holders, confirmed: int, down: frozenset[int], *, are_told: bool
) -> None:
    world = World(quorum.ensemble_size)
    sizes = (quorum.ensemble_size, quorum.write_quorum, quorum.ack_quorum)
    # What the model does not know, and what must not matter: how much the entries tell.
    told = {each: min(each - 1, confirmed) if are_told else -1 for each in holders}
    world.left_behind(LEDGER, sizes, holders, told=told)
    for number in down:
        world.bookies[number].kill()
    up = frozenset(range(quorum.ensemble_size)) - down
    expected = end_of(quorum, holders, down) if quorum.is_covered(up) else None
    # Entries that are kept are written again, for which an ack quorum must be there.
    if expected is not None and any(
        len(up & set(quorum.write_set(entry_id))) < quorum.ack_quorum
        for entry_id in range(expected + 1)
    ):
        expected = None
    config = LedgerConfig(recovery_deadline_s=0.0, append_deadline_s=1.0, answer_timeout_s=1.0)
    async with world.ledgers(config) as ledgers:
        if expected is None:
            with pytest.raises(Exception, match=r"recovered now|not confirmed within"):
                await ledgers.open(LEDGER, recover=True)
            assert world.metadata(LEDGER).state is LedgerState.IN_RECOVERY
            return
        reader = await ledgers.open(LEDGER, recover=True)
        assert reader.last_confirmed == expected >= confirmed
        assert ended_at(world, expected)
        payloads = [payload_of(entry_id) for entry_id in range(expected + 1)]
        assert expected < 0 or await reader.read(0, expected, bytes_max=1000) == payloads
    for entry_id in range(expected + 1):
        copies = sum(entry_id in bookie.stored(LEDGER) for bookie in world.bookies)
        assert copies >= quorum.ack_quorum


async def test_only_what_may_be_unconfirmed_is_looked_for() -> None:
    world = World(3)
    world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(10), ALL))
    await recover(world)
    added = {request[3] for request in world.bookies[0].requests if request[0] == Operation.ADD}
    assert added == {9}
    assert ended_at(world, 9)


async def test_reads_fence_and_adds_are_marked_as_recovery() -> None:
    world = World(1)
    world.left_behind(LEDGER, (1, 1, 1), {0: (0,)})
    await recover(world, LedgerConfig(recovery_batch_entries=1))
    assert [request[:5] for request in world.bookies[0].requests] == [
        (Operation.READ, Flag.FENCING, LEDGER, -1, KEY),
        (Operation.READ, Flag.FENCING | Flag.HIGH_PRIORITY, LEDGER, 0, KEY),
        (Operation.ADD, Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY, LEDGER, 0, KEY),
        (Operation.READ, Flag.FENCING | Flag.HIGH_PRIORITY, LEDGER, 1, KEY),
    ]


async def test_a_recovered_entry_keeps_its_payload_and_length() -> None:
    world = World(3)
    world.left_behind(LEDGER, (3, 3, 2), {0: ALL, 1: ALL, 2: (2,)}, told={2: 0})
    await recover(world)
    entry = world.bookies[0].entries[LEDGER][2]
    assert decode_entry(entry, 0, len(entry), LEDGER, 2)[2:] == (30, payload_of(2))


async def test_a_tail_longer_than_a_batch_is_recovered_whole() -> None:
    world = World(3)
    holders = dict.fromkeys(range(20), ALL)
    world.left_behind(LEDGER, (3, 3, 2), holders, told=dict.fromkeys(holders, -1))
    await recover(world, LedgerConfig(recovery_batch_entries=3))
    assert ended_at(world, 19)


async def test_a_tail_larger_than_what_may_be_pending_is_recovered_whole() -> None:
    world = World(1)
    holders = dict.fromkeys(range(64), (0,))
    world.left_behind(LEDGER, (1, 1, 1), holders, told=dict.fromkeys(holders, -1))
    await recover(world, replace(HASTY, pending_bytes_max=100))
    assert ended_at(world, 63)


async def test_a_writer_is_fenced_and_what_it_was_told_stays() -> None:
    world, listener = World(3), Listener()
    async with world.ledgers() as old, world.ledgers(seed=2) as new:
        writer = await old.create(listener=listener, ensemble_size=3, write_quorum=3, ack_quorum=2)
        for number in range(5):
            writer.append(payload_of(number))
        await until(lambda: writer.last_confirmed == 4)
        reader = await new.open(writer.ledger_id, recover=True)
        assert reader.last_confirmed == 4
        writer.append(payload_of(5))
        await until(lambda: listener.failures)
        assert isinstance(listener.failures[0], LedgerFenced)
        assert listener.confirmations[-1] == 4


async def test_a_client_may_recover_the_ledger_that_it_writes_itself() -> None:
    world, listener = World(1), Listener()
    async with world.ledgers() as ledgers:
        writer = await ledgers.create(listener=listener)
        world.bookies[0].is_holding = True
        for number in range(3):
            writer.append(payload_of(number))
        await until(lambda: len(world.bookies[0].held) == 3)
        late = world.bookies[0].held[:]
        world.bookies[0].held.clear()
        world.bookies[0].is_holding = False
        reader = await ledgers.open(writer.ledger_id, recover=True)
        assert reader.last_confirmed == 2
        # The answers to the writer's own adds are still the writer's.
        world.bookies[0].held = late
        world.bookies[0].release()
        await until(lambda: listener.confirmations == [2])
        await writer.close()


async def test_a_closed_ledger_is_only_read() -> None:
    world = World(3)
    world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(3), ALL))
    world.put_metadata(LEDGER, world.metadata(LEDGER).closed(1, 20))
    reader = await recover(world)
    assert reader.last_confirmed == 1
    assert not any(bookie.requests for bookie in world.bookies)


async def test_what_stood_before_the_last_fragment_is_left_alone() -> None:
    world = World(3)
    world.left_behind(LEDGER, (1, 1, 1), {0: (0,), 1: (0,), 2: (0,), 3: (2,)}, told={3: -1})
    fragments = (Fragment(0, ("b0",)), Fragment(3, ("b2",)))
    world.put_metadata(LEDGER, replace(world.metadata(LEDGER), fragments=fragments))
    await recover(world)
    assert ended_at(world, 3)
    assert world.bookies[0].requests == []


async def test_an_empty_last_fragment_ends_the_ledger_before_it() -> None:
    world = World(3)
    world.left_behind(LEDGER, (1, 1, 1), {0: (0,), 1: (0,)})
    fragments = (Fragment(0, ("b0",)), Fragment(2, ("b2",)))
    world.put_metadata(LEDGER, replace(world.metadata(LEDGER), fragments=fragments))
    await recover(world)
    assert ended_at(world, 1)


async def test_the_length_is_that_of_the_last_entry_kept() -> None:
    world = World(3)
    # Bookie 0 has an entry behind a hole, whose length counts entries that the ledger lacks.
    world.left_behind(LEDGER, (3, 3, 2), {0: ALL, 1: ALL, 4: (0,)}, told={4: 1})
    await recover(world)
    assert ended_at(world, 1)


async def test_a_confirmed_entry_that_was_lost_does_not_keep_the_ledger_open() -> None:
    world = World(3)
    world.left_behind(LEDGER, (3, 3, 2), {0: ALL, 4: (0,)}, told={4: 3})
    reader = await recover(world)
    assert reader.last_confirmed == 4
    assert world.metadata(LEDGER).state is LedgerState.CLOSED


async def test_too_few_bookies_leave_the_ledger_in_recovery() -> None:
    world = World(3)
    world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(3), ALL))
    world.bookies[0].kill()
    world.bookies[1].kill()
    with pytest.raises(RecoveryUndecided):
        await recover(world, HASTY)
    assert world.metadata(LEDGER).state is LedgerState.IN_RECOVERY


async def test_an_entry_that_only_the_missing_bookie_may_have_is_not_given_up() -> None:
    world = World(3)
    # Qw 2, Qa 2 would decide at once; with Qw 3, Qa 1 one bookie may hold what was confirmed.
    world.left_behind(LEDGER, (3, 3, 1), {0: ALL, 1: (2,)})
    world.bookies[2].kill()
    with pytest.raises(RecoveryUndecided):
        await recover(world, HASTY)


async def test_recovery_waits_for_bookies_that_restart() -> None:
    world = World(1)
    world.left_behind(LEDGER, (1, 1, 1), dict.fromkeys(range(3), (0,)))
    world.bookies[0].kill()
    recovering = asyncio.ensure_future(recover(world))
    await asyncio.sleep(20)
    world.bookies[0].start()
    assert (await recovering).last_confirmed == 2


async def test_recovery_survives_a_bookie_that_is_killed_in_the_middle() -> None:
    world = World(1)
    world.left_behind(LEDGER, (1, 1, 1), dict.fromkeys(range(3), (0,)), told={1: -1, 2: -1})
    world.bookies[0].is_holding = True
    recovering = asyncio.ensure_future(recover(world))
    for _ in range(3):
        await until(lambda: world.bookies[0].held)
        world.bookies[0].kill()
        await settle()
        world.bookies[0].start()
    world.bookies[0].is_holding = False
    world.bookies[0].drop_connections()
    assert (await recovering).last_confirmed == 2


async def test_a_bookie_that_dies_while_the_tail_is_stored_again_is_replaced() -> None:
    world = World(4)
    world.left_behind(LEDGER, (3, 3, 3), dict.fromkeys(range(5), ALL), told={4: 1})
    world.bookies[1].refusals[Operation.ADD] = ReturnCode.EIO
    await recover(world)
    assert ended_at(world, 4)
    # Entry 1 is the last that an entry says to be confirmed; what comes after it has moved.
    assert world.metadata(LEDGER).fragments == (
        Fragment(0, ("b0", "b1", "b2")),
        Fragment(2, ("b0", "b3", "b2")),
    )
    assert world.bookies[3].stored(LEDGER) == [2, 3, 4]


async def test_a_ledger_with_a_dead_bookie_ends_without_it_where_another_is_there() -> None:
    world = World(4)
    holders: Holders = {0: (0, 1), 1: (1, 2), 2: (2, 0), 3: (0, 1), 4: (1, 2)}
    world.left_behind(LEDGER, (3, 2, 2), holders)
    world.bookies[2].kill()
    await recover(world)
    assert ended_at(world, 4)
    assert world.metadata(LEDGER).fragments[1:] == (Fragment(4, ("b0", "b1", "b3")),)


async def test_a_change_of_the_ensembles_by_another_process_begins_the_recovery_anew() -> None:
    world = World(2)
    world.left_behind(LEDGER, (1, 1, 1), {0: (0,), 1: (0,)})
    fragments = (Fragment(0, ("b1",)), Fragment(1, ("b0",)))
    world.bookies[1].store(LEDGER, 0, entry_of(LEDGER, 0, -1), KEY)
    sets: list[str] = []

    def interfere(method: str, path: str) -> None:
        if method == "set":
            sets.append(path)
            if len(sets) == 2:
                changed = replace(world.metadata(LEDGER), fragments=fragments)
                world.put_metadata(LEDGER, changed)

    world.coordination.before = interfere
    await recover(world)
    assert ended_at(world, 1)
    assert world.metadata(LEDGER).fragments == fragments


async def test_two_recoverers_agree() -> None:
    world = World(3)
    world.left_behind(LEDGER, (3, 3, 2), {0: ALL, 1: (1, 2), 2: (2,)}, told={2: 0})
    readers = await asyncio.gather(*(recover(world) for _ in range(2)))
    assert readers[0].last_confirmed == readers[1].last_confirmed
    assert ended_at(world, readers[0].last_confirmed)


async def test_two_recoveries_in_one_client_take_turns() -> None:
    world = World(3)
    world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(3), ALL))
    async with world.ledgers() as ledgers:
        readers = await asyncio.gather(*(ledgers.open(LEDGER, recover=True) for _ in range(3)))
        assert [reader.last_confirmed for reader in readers] == [2, 2, 2]
        assert ledgers._recovering == {}


async def test_who_closes_first_decides_where_the_ledger_ends() -> None:
    world = World(3)
    # Entry 1 was never confirmed. We find it, since the bookie that is asked second has it.
    world.left_behind(LEDGER, (3, 3, 2), {0: ALL, 1: (2,)})

    def close_before_us(method: str, path: str) -> None:
        metadata = world.metadata(LEDGER) if method == "set" else None
        if metadata is not None and metadata.state is LedgerState.IN_RECOVERY:
            world.coordination.before = None
            world.put_metadata(LEDGER, metadata.closed(0, 10))
            del path

    world.coordination.before = close_before_us
    reader = await recover(world)
    assert (reader.last_confirmed, reader.length_bytes) == (0, 10)
    assert ended_at(world, 0)


@pytest.mark.parametrize("is_done", [False, True])
async def test_lost_answers_of_zookeeper_do_not_matter(*, is_done: bool) -> None:
    world = World(3)
    world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(3), ALL))
    for _ in range(2):
        world.coordination.lose("set", "/L0005", is_done=is_done)
    await recover(world)
    assert ended_at(world, 2)


async def test_a_recovery_begun_by_another_is_brought_to_its_end() -> None:
    world = World(3)
    world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(3), ALL))
    world.put_metadata(LEDGER, world.metadata(LEDGER).in_recovery())
    await recover(world)
    assert ended_at(world, 2)


async def test_another_password_cannot_recover() -> None:
    world = World(3)
    world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(3), ALL))
    with pytest.raises(WrongPassword):
        await recover(world, LedgerConfig(password=b"another"))


async def test_a_damaged_copy_in_the_tail_is_replaced_from_a_good_one() -> None:
    world = World(3)
    world.left_behind(LEDGER, (3, 3, 2), {0: ALL, 1: ALL}, told={1: -1})
    world.bookies[1].store(LEDGER, 1, entry_of(LEDGER, 1, 0)[:-2] + b"??", KEY)
    await recover(world)
    assert ended_at(world, 1)
    entry = world.bookies[1].entries[LEDGER][1]
    assert decode_entry(entry, 0, len(entry), LEDGER, 1)[3] == payload_of(1)


async def test_a_bookie_that_fails_to_read_proves_nothing() -> None:
    world = World(3)
    world.left_behind(LEDGER, (3, 3, 2), {0: ALL, 1: (0, 2)}, told={0: -1, 1: -1})
    world.bookies[1].refusals[Operation.READ, 1] = ReturnCode.EIO
    await recover(world)
    assert ended_at(world, 1)


def test_the_metadata_of_the_dumb_model_is_what_a_writer_leaves() -> None:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(_left_behind_is_open())


async def _left_behind_is_open() -> None:
    world = World(3)
    world.left_behind(LEDGER, (3, 3, 2), {})
    assert world.metadata(LEDGER) == LedgerMetadata(
        ensemble_size=3, write_quorum=3, ack_quorum=2, fragments=(Fragment(0, ("b0", "b1", "b2")),)
    )
