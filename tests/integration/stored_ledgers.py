"""What the bookies of a running cluster have stored, without asking the broker: by BookKeeper's
records in ZooKeeper, and by reads from each single bookie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from tests.integration.processes.bookie_process import zookeeper_of
from tests.integration.processes.cluster_process import StandaloneProcess

from geminga_autorecovery.replication.copies import Copies
from geminga_autorecovery.zookeeper.live_bookies import LiveBookies, read_live_bookies
from geminga_autorecovery.zookeeper.underreplication_marks import UnderreplicationMarks
from geminga_ledger import LedgerConfig, LedgerError, Ledgers, LedgerWriter
from geminga_ledger.connections.links import BookieLinks
from geminga_ledger.membership.registry import BookieRegistry
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata
from geminga_runtime.clock import SystemClock
from geminga_runtime.coordination import Coordination
from geminga_runtime.network import AsyncioNetwork
from geminga_server.zookeeper.session import ZooKeeper

ResultT = TypeVar("ResultT")
ANSWER_TIMEOUT_S = 5.0
# How many requests to the bookies are in flight at a time.
READS_MAX = 500

Holders = list[frozenset[str]]
"""The bookies that have a copy, by entry id."""


class _Deaf:
    """A listener that ignores what it is told: tests wait for a whole ledger instead."""

    def entries_confirmed(self, last_confirmed: int) -> None:
        pass

    def writer_failed(self, error: LedgerError) -> None:
        pass


@dataclass(frozen=True, slots=True)
class StoredLedgers:
    """The ledgers of a cluster; to be used inside ``stored_ledgers``."""

    ledgers: Ledgers
    _coordination: Coordination
    _registry: BookieRegistry
    _copies: Copies
    _marks: UnderreplicationMarks

    async def bookies(self) -> frozenset[str]:
        """The registered bookies."""
        return (await read_live_bookies(self._coordination.children)).all

    async def live(self) -> LiveBookies:
        """The writable bookies and the read-only ones."""
        return await read_live_bookies(self._coordination.children)

    async def address(self, bookie_id: str) -> str:
        """The address at which a bookie listens, ``host:port``."""
        host, port = await self._registry.resolve(bookie_id)
        return f"{host}:{port}"

    async def marked(self) -> list[int]:
        """The ledgers that are marked for auto-recovery."""
        return await self._marks.ledgers()

    async def write(
        self,
        entries: Sequence[bytes],
        sizes: tuple[int, int, int],
        ensemble: tuple[str, ...] | None = None,
    ) -> int:
        """Write and close a ledger with these entries; returns its id. ``sizes`` are E, Qw, Qa."""
        ensemble_size, write_quorum, ack_quorum = sizes
        writer: LedgerWriter = await self.ledgers.create(
            listener=_Deaf(),
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            ensemble=ensemble,
        )
        writer.append_all(entries)
        await writer.close()
        return writer.ledger_id

    async def holders(self, ledger_id: int, count: int) -> Holders:
        """Which of all bookies have each of the first ``count`` entries."""
        metadata = await self.ledgers.metadata(ledger_id)
        bookies = sorted(await self.bookies())
        wanted = [(bookie, entry_id) for entry_id in range(count) for bookie in bookies]
        found: list[set[str]] = [set() for _ in range(count)]
        for start in range(0, len(wanted), READS_MAX):
            some = wanted[start : start + READS_MAX]
            answers = await self._copies.read(ledger_id, metadata, some)
            for (bookie, entry_id), answer in zip(some, answers, strict=True):
                if answer.flaw is None:
                    found[entry_id].add(bookie)
        return list(map(frozenset, found))


def should_hold(metadata: LedgerMetadata, count: int) -> Holders:
    """Which bookies should have each of the first ``count`` entries, by the ledger's metadata."""
    quorum = Quorum(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    return [
        frozenset(metadata.ensemble_of(entry_id)[slot] for slot in quorum.write_set(entry_id))
        for entry_id in range(count)
    ]


@asynccontextmanager
async def stored_ledgers(zookeeper_address: str) -> AsyncGenerator[StoredLedgers]:
    """The ledgers of the cluster with the ZooKeeper at this address."""
    clock, network, random = SystemClock(), AsyncioNetwork(), Random(1)
    config = LedgerConfig()
    async with ZooKeeper(zookeeper_address, clock) as coordination:
        registry = BookieRegistry(coordination, random=random, config=config)
        links = BookieLinks(
            registry.resolve, network=network, clock=clock, random=random, config=config
        )
        async with registry, links, Ledgers(coordination, network, clock, random) as ledgers:
            yield StoredLedgers(
                ledgers,
                coordination,
                registry,
                Copies(links, answer_timeout_s=ANSWER_TIMEOUT_S),
                UnderreplicationMarks(coordination, clock),
            )


def ask(
    cluster: StandaloneProcess, question: Callable[[StoredLedgers], Awaitable[ResultT]]
) -> ResultT:
    """Run a question to a cluster's ZooKeeper and bookies."""

    async def answer() -> ResultT:
        async with stored_ledgers(zookeeper_of(cluster)) as stored:
            return await question(stored)

    return asyncio.run(answer())
