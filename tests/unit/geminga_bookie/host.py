"""A machine for one bookie after the other: disks, index, ZooKeeper and network that outlive it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from ssl import SSLContext

from tests.unit.geminga_bookie.fakes import MemoryNetwork, bookie_session
from tests.unit.geminga_bookie.memory_disk import MemoryDisk

from geminga_bookie.bookie import Bookie
from geminga_bookie.config import BookieConfig
from geminga_bookie.index.memory_store import MemoryStore
from geminga_runtime.network import Network
from geminga_server.authorization import Authorize, allow_all
from geminga_simulation.event_loop.clock import SimulatedClock

# Its directories are "journal" and "ledgers".
CONFIG = BookieConfig(bookie_id="bookie-1", port=3181, data_directory=Path())


class Host:
    """Make bookies with ``bookie()``; between two of them, ``kill`` or ``cut_power``."""

    def __init__(self, config: BookieConfig = CONFIG, **changes: object) -> None:
        self.config = replace(config, **changes)  # type: ignore[arg-type]  # names are checked
        self.journal_disks = [MemoryDisk() for _ in self.config.journals]
        self.ledger_disks = [MemoryDisk() for _ in self.config.ledgers]
        self.store = MemoryStore()
        self.coordination = bookie_session()
        self.network = MemoryNetwork()

    def bookie(
        self,
        authorize: Authorize = allow_all,
        network: Network | None = None,
        tls: SSLContext | None = None,
    ) -> Bookie:
        """The next bookie, not opened yet; its network is in memory unless one is given."""
        return Bookie(
            self.config,
            journal_disks=self.journal_disks,
            ledger_disks=self.ledger_disks,
            index=self.store,
            network=network or self.network,
            coordination=self.coordination,
            clock=SimulatedClock(),
            authorize=authorize,
            tls=tls,
        )

    @property
    def journal_disk(self) -> MemoryDisk:
        """The first journal's disk."""
        return self.journal_disks[0]

    @journal_disk.setter
    def journal_disk(self, disk: MemoryDisk) -> None:
        self.journal_disks[0] = disk

    @property
    def ledger_disk(self) -> MemoryDisk:
        """The disk of the first ledger directory."""
        return self.ledger_disks[0]

    @ledger_disk.setter
    def ledger_disk(self, disk: MemoryDisk) -> None:
        self.ledger_disks[0] = disk

    def kill(self) -> None:
        """The process dies; what it wrote stays, synced or not. ZooKeeper has not noticed yet."""
        self._crash_disks(1 << 40)
        self._restart()

    def cut_power(self, *, unsynced_bytes: int = 0) -> None:
        """The machine loses power; so many bytes of what was not synced are on the disks."""
        self._crash_disks(unsynced_bytes)
        self._restart()

    def _crash_disks(self, unsynced_bytes: int) -> None:
        for disks in (self.journal_disks, self.ledger_disks):
            disks[:] = [disk.after_crash(unsynced_bytes=unsynced_bytes) for disk in disks]

    def _restart(self) -> None:
        # Copies: what still runs of the dead bookie must not change what the next one finds.
        pairs = list(self.store.flushed())
        self.store = MemoryStore()
        self.store.write(pairs)
        self.coordination.client.die()
        self.coordination = self.coordination.another()
        self.network = MemoryNetwork()
