"""Bookies on simulated hosts.

A bookie whose process ends by an error, or that takes no more entries since its journal failed, is
started again after a while, as a supervisor or an operator would.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from geminga_autorecovery.autorecovery import AutoRecovery
from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_bookie.bookie import Bookie
from geminga_bookie.config import BookieConfig, GarbageConfig
from geminga_bookie.index.index import Index
from geminga_bookie.index.memory_store import MemoryStore
from geminga_ledger import LedgerConfig, Ledgers
from geminga_protocol.records.bookie_info import READ_ONLY_PATH
from geminga_protocol.records.ledger_metadata import INSTANCE_ID_PATH
from geminga_runtime.errors import GemingaError
from geminga_runtime.network import Network
from geminga_scenarios.sizes import (
    AUTO_RECOVERY,
    BOOKIE,
    JOURNALS,
    LEDGER_DIRECTORIES,
    LEDGERS,
    WINDOW_BYTES,
    DrawnSizes,
)
from geminga_simulation.disk import SimulatedDisk
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.host import Host
from geminga_simulation.world import Site, World

BOOKIE_PORT = 3181
RESTART_S = 0.2
SERVES = "serves"
# Without faults each bookie serves after so long.
SERVING_S = 60.0
# A bookie whose journal failed serves reads until somebody looks after its disk.
REPAIR_S = 1.0
# The index is flushed less often than files are synced, and each flush syncs several of its own.
SYNCS_PER_FLUSH = 20
# It is small, and mostly in memory: so many of its reads are reads of the disk.
UNCACHED_SHARE = 0.1
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
# Everything is looked at often and completely, and nobody waits long.
EAGER = AutoRecoveryConfig(
    auditor_periodic_bookie_check_interval_s=20.0,
    auditor_periodic_check_interval_s=5.0,
    auditor_ledger_verification_percentage=100,
    open_ledger_rereplication_grace_s=1.0,
    failed_ledger_grace_s=8.0,
    rereplication_entry_batch_size=20,
    rescan_interval_s=5.0,
    retry_s=0.5,
)


async def _failing(host: Host, bookie: Bookie) -> None:
    """Return some time after the bookie ceased to take entries, or was asked to end."""
    while not (bookie.storage.is_read_only or host.is_stopping):  # noqa: ASYNC110 -- a bookie has no event for it
        await asyncio.sleep(REPAIR_S)


def _sync_index(bookie: Host) -> None:
    """The index lies on the ledger disk: where that fails to sync, so does the index."""
    disk = bookie.device("ledgers")
    probability = min(1.0, disk.conditions.sync_error_probability * SYNCS_PER_FLUSH)
    error_number = disk.error_of("sync", probability)
    if error_number:
        raise OSError(error_number, "the index cannot be flushed")


def _read_index(bookie: Host) -> None:
    """Where the ledger disk cannot be read, the index cannot, unless it has it in memory."""
    disk = bookie.device("ledgers")
    error_number = disk.error_of("read", disk.conditions.read_error_probability * UNCACHED_SHARE)
    if error_number:
        raise OSError(error_number, "the index cannot be read")


def _paths(name: str, count: int) -> tuple[Path, ...]:
    """Directories, each a device of its own: ``journal``, ``journal-1`` and so on."""
    return (Path(name), *(Path(f"{name}-{number}") for number in range(1, count)))


class Storage:
    """``count`` bookies in ``world``, at ``site`` if that is given; ``await open()`` first.

    ``sizes`` are those of this seed, and so is all that they bound from now on, as ``bookie`` says
    else.
    """

    def __init__(
        self,
        world: World,
        count: int,
        site: Site | None = None,
        *,
        bookie: BookieConfig = SMALL_FILES,
    ) -> None:
        self.world = world
        self.place: World | Site = site or world
        self.bookies = [self.place.host(f"bookie-{number}") for number in range(count)]
        self._indexes = {bookie: MemoryStore() for bookie in self.bookies}
        # What each host's process served last.
        self._served: dict[Host, Bookie] = {}
        self.sizes = sizes = DrawnSizes(world)
        journals = sizes.number("journals", 1, JOURNALS)
        ledger_directories = sizes.number("ledger directories", 1, LEDGER_DIRECTORIES)
        self._config = replace(
            sizes.of(bookie, BOOKIE),
            journal_directories=_paths("journal", journals),
            ledger_directories=_paths("ledgers", ledger_directories),
        )
        network = world.network
        network.window_bytes_max = sizes.number("windows", network.window_bytes_max, WINDOW_BYTES)
        # The ids of bookies that never come back.
        self.lost: list[str] = []

    async def open(self) -> None:
        """Write what a cluster has before its first bookie, and start the bookies."""
        async with self.place.host("setup").coordination() as setup:
            await setup.create(INSTANCE_ID_PATH, b"simulated", make_parents=True)
            # Where nobody made it, the first bookie that is read-only does.
            if self.world.loop.stream("setup").random() < 0.5:
                await setup.create(READ_ONLY_PATH, make_parents=True)
        for bookie in self.bookies:
            self._watch_index(bookie)
            bookie.start(self._run_bookie)

    def _watch_index(self, bookie: Host) -> None:
        index = self._indexes[bookie]
        index.on_flush = partial(_sync_index, bookie)
        index.on_read = partial(_read_index, bookie)

    def forget_index(self, bookie: Host) -> None:
        """The bookie's index is gone: what runs next on that host finds an empty one."""
        self._indexes[bookie] = MemoryStore()
        self._watch_index(bookie)

    def indexes(self) -> list[Index]:
        """What each bookie's index says now."""
        return [Index(store) for store in self._indexes.values()]

    def serving(self) -> list[tuple[Host, Bookie]]:
        """The bookies that are open now, and their hosts."""
        return [
            (host, bookie)
            for host, bookie in self._served.items()
            if host.is_running and host.status == SERVES
        ]

    def know(self, ledger_id: int) -> bool:
        """Whether a bookie still has anything of a ledger."""
        return any(index.ledger(ledger_id) is not None for index in self.indexes())

    def lose(self, bookie: Host) -> None:
        """The bookie dies, and nobody ever starts it again."""
        self.lost.append(bookie.name)
        if bookie.is_running:
            bookie.crash(is_silent=True)

    def fill(self, bookie: Host, seconds: float, device: str = "journal") -> None:
        """A disk of the bookie has no room for so long: it takes no entries, and stays readable.
        With its ``ledgers`` full, it cannot compact either."""
        disk = bookie.device(device)
        disk.conditions = replace(disk.conditions, full_probability=1.0)
        self.world.note(f"{disk.name} is full for {seconds:.6f} s")
        self.world.later(seconds, partial(self._empty, disk))

    def _empty(self, disk: SimulatedDisk) -> None:
        disk.conditions = self.world.disk_conditions

    def lie(self) -> None:
        """A planted bug: from now on, syncs of journals return and make nothing safe."""
        for bookie in self.bookies:
            for journal in self.journals(bookie):
                journal.is_lying = True

    def journals(self, bookie: Host) -> list[SimulatedDisk]:
        """The disks of the bookie's journals."""
        return [bookie.device(str(path)) for path in self._config.journals]

    async def check_all_serve(self) -> None:
        """Faults are over: every bookie that is not lost serves soon. One whose process does not
        come up any more takes its copies with it, which the others may hide for long."""
        bookies = [each for each in self.bookies if each.name not in self.lost]
        try:
            async with asyncio.timeout(SERVING_S):
                while any(bookie.status != SERVES for bookie in bookies):  # noqa: ASYNC110 -- hosts
                    await asyncio.sleep(RESTART_S)
        except TimeoutError:
            status = {bookie.name: bookie.status for bookie in bookies}
            raise InvariantViolated(f"without faults, bookies do not serve: {status}") from None

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
        while not host.is_stopping:
            self._indexes[host].crash()  # what the index had not flushed went with the process
            try:
                async with self._bookie(host) as bookie:
                    self._served[host] = bookie
                    host.status = SERVES
                    await _failing(host, bookie)
                    host.status = "takes no more adds"
            except (GemingaError, OSError) as error:
                host.status = f"could not start, or failed: {error!r}"
                await asyncio.sleep(RESTART_S)

    @asynccontextmanager
    async def _bookie(self, host: Host) -> AsyncGenerator[Bookie]:
        async with (
            host.coordination() as session,
            Bookie(
                replace(self._config, bind_address=host.name, bookie_id=host.name),
                journal_disks=[host.disk(str(path)) for path in self._config.journals],
                ledger_disks=[host.disk(str(path)) for path in self._config.ledgers],
                index=self._indexes[host],
                network=host.network,
                coordination=session,
                clock=host.clock,
            ) as bookie,
        ):
            yield bookie

    @asynccontextmanager
    async def ledgers(
        self, host: Host, config: LedgerConfig | None = None, network: Network | None = None
    ) -> AsyncGenerator[Ledgers]:
        """The ledgers, for a process on ``host``, by its ``network`` if no other is given."""
        config = self.sizes.of(config or LedgerConfig(), LEDGERS)
        async with (
            host.coordination() as session,
            Ledgers(session, network or host.network, host.clock, host.random, config) as ledgers,
        ):
            yield ledgers


class RecoveringStorage(Storage):
    """Bookies with auto-recovery in their processes. ``ledgers`` says how patient that is."""

    def __init__(
        self,
        world: World,
        count: int,
        config: AutoRecoveryConfig,
        site: Site | None = None,
        *,
        bookie: BookieConfig = SMALL_FILES,
        ledgers: LedgerConfig | None = None,
    ) -> None:
        super().__init__(world, count, site, bookie=bookie)
        self._ledger_options = ledgers
        self.daemons: list[AutoRecovery] = []
        self._auto_recovery = self.sizes.of(config, AUTO_RECOVERY)

    @property
    def copied_entries(self) -> int:
        """How many copies all daemons of all times have stored."""
        return sum(each.worker_counters.entries_written for each in self.daemons)

    @asynccontextmanager
    async def _bookie(self, host: Host) -> AsyncGenerator[Bookie]:
        async with super()._bookie(host) as bookie, self.recovery(host, bookie.bookie_id):
            yield bookie

    @asynccontextmanager
    async def recovery(self, host: Host, name: str) -> AsyncGenerator[None]:
        """Auto-recovery in a process on ``host``, be it a bookie's or one of its own."""
        async with (
            host.coordination() as session,
            AutoRecovery(
                name,
                coordination=session,
                network=host.network,
                clock=host.clock,
                random=host.random,
                config=self._auto_recovery,
                ledgers=self._ledger_options,
            ) as daemon,
        ):
            self.daemons.append(daemon)
            yield
