"""Bookies on simulated hosts, and whoever owns the ledgers on them, one after the other.

``History`` is what was told to those who write and read: the only thing the checks go by. A bookie
whose process ends by an error, or that takes no more entries since its journal failed, is started
again after a while, as a supervisor or an operator would.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from geminga_bookie.bookie import Bookie
from geminga_bookie.config import BookieConfig, GarbageConfig
from geminga_bookie.storage.index import Index
from geminga_bookie.storage.memory_store import MemoryStore
from geminga_ledger import LedgerConfig, Ledgers
from geminga_protocol.records.bookie_info import READ_ONLY_PATH
from geminga_protocol.records.ledger_metadata import INSTANCE_ID_PATH, LedgerMetadata
from geminga_runtime.errors import GemingaError
from geminga_simulation.checkers import NeverBackwards, OneTruth, check_prefix
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.host import Host
from geminga_simulation.world import Site, World

BOOKIE_PORT = 3181
RESTART_S = 0.2
# A bookie whose journal failed serves reads until somebody looks after its disk.
REPAIR_S = 1.0
# The index is flushed less often than files are synced, and each flush syncs several of its own.
SYNCS_PER_FLUSH = 20
KIB = 1024
# Small files, so that a short run rolls over, trims and checkpoints.
SMALL_FILES = BookieConfig(
    port=BOOKIE_PORT,
    journal_file_bytes_max=32 * KIB,
    entry_log_bytes_max=64 * KIB,
    write_cache_bytes_max=128 * KIB,
    checkpoint_interval_s=0.5,
    block_bytes=4 * KIB,
    garbage=GarbageConfig(
        gc_interval_s=0.3,
        gc_over_replicated_interval_s=1.0,
        minor_compaction_interval_s=0.6,
        minor_compaction_threshold=0.5,
        major_compaction_interval_s=1.5,
        major_compaction_threshold=0.9,
    ),
)


@dataclass(slots=True)
class History:
    """What writers pushed and were told, what readers saw, where ledgers ended."""

    ledgers: list[int] = field(default_factory=list[int])
    pushed: dict[int, list[bytes]] = field(default_factory=dict[int, list[bytes]])
    confirmed: dict[int, int] = field(default_factory=dict[int, int])
    seen: dict[int, int] = field(default_factory=dict[int, int])
    ended: dict[int, int] = field(default_factory=dict[int, int])
    # Called when a ledger has been closed: a good moment for mischief.
    on_end: Callable[[], None] = lambda: None
    growth: NeverBackwards = field(default_factory=NeverBackwards)
    truth: OneTruth = field(default_factory=OneTruth)
    # How often a ledger's ensemble changed.
    changes: int = 0

    def begin(self, ledger_id: int) -> None:
        """A ledger was created."""
        self.ledgers.append(ledger_id)
        self.pushed[ledger_id] = []
        self.confirmed[ledger_id] = self.seen[ledger_id] = -1

    def confirm(self, ledger_id: int, last_confirmed: int) -> None:
        """The writer was told that everything up to here is stored for good."""
        self.growth.observe(f"confirmed in ledger {ledger_id}", last_confirmed)
        self.confirmed[ledger_id] = last_confirmed
        self._check_end(ledger_id)

    def see(self, reader: Hashable, ledger_id: int, last_confirmed: int) -> None:
        """A reader was told that it may read up to here."""
        self.growth.observe(reader, last_confirmed)
        self.seen[ledger_id] = max(self.seen[ledger_id], last_confirmed)
        self._check_end(ledger_id)

    def end(self, ledger_id: int, last_entry: int) -> None:
        """The ledger is closed and ends here, for everybody and for ever."""
        self.truth.observe(f"the end of ledger {ledger_id}", last_entry)
        self.ended[ledger_id] = last_entry
        self._check_end(ledger_id)
        self.on_end()

    def read(self, ledger_id: int, first: int, payloads: list[bytes]) -> None:
        """Entries were read."""
        check_prefix(self.pushed[ledger_id][first:], payloads)

    def check_metadata(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """A closed ledger's record fits what is in it."""
        length = sum(map(len, self.pushed[ledger_id][: metadata.last_entry + 1]))
        firsts = [each.first_entry for each in metadata.fragments]
        if (
            metadata.length != length
            or firsts != sorted(set(firsts))
            or firsts[0] != 0
            or any(len(set(each.ensemble)) != metadata.ensemble_size for each in metadata.fragments)
        ):
            raise InvariantViolated(f"ledger {ledger_id} of {length} bytes has {metadata}")

    def _check_end(self, ledger_id: int) -> None:
        last_entry = self.ended.get(ledger_id)
        if last_entry is None:
            return
        for who, entry in (("writer", self.confirmed), ("reader", self.seen)):
            if entry[ledger_id] > last_entry:
                raise InvariantViolated(
                    f"ledger {ledger_id} ends at {last_entry}; "
                    f"a {who} was told of {entry[ledger_id]}"
                )


async def _failing(bookie: Bookie) -> None:
    """Return some time after the bookie ceased to take entries."""
    while not bookie.storage.is_read_only:  # noqa: ASYNC110 -- a bookie has no event for it
        await asyncio.sleep(REPAIR_S)


def _sync_index(bookie: Host) -> None:
    """The index lies on the ledger disk: where that fails to sync, so does the index."""
    disk = bookie.device("ledgers")
    probability = min(1.0, disk.conditions.sync_error_probability * SYNCS_PER_FLUSH)
    error_number = disk.error_of("sync", probability)
    if error_number:
        raise OSError(error_number, "the index cannot be flushed")


class Storage:
    """``count`` bookies in ``world``, at ``site`` if that is given; ``await open()`` first."""

    def __init__(self, world: World, count: int, site: Site | None = None) -> None:
        self.world = world
        self.place: World | Site = site or world
        self.bookies = [self.place.host(f"bookie-{number}") for number in range(count)]
        self._indexes = {bookie: MemoryStore() for bookie in self.bookies}
        # The ids of bookies that never come back.
        self.lost: list[str] = []

    async def open(self) -> None:
        """Write what a cluster has before its first bookie, and start the bookies."""
        async with self.place.host("setup").coordination() as setup:
            await setup.create(INSTANCE_ID_PATH, b"simulated", make_parents=True)
            await setup.create(READ_ONLY_PATH, make_parents=True)
        for bookie in self.bookies:
            self._indexes[bookie].on_flush = partial(_sync_index, bookie)
            bookie.start(self._run_bookie)

    def indexes(self) -> list[Index]:
        """What each bookie's index says now."""
        return [Index(store) for store in self._indexes.values()]

    def know(self, ledger_id: int) -> bool:
        """Whether a bookie still has anything of a ledger."""
        return any(index.ledger(ledger_id) is not None for index in self.indexes())

    def lose(self, bookie: Host) -> None:
        """The bookie dies, and nobody ever starts it again."""
        self.lost.append(bookie.name)
        if bookie.is_running:
            bookie.crash(is_silent=True)

    def fill(self, bookie: Host, seconds: float) -> None:
        """The bookie's journal has no room for so long: it takes no entries, and stays readable."""
        disk = bookie.device("journal")
        disk.conditions = replace(disk.conditions, full_probability=1.0)
        self.world.note(f"the journal of {bookie.name} is full for {seconds:.6f} s")
        self.world.later(seconds, partial(self._empty, bookie))

    def _empty(self, bookie: Host) -> None:
        bookie.device("journal").conditions = self.world.disk_conditions

    def lie(self) -> None:
        """A planted bug: from now on, syncs of journals return and make nothing safe."""
        for bookie in self.bookies:
            bookie.device("journal").is_lying = True

    def cut_power(self, seconds: float) -> None:
        """Every bookie crashes at once, and is back in so many seconds."""
        for bookie in self.bookies:
            if bookie.is_running:
                bookie.crash()
                self.world.later(seconds, partial(self._bring_up, bookie))

    def _bring_up(self, bookie: Host) -> None:
        if not bookie.is_running and bookie.name not in self.lost:
            bookie.restart()

    async def _run_bookie(self, host: Host) -> None:
        while True:
            self._indexes[host].crash()  # what the index had not flushed went with the process
            try:
                async with self._bookie(host) as bookie:
                    await _failing(bookie)
            except (GemingaError, OSError):
                await asyncio.sleep(RESTART_S)

    @asynccontextmanager
    async def _bookie(self, host: Host) -> AsyncGenerator[Bookie]:
        async with (
            host.coordination() as session,
            Bookie(
                replace(SMALL_FILES, bind_address=host.name, bookie_id=host.name),
                journal_disks=[host.disk("journal")],
                ledger_disks=[host.disk("ledgers")],
                index=self._indexes[host],
                network=host.network,
                coordination=session,
                clock=host.clock,
            ) as bookie,
        ):
            yield bookie

    @asynccontextmanager
    async def ledgers(
        self, host: Host, config: LedgerConfig | None = None
    ) -> AsyncGenerator[Ledgers]:
        """The ledgers, for a process on ``host``."""
        async with (
            host.coordination() as session,
            Ledgers(session, host.network, host.clock, host.random, config) as ledgers,
        ):
            yield ledgers
