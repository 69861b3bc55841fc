"""Administrators of a cluster's auto-recovery, two of them at once, who know nothing of each other.

They switch it off and on, change the grace of lost bookies, take ledgers off bookies by the tools,
delete ledgers, ask for bookies that there never were. Each command may meet with ZooKeeper's errors
and is then left as it is. Other programs of the same ZooKeeper do their part: a candidate of
Pulsar's election takes the auditor's node, a worker holds a lock for too long, an operator deletes
a vote, a newer version writes a ledger's record, a script marks one ledger over and over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tests.simulation.storage.history import History

from geminga_autorecovery.errors import (
    BookieStillThere,
    BookieUnknown,
    DecommissionStalled,
    RecoveryDisabled,
)
from geminga_autorecovery.removal.bookie_recovery import recover
from geminga_autorecovery.removal.decommission import Progress, decommission
from geminga_autorecovery.removal.known_bookies import cookie_names, require_known
from geminga_autorecovery.replication.repair import LedgerRepair, RepairOptions
from geminga_autorecovery.zookeeper import controls
from geminga_autorecovery.zookeeper.ledger_locks import LedgerLocks
from geminga_autorecovery.zookeeper.underreplication_marks import UnderreplicationMarks
from geminga_ledger import LedgerConfig, LedgerError
from geminga_ledger.metadata.store import LedgerStore
from geminga_protocol.records.ledgers.ledger_metadata import ledger_path
from geminga_protocol.records.ledgers.underreplication import (
    LEADER_PATH,
    LOST_BOOKIE_DELAY_PATH,
    VOTES_PATH,
    encode_leader,
    encode_lock,
)
from geminga_runtime.coordination import (
    Coordination,
    CoordinationError,
    NodeExists,
    NodeMissing,
    VersionMismatch,
)
from geminga_scenarios.cluster import IMPATIENT
from geminga_scenarios.storage import EAGER, Storage
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.host import Host

PAUSE_S_MAX = 0.15
COMMAND_S_MAX = 6.0
LOOK_S = 0.05
MARKED_S_MAX = 4.0
BUSY_WAIT_S = (0.0, 3.0)
STALL_S = (1.5, 900.0)
# How long a tool tries to close a ledger.
RECOVERY_S = (1.0, 0.01)
# More at once than a mark is tried again: of those who come last each loses as often.
MARKS_AT_ONCE = 20
HELD_S_MAX = 3.0
LEADING_S_MAX = 0.3
# So soon after the node is gone a candidate of Pulsar's takes it, as ours would.
REACTION_S_MAX = 0.006
STRANGE_IDS_FROM = 1_000_000_000
STRANGE_RECORD = b"BookieMetadataFormatVersion\t99\nfrom the future"

Command = Callable[[Host, Coordination], Awaitable[None]]


@dataclass(slots=True)
class Administration:
    """What all administrators of a storage do, and what came of it: ``done`` counts the commands
    that ended well. ``doomed`` are ledgers whose deletion was begun, or must be."""

    storage: Storage
    history: History
    done: Counter[str] = field(default_factory=Counter[str])
    doomed: list[int] = field(default_factory=list[int])

    async def run(self, host: Host) -> None:
        """The main of an administrator's process."""
        commands: tuple[Command, ...] = (
            self.disable,
            self.enable,
            self.change_grace,
            self.forget_grace,
            self.ask_for_bookies,
            self.decommission,
            # These meet with what workers do: oftener than the others.
            *(self.recover,) * 3,
            *(self.delete,) * 2,
            self.delete_a_vote,
            self.lead,
            self.hold_a_lock,
            self.write_a_strange_record,
            self.mark_over_and_over,
        )
        while True:
            await asyncio.sleep(PAUSE_S_MAX * host.random.random())
            command = host.random.choice(commands)
            with suppress(CoordinationError, TimeoutError):
                async with asyncio.timeout(COMMAND_S_MAX), host.coordination() as session:
                    await command(host, session)
                    self.done[command.__name__] += 1

    async def disable(self, host: Host, session: Coordination) -> None:
        """Not for long: the other one may have enabled it meanwhile."""
        await controls.disable(session)
        await asyncio.sleep(host.random.random())
        await self.enable(host, session)

    async def enable(self, _: Host, session: Coordination) -> None:
        await controls.enable(session)

    async def change_grace(self, host: Host, session: Coordination) -> None:
        await controls.set_lost_bookie_delay(session, host.random.randrange(2))

    async def forget_grace(self, _: Host, session: Coordination) -> None:
        """Remove the setting by hand: the configured grace holds from the next auditor on."""
        with suppress(NodeMissing):
            await session.delete(LOST_BOOKIE_DELAY_PATH)

    async def ask_for_bookies(self, host: Host, session: Coordination) -> None:
        """One that there is is known, a mistyped one is not."""
        store = _store_of(host, session)
        for bookie_id in sorted(await cookie_names(session))[:1]:
            await require_known(bookie_id, session, store)
        try:
            await require_known("bookie-O", session, store)
        except BookieUnknown:
            return
        raise InvariantViolated("a bookie is known that there never was")

    async def decommission(self, host: Host, session: Coordination) -> None:
        """Decommission a bookie that is gone, if there is any; break off where it takes long."""
        gone = [each for each in self.storage.bookies if not each.is_running]
        bookie = host.random.choice(gone or self.storage.bookies)
        with suppress(BookieStillThere, RecoveryDisabled, DecommissionStalled):
            await decommission(
                bookie.name,
                coordination=session,
                store=_store_of(host, session),
                clock=host.clock,
                on_progress=_check_progress,
                deletes_cookie=False,  # it comes back
                stall_s=host.random.choice(STALL_S),
            )

    async def recover(self, host: Host, session: Coordination) -> None:
        """Recover ledgers from a bookie that is gone, or from any; what stays there is reported."""
        gone = [each for each in self.storage.bookies if not each.is_running]
        if host.random.random() < 0.5:
            gone = []
        bookie = host.random.choice(gone or self.storage.bookies)
        told: list[int] = []
        async with _repair_of(host, session) as repair:
            progress = await recover(
                bookie.name,
                coordination=session,
                repair=repair,
                clock=host.clock,
                random=host.random,
                on_progress=_check_progress,
                on_trouble=lambda ledger_id, _: told.append(ledger_id),
                busy_wait_s=host.random.choice(BUSY_WAIT_S),
            )
        if progress.done + progress.failed != progress.ledgers or progress.failed > len(told):
            raise InvariantViolated(f"{progress}, and of {told} it is told why")

    async def delete(self, host: Host, session: Coordination) -> None:
        """A closed ledger, on whichever bookies."""
        ended = [each for each in self.history.ledgers if each in self.history.ended]
        if ended:
            ledger_id = host.random.choice(ended)
            self.history.ledgers.remove(ledger_id)
            self.doomed.append(ledger_id)
            await _store_of(host, session).delete(ledger_id)

    async def delete_a_vote(self, host: Host, session: Coordination) -> None:
        """By hand, to have another auditor elected."""
        names = sorted(await session.children(VOTES_PATH))
        if names:
            await session.delete(f"{VOTES_PATH}/{host.random.choice(names)}")

    async def lead(self, host: Host, session: Coordination) -> None:
        """A bookie of Pulsar's election leads now and then, as soon as no other does."""
        while True:
            gone = asyncio.Event()
            if await session.exists(LEADER_PATH, on_change=gone.set) is not None:
                await gone.wait()
            await asyncio.sleep(REACTION_S_MAX * host.random.random())
            with suppress(NodeExists):
                value = encode_leader("java")
                await session.create(LEADER_PATH, value, ephemeral=True, make_parents=True)
                await asyncio.sleep(LEADING_S_MAX * host.random.random())
                await session.delete(LEADER_PATH)

    async def hold_a_lock(self, host: Host, session: Coordination) -> None:
        """A worker does not come to an end with a ledger."""
        locks = LedgerLocks(session, encode_lock("slow"))
        for ledger_id in self.history.ledgers:
            if host.random.random() < 0.5:
                await locks.take(ledger_id)
        await asyncio.sleep(HELD_S_MAX * host.random.random())

    async def write_a_strange_record(self, host: Host, session: Coordination) -> None:
        """A newer version makes a ledger, and it is marked."""
        ledger_id = STRANGE_IDS_FROM + host.random.randrange(10_000)
        self.doomed.append(ledger_id)
        await session.create(ledger_path(ledger_id), STRANGE_RECORD, make_parents=True)
        await UnderreplicationMarks(session, host.clock).mark(
            ledger_id, [self.storage.bookies[0].name]
        )

    async def mark_over_and_over(self, host: Host, session: Coordination) -> None:
        """No mark is lost: each is there in the end, or its marker is told that it is not."""
        if not self.history.ledgers:
            return
        ledger_id = host.random.choice(self.history.ledgers)
        marks = UnderreplicationMarks(session, host.clock)
        name = self.storage.bookies[0].name
        results = await asyncio.gather(
            *(marks.mark(ledger_id, [name]) for _ in range(MARKS_AT_ONCE)), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, VersionMismatch):
                raise result

    async def clean_up(self, host: Host) -> None:
        """What was begun is ended, and auto-recovery goes on."""
        while True:
            with suppress(CoordinationError):
                async with host.coordination() as session:
                    await controls.enable(session)
                    for ledger_id in self.doomed:
                        await _store_of(host, session).delete(ledger_id)
                    return
            await asyncio.sleep(LOOK_S)


async def repair_unlocked(
    host: Host, history: History, lost: str, *, waits_for_marks: bool = False
) -> None:
    """Another tool repairs ledgers and takes no locks, as BookKeeper's does; for it one bookie more
    is ``lost``, or none. ``waits_for_marks``: it begins when the workers do."""
    async with host.coordination() as session, _repair_of(host, session) as repair:
        marks = UnderreplicationMarks(session, host.clock)
        with suppress(TimeoutError):
            async with asyncio.timeout(MARKED_S_MAX if waits_for_marks else 0):
                while not await marks.ledgers():  # noqa: ASYNC110 -- nothing tells
                    await asyncio.sleep(LOOK_S)

        async def mend(ledger_id: int, terms: RepairOptions) -> None:
            with suppress(LedgerError, CoordinationError):
                await repair.repair(ledger_id, terms)

        terms = RepairOptions(lost=frozenset({lost} if lost else ()))
        await asyncio.gather(*(mend(each, terms) for each in history.ledgers))


def _check_progress(progress: Progress) -> None:
    parts = progress.done + progress.failed + progress.busy
    if not 0 <= parts <= progress.ledgers:
        raise InvariantViolated(f"progress makes no sense: {progress}")


def _store_of(host: Host, session: Coordination) -> LedgerStore:
    config = LedgerConfig()
    return LedgerStore(session, clock=host.clock, random=host.random, config=config)


def _repair_of(host: Host, session: Coordination) -> LedgerRepair:
    recovery_s = host.random.choice(RECOVERY_S)
    config = replace(IMPATIENT, metadata_deadline_s=1.0, recovery_deadline_s=recovery_s)
    return LedgerRepair(session, host.network, host.clock, host.random, EAGER, config)
