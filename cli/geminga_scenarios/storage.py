"""Bookies on simulated hosts.

A bookie whose process ends with an error is started again after a while, as a supervisor would do.
So is one whose journal failed, which then refuses entries: an operator would replace the disk.
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
from geminga_protocol.records.bookies.bookie_info import READ_ONLY_PATH
from geminga_protocol.records.ledgers.ledger_metadata import INSTANCE_ID_PATH
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
# How long a process that failed stays down.
RESTART_S = 0.2
# The status of a host whose bookie is open.
SERVES = "serves"
# By then every bookie serves, if there are no faults.
SERVING_S = 60.0
# How often it is checked whether a bookie's journal has failed. Until then the bookie serves reads.
# In virtual seconds. Reads are served from such a bookie meanwhile, which stories want to see too.
REPAIR_S = 1.0
# The index is flushed less often than files are synced, and each flush syncs several of its own.
# RocksDB's index is a part of memory here: its faults are derived from those of the disk beneath
# it.
SYNCS_PER_FLUSH = 20
# The index is small and mostly in memory: this share of its reads goes to the disk.
UNCACHED_SHARE = 0.1
KIB = 1024
# Small files and short intervals: a short run rolls files over, checkpoints, and collects garbage.
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
# Auto-recovery checks everything often and completely, and retries soon.
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


def _paths(name: str, count: int) -> tuple[Path, ...]:
    """Directories, each a device of its own: ``journal``, ``journal-1`` and so on."""
    return (Path(name), *(Path(f"{name}-{number}") for number in range(1, count)))


class Storage:
    """``count`` bookies in ``world``, or at ``site``; ``open`` starts them.

    Their settings are those of ``bookie``, with the sizes that the seed draws (``sizes``).
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
        # The index of each bookie, which survives its processes as a file would. What a process has
        # not flushed is lost with it (``MemoryStore.crash``, in ``_run_bookie``).
        self._indexes = {bookie: MemoryStore() for bookie in self.bookies}
        # The last bookie that was open on each host; the host may have crashed since. ``serving``
        # leaves out those whose host does not run, or does not serve at the moment.
        self._served: dict[Host, Bookie] = {}
        self.sizes = sizes = DrawnSizes(world)
        journals = sizes.number("journals", 1, JOURNALS)
        ledger_directories = sizes.number("ledger directories", 1, LEDGER_DIRECTORIES)
        self._config = replace(
            sizes.of(bookie, BOOKIE),
            journal_directories=_paths("journal", journals),
            ledger_directories=_paths("ledgers", ledger_directories),
        )
        # Drawn here because every story has bookies, whatever else it has.
        network = world.network
        network.window_bytes_max = sizes.number("windows", network.window_bytes_max, WINDOW_BYTES)
        # The ids of bookies that are never started again.
        self.lost: list[str] = []

    async def open(self) -> None:
        """Write what ZooKeeper holds before a cluster's first bookie, and start the bookies."""
        async with self.place.host("setup").coordination() as setup:
            await setup.create(INSTANCE_ID_PATH, b"simulated", make_parents=True)
            # Without this node, the first bookie that becomes read-only creates it: both happen.
            if self.world.loop.stream("setup").random() < 0.5:
                await setup.create(READ_ONLY_PATH, make_parents=True)
        # Only now: a bookie refuses to start in a cluster that has no instance id.
        for bookie in self.bookies:
            self._attach_index(bookie)
            bookie.start(self._run_bookie)

    def _attach_index(self, bookie: Host) -> None:
        """Let the index fail where the disk fails that it lies on, that of the ledgers."""

        def flush() -> None:
            # Asked at each flush: conditions change during a run.
            disk = bookie.device("ledgers")
            probability = min(1.0, disk.conditions.sync_error_probability * SYNCS_PER_FLUSH)
            error_number = disk.error_of(probability)
            if error_number:
                raise OSError(error_number, "the index cannot be flushed")

        def read() -> None:
            disk = bookie.device("ledgers")
            probability = disk.conditions.read_error_probability * UNCACHED_SHARE
            error_number = disk.error_of(probability)
            if error_number:
                raise OSError(error_number, "the index cannot be read")

        index = self._indexes[bookie]
        index.on_flush, index.on_read = flush, read

    def forget_index(self, bookie: Host) -> None:
        """Lose the bookie's index: the next process on that host finds an empty one."""
        # A process that runs keeps the old one: callers end it first.
        self._indexes[bookie] = MemoryStore()
        self._attach_index(bookie)

    def indexes(self) -> list[Index]:
        """Every bookie's index, to be read at any time."""
        return [Index(store) for store in self._indexes.values()]

    def serving(self) -> list[tuple[Host, Bookie]]:
        """The bookies that serve now, with their hosts."""
        return [
            (host, bookie)
            for host, bookie in self._served.items()
            if host.is_running and host.status == SERVES
        ]

    def lose(self, bookie: Host) -> None:
        """Crash the bookie, and never start it again."""
        # First: what starts bookies again looks here.
        self.lost.append(bookie.name)
        if bookie.is_running:
            bookie.crash(is_silent=True)

    def fill(self, bookie: Host, seconds: float, device: str = "journal") -> None:
        """Fill a disk of the bookie for so many seconds.

        The bookie refuses entries and stays readable; with its ``ledgers`` full, it cannot compact
        either.
        """
        disk = bookie.device(device)
        # No fault of the menu strikes this disk meanwhile; the end of all faults ends this, too.
        disk.conditions = replace(disk.conditions, full_probability=1.0)
        self.world.note(f"{disk.name} is full for {seconds:.6f} s")

        def end() -> None:
            disk.conditions = self.world.disk_conditions

        self.world.later(seconds, end)

    def lie(self) -> None:
        """Plant a bug: from now on, a sync of a journal returns and makes nothing durable."""
        for bookie in self.bookies:
            for journal in self.journals(bookie):
                journal.is_lying = True

    def journals(self, bookie: Host) -> list[SimulatedDisk]:
        """The disks of the bookie's journals."""
        return [bookie.device(str(path)) for path in self._config.journals]

    async def check_all_serve(self) -> None:
        """Once faults are over: wait until every bookie that is not lost serves.

        A bookie that never comes up again takes its copies with it. Those of other bookies may hide
        that for long, so stories check it. Raises ``InvariantViolated``.
        """
        bookies = [each for each in self.bookies if each.name not in self.lost]
        try:
            async with asyncio.timeout(SERVING_S):
                while any(bookie.status != SERVES for bookie in bookies):  # noqa: ASYNC110 -- hosts
                    await asyncio.sleep(RESTART_S)
        except TimeoutError:
            status = {bookie.name: bookie.status for bookie in bookies}
            raise InvariantViolated(f"without faults, bookies do not serve: {status}") from None

    def cut_power(self, seconds: float) -> None:
        """Crash every bookie at once, and start them again after so many seconds."""

        def start(bookie: Host) -> None:
            # A fault may have started it in the meantime.
            if not bookie.is_running and bookie.name not in self.lost:
                bookie.restart()

        # One after the other at one instant: no process runs in between. So no bookie confirms what
        # the others have lost already.
        for bookie in self.bookies:
            if bookie.is_running:
                bookie.crash()
                self.world.later(seconds, partial(start, bookie))

    async def _run_bookie(self, host: Host) -> None:
        while not host.is_stopping:
            # At the beginning of each process, as a process that is killed runs no line at its end.
            self._indexes[host].crash()  # what the index had not flushed went with the process
            try:
                async with self._bookie(host) as bookie:
                    self._served[host] = bookie
                    host.status = SERVES
                    # A bookie turns read-only by itself once its journal has failed.
                    while not (bookie.storage.is_read_only or host.is_stopping):  # noqa: ASYNC110 -- there is no event for it
                        await asyncio.sleep(REPAIR_S)
                    host.status = "takes no more adds"
            # Any other error is a bug of ours: it ends the process, and the story with it.
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
        """BookKeeper's client for a process on ``host``; it uses the host's network by default."""
        # A host that opens ledgers again gets the same sizes.
        config = self.sizes.of(config or LedgerConfig(), LEDGERS)
        async with (
            host.coordination() as session,
            Ledgers(session, network or host.network, host.clock, host.random, config) as ledgers,
        ):
            yield ledgers


class RecoveringStorage(Storage):
    """Bookies with auto-recovery in their processes.

    ``ledgers`` are the timeouts of auto-recovery's own requests to bookies.
    """

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
        # The auto-recovery of every process there was, so that counts survive crashes.
        self.daemons: list[AutoRecovery] = []
        self._auto_recovery = self.sizes.of(config, AUTO_RECOVERY)

    @property
    def copied_entries(self) -> int:
        """How many copies of entries auto-recovery has stored in the whole run."""
        return sum(each.worker_counters.entries_written for each in self.daemons)

    @asynccontextmanager
    async def _bookie(self, host: Host) -> AsyncGenerator[Bookie]:
        async with super()._bookie(host) as bookie, self.recovery(host, bookie.bookie_id):
            yield bookie

    @asynccontextmanager
    async def recovery(self, host: Host, name: str) -> AsyncGenerator[None]:
        """Auto-recovery in a process on ``host``, a bookie's or one of its own."""
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
