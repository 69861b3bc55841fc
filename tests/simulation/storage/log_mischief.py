"""What happens to the owners of a log besides the menu: bookies that they cannot reach for longer
than a change waits, a network that is slow for minutes, records and ledgers that others change or
delete unknown to the owners, entries that are spoilt on all disks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from random import Random

from tests.simulation.storage.log_book import LogBook
from tests.simulation.storage.log_owner import FAILURES, LOG, READER, LogOwner
from tests.simulation.storage.spoiling import spoil

from geminga_broker.managed_ledger.positions import Position
from geminga_protocol.records.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    ledger_path,
)
from geminga_protocol.records.topics.cursor import NO_CURSOR_LEDGER, CursorRecord, cursor_path
from geminga_protocol.records.topics.managed_ledger import ManagedLedgerRecord, managed_ledger_path
from geminga_runtime.coordination import NodeMissing
from geminga_scenarios.storage import Storage
from geminga_simulation.conditions import NetworkConditions
from geminga_simulation.host import Host
from geminga_simulation.world import ZOOKEEPER

# Longer than a change waits for a new ledger, or for cursors.
HELD_S = 75.0
AGAIN_S = 0.01
# Of a network on which a read takes so long, a look at a whole backlog does not come to an end.
SLOW_S = 140.0
SLOW_NETWORK = NetworkConditions(delay_s_min=2.0, delay_s_max=3.0)
# A stranger writes a record so often, for so long.
TOUCHED_EACH_S = 0.000_3
TOUCHED_S = 1.0
# Within so long the log is truncated. An owner that made a ledger hears of it within so long.
TRUNCATED_S_MAX = 5.0
HEARD_S_MAX = 0.008
IDS_TAKEN = 4
# So long is a bookie away that is called by another name.
AWAY_S = 1.0
SPOILT_MAX = 4
# Within so long all that was left open has been taken over, if that can be.
CLOSED_S = 2.0


class LogMischief:
    """Each method does something to the world; those that wait return when it is over."""

    def __init__(
        self, storage: Storage, owners: list[Host], book: LogBook, reopen: LogOwner, chance: Random
    ) -> None:
        self._storage = storage
        self._owners = owners
        self._book = book
        self._reopen = reopen
        self._chance = chance
        self._world = storage.world
        self._zookeeper = storage.world.zookeeper
        self._bookies = [each.name for each in storage.bookies]

    async def nothing(self) -> None:
        """Others are at work."""

    async def cut_power(self) -> None:
        """There is no bookie for longer than a change waits."""
        self._storage.cut_power(HELD_S)
        await asyncio.sleep(HELD_S)

    async def hold(self) -> None:
        """Owners reach no bookie, or not ZooKeeper, or neither, for longer than a change waits."""
        both = [*self._bookies, ZOOKEEPER]
        await self._hold(self._chance.choice((self._bookies, [ZOOKEEPER], both)))

    async def hold_a_truncation(self) -> None:
        """The same, of either, when an owner that truncates has a new ledger: the cursors are to be
        written next."""
        end_s = self._world.loop.now_s + TRUNCATED_S_MAX
        begun = len(self._book.removals)
        before: list[int] | None = None
        while self._world.loop.now_s < end_s:
            if len(self._book.removals) > begun:
                begun, before = len(self._book.removals), self._ledgers()
            elif before is not None and self._ledgers()[-1:] != before[-1:]:
                break
            await asyncio.sleep(TOUCHED_EACH_S)
        await asyncio.sleep(HEARD_S_MAX * self._chance.random())
        await self._hold([*self._bookies, ZOOKEEPER])

    async def _hold(self, away: list[str]) -> None:
        pairs = [(owner.name, each) for owner in self._owners for each in away]
        end_s = self._world.loop.now_s + HELD_S
        self._world.note(f"for {HELD_S} s no owner reaches {', '.join(away)}")
        while self._world.loop.now_s < end_s:
            for owner, each in pairs:  # again: the menu's partitions join them when they end
                if each == ZOOKEEPER:
                    self._zookeeper.isolate(owner)
                else:
                    self._world.network.cut(owner, each)
            await asyncio.sleep(AGAIN_S)
        for pair in pairs:
            self._world.heal(*pair)

    async def slow_down(self) -> None:
        """Everything takes seconds, and nothing fails for it."""
        network = self._world.network
        network.conditions, before = SLOW_NETWORK, network.conditions
        self._world.note(f"the network is slow for {SLOW_S} s")
        await asyncio.sleep(SLOW_S)
        network.conditions = before

    async def touch_a_record(self) -> None:
        """A stranger writes the record of the log, or of a cursor, again and again as it is."""
        path = self._chance.choice((managed_ledger_path(LOG), cursor_path(LOG, READER)))
        self._world.note(f"{path} is written again and again")
        end_s = self._world.loop.now_s + TOUCHED_S
        while self._world.loop.now_s < end_s:
            with suppress(NodeMissing):
                self._zookeeper.put(path, self._zookeeper.tree.get(path)[0])
            await asyncio.sleep(TOUCHED_EACH_S)

    async def take_ledger_ids(self) -> None:
        """A stranger makes ledgers under ids of its own choice, and deletes them at once."""
        newest = max((*self._ledgers(), *self._cursor_ledgers()), default=0)
        ids = range(newest + 1, newest + 1 + IDS_TAKEN)
        taken = dict[int, None]()
        metadata = LedgerMetadata(
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            fragments=(Fragment(0, (self._bookies[0],)),),
            digest_type=DigestType.CRC32C,
        )
        self._world.note(f"ledger ids {ids} are taken")
        end_s = self._world.loop.now_s + TOUCHED_S
        while self._world.loop.now_s < end_s:
            for ledger_id in ids:
                path = ledger_path(ledger_id)
                if ledger_id in taken:
                    self._remove(path)
                    del taken[ledger_id]
                elif self._zookeeper.tree.exists(path) is None:
                    self._zookeeper.put(path, metadata.encode())
                    taken[ledger_id] = None
            await asyncio.sleep(2 * self._chance.random() * TOUCHED_EACH_S)
        for ledger_id in taken:
            self._remove(ledger_path(ledger_id))

    async def rename_a_bookie(self) -> None:
        """An operator writes another bookie into the metadata of a ledger, which is still written
        (``updateledgers`` of BookKeeper's shell); soon the writer needs another one, too."""
        for ledger_id in self._ledgers()[-1:]:
            try:
                value, _ = self._zookeeper.tree.get(ledger_path(ledger_id))
            except NodeMissing:
                return
            metadata = LedgerMetadata.decode(value)
            *before, last = metadata.fragments
            spare = next(each for each in self._bookies if each not in last.ensemble)
            if metadata.state is not LedgerState.OPEN:
                return
            self._book.deleted.add(ledger_id)  # what that bookie has is not found any more
            renamed = replace(last, ensemble=(spare, *last.ensemble[1:]))
            self._world.note(f"{last.ensemble[0]} is {spare} in ledger {ledger_id}")
            self._zookeeper.put(
                ledger_path(ledger_id), replace(metadata, fragments=(*before, renamed)).encode()
            )
            # Where it is not the one that was renamed, the writer wants an ensemble of its own.
            bookie = self._world.host(last.ensemble[-1])
            if bookie.is_running:
                bookie.kill()
                await asyncio.sleep(AWAY_S)
            if not bookie.is_running:
                bookie.restart()

    async def delete_the_last_ledger(self) -> None:
        """An operator takes it for one that is not needed."""
        for ledger_id in self._ledgers()[-1:]:
            self._delete(ledger_id)

    async def delete_a_cursors_ledger(self) -> None:
        """The same, of a ledger that keeps what was acknowledged."""
        for ledger_id in self._cursor_ledgers():
            self._delete(ledger_id)

    async def spoil_what_is_closed(self) -> None:
        """The owners end without a word, another one closes all ledgers and ends in that way, too;
        then the last entries of a ledger are spoilt on all disks."""
        for owner in self._owners:
            owner.kill()
        closer = self._world.host("closer")
        closer.start(self._close_all)
        await asyncio.sleep(CLOSED_S)
        closer.kill()
        for ledger_id in (*self._ledgers()[-2:], *self._cursor_ledgers()):
            with suppress(NodeMissing):
                value, _ = self._zookeeper.tree.get(ledger_path(ledger_id))
                metadata = LedgerMetadata.decode(value)
                if metadata.state is LedgerState.CLOSED:
                    await self._spoil_end(ledger_id, metadata.last_entry)

    async def _close_all(self, closer: Host) -> None:
        with suppress(*FAILURES):
            async with self._reopen.opened(closer):
                closer.kill()

    async def _spoil_end(self, ledger_id: int, last: int) -> None:
        wanted = range(last, max(last - self._chance.randint(1, SPOILT_MAX), -1), -1)
        for entry_id in await spoil(self._storage, ledger_id, wanted):
            self._book.damaged.add(Position(ledger_id, entry_id))

    def _delete(self, ledger_id: int) -> None:
        self._world.note(f"somebody deletes ledger {ledger_id}")
        self._remove(ledger_path(ledger_id))
        self._book.deleted.add(ledger_id)

    def _remove(self, path: str) -> None:
        with suppress(NodeMissing):
            self._zookeeper.remove(path)

    def _ledgers(self) -> list[int]:
        try:
            value, _ = self._zookeeper.tree.get(managed_ledger_path(LOG))
        except NodeMissing:
            return []
        return [each.ledger_id for each in ManagedLedgerRecord.decode(value).ledgers]

    def _cursor_ledgers(self) -> Iterable[int]:
        for name in ("keeper", READER):
            with suppress(NodeMissing):
                value, _ = self._zookeeper.tree.get(cursor_path(LOG, name))
                ledger_id = CursorRecord.decode(value).cursor_ledger_id
                if ledger_id != NO_CURSOR_LEDGER:
                    yield ledger_id
