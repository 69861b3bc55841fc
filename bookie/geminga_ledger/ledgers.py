"""All ledgers, as a broker uses them: create, open (recovering if need be), delete.

Owns the connections to the bookies and the watches on the bookies there are. Here a ledger's parts
are put together (writer, reader, recovery); each of them works by itself from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.dialer import MakeTls
from geminga_ledger.connections.links import BookieLinks
from geminga_ledger.counters import LedgerCounters
from geminga_ledger.entries.digests import entry_decoder
from geminga_ledger.entries.read_ahead_cache import ReadAheadCache
from geminga_ledger.errors import (
    LedgerError,
    NotEnoughBookies,
    UnsupportedLedger,
)
from geminga_ledger.membership.bookies import Bookies
from geminga_ledger.membership.missing_bookies import MissingBookieWatch
from geminga_ledger.membership.registry import BookieRegistry
from geminga_ledger.metadata.store import LedgerStore, StoredMetadata
from geminga_ledger.reading.last_entry_poll import LastEntryPoll
from geminga_ledger.reading.ledger_view import LedgerView
from geminga_ledger.reading.reader import LedgerReader
from geminga_ledger.recovery import LedgerRecovery
from geminga_ledger.replication.quorum import Quorum
from geminga_ledger.replication.recovery_rules import recovery_start
from geminga_ledger.retry import RetryPolicy
from geminga_ledger.writing.explicit_lac import ExplicitLac
from geminga_ledger.writing.listener import LedgerListener
from geminga_ledger.writing.writer import LedgerWriter
from geminga_protocol.bookkeeper.digest import master_key
from geminga_protocol.records.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
)
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination
from geminga_runtime.network import Network
from geminga_runtime.service import Service


class Ledgers(Service):
    """The door to BookKeeper. All methods also raise ``CoordinationError``."""

    def __init__(
        self,
        coordination: Coordination,
        network: Network,
        clock: Clock,
        random: Random,
        config: LedgerConfig | None = None,
        *,
        tls: MakeTls | None = None,
    ) -> None:
        """With ``tls`` every connection to a bookie is secured."""
        super().__init__()
        self._config = config = config or LedgerConfig()
        self._clock = clock
        self._random = random
        self._retry = RetryPolicy(clock=clock, random=random, config=config)
        self._store = LedgerStore(coordination, clock=clock, random=random, config=config)
        # The registry knows where bookies are, the links how to talk to them; ``Bookies`` chooses
        # among them with what both know.
        self._registry = BookieRegistry(coordination, random=random, config=config)
        self._links = BookieLinks(
            self._registry.resolve,
            network=network,
            clock=clock,
            random=random,
            config=config,
            tls=tls,
        )
        self._bookies = Bookies(self._registry, self._links, random)
        self.counters = LedgerCounters()
        # One for all readers, so that many open ledgers share a bound.
        self._read_ahead = ReadAheadCache(config.read_ahead_bytes_max)
        # By ledger: the lock of its recovery, and how many hold it or wait for it.
        self._recovering: dict[int, tuple[asyncio.Lock, int]] = {}

    async def _open(self, stack: AsyncExitStack) -> None:
        # Closed in the opposite order: connections before the registry, which resolves addresses
        # for them.
        await stack.enter_async_context(self._registry)
        await stack.enter_async_context(self._links)
        await stack.enter_async_context(
            MissingBookieWatch(self._registry, self._links, clock=self._clock, config=self._config)
        )

    async def create(
        self,
        *,
        listener: LedgerListener,
        ensemble_size: int | None = None,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
        custom: Mapping[str, bytes] | None = None,
        ensemble: tuple[str, ...] | None = None,
    ) -> LedgerWriter:
        """A new ledger and its writer; ``custom`` goes into its metadata.

        It is placed on ``ensemble``, or else where it is placed best. Sizes not given are those of
        the config. Waits for enough bookies, up to the deadline for creations, or a moment where
        even with the read-only ones there are too few; then raises ``NotEnoughBookies``.
        Raises ``ValueError`` for sizes that make no sense, ``LedgerIdsExhausted``.
        """
        config = self._config
        quorum = Quorum(
            ensemble_size or config.ensemble_size,
            write_quorum or config.write_quorum,
            ack_quorum or config.ack_quorum,
        )
        # Before an id is taken: a creation that waits for bookies in vain leaves nothing behind.
        if ensemble is None:
            ensemble = await self._new_ensemble(quorum)
        # From here on the ledger exists in ZooKeeper, and on no bookie. A caller that ends before
        # it has noted the id leaves an open ledger without entries behind.
        stored = await self._store.create(
            LedgerMetadata(
                ensemble_size=quorum.ensemble_size,
                write_quorum=quorum.write_quorum,
                ack_quorum=quorum.ack_quorum,
                fragments=(Fragment(0, ensemble),),
                digest_type=DigestType.CRC32C,
                password=config.password,
                custom=custom or {},
            )
        )
        # Asks no bookie for anything: the first entry makes the ledger known to them.
        writer = LedgerWriter(
            stored,
            bookies=self._bookies,
            store=self._store,
            listener=listener,
            counters=self.counters,
            clock=self._clock,
            config=config,
        )
        if config.explicit_lac_interval_s:
            # The task ends by itself, one interval after the writer is over.
            explicit_lac = ExplicitLac(
                writer=writer,
                link=self._links.v3_link,
                master_key=master_key(config.password),
                interval_s=config.explicit_lac_interval_s,
                answer_timeout_s=config.answer_timeout_s,
            )
            self.spawn(explicit_lac.run(), name=f"explicit lac of ledger {writer.ledger_id}")
        return writer

    async def open(self, ledger_id: int, *, recover: bool) -> LedgerReader:
        """A reader of the ledger.

        ``recover`` takes an open ledger over: its writer is fenced, all entries that were confirmed
        to it stay, and the ledger is closed. Without it, an open ledger is read as far as its
        bookies say it is confirmed, and its writer goes on. A ledger with another digest than
        CRC32C can be read, not recovered.

        Raises ``NoSuchLedger``, ``UnsupportedLedger``, ``WrongPassword``, and
        ``RecoveryUndecided`` (and other errors that can be retried) when too few bookies answered
        until the deadline for recoveries.
        """
        if not recover:
            return await self._retry.run(
                lambda: self._open_as_it_is(ledger_id),
                on=LedgerError,
                deadline_s=self._config.recovery_deadline_s,
            )
        stored = await self._read_metadata(ledger_id)
        # A closed ledger never changes its end: it is read as the metadata say, without a request
        # to any bookie.
        if stored.metadata.state is not LedgerState.CLOSED:
            # Recovery writes entries again, which are checked by CRC32C only.
            digest_type = stored.metadata.digest_type
            if digest_type is not DigestType.CRC32C:
                raise UnsupportedLedger(ledger_id, f"has digest type {digest_type!r}")
            async with self._recovery_turn(ledger_id):
                stored = await LedgerRecovery(
                    ledger_id=ledger_id,
                    store=self._store,
                    bookies=self._bookies,
                    counters=self.counters,
                    clock=self._clock,
                    retry=self._retry,
                    config=self._config,
                ).run()
        # Closed now, by its writer, by this recovery, or by another process that was faster.
        return self._reader(stored, stored.metadata.last_entry, stored.metadata.length)

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        """What ZooKeeper holds of the ledger. Raises ``NoSuchLedger``, ``UnsupportedLedger``."""
        return (await self._store.read(ledger_id)).metadata

    async def delete(self, ledger_id: int) -> None:
        """Delete the ledger; no error where there is none. Bookies drop its entries in time."""
        # The read-ahead cache may go on holding entries of it; no other ledger ever gets this id.
        await self._store.delete(ledger_id)

    async def _new_ensemble(self, quorum: Quorum) -> tuple[str, ...]:
        """Choose bookies, waiting for enough of them. Raises ``NotEnoughBookies``."""
        try:
            async with asyncio.timeout(self._config.create_deadline_s):
                while True:
                    try:
                        return self._bookies.new_ensemble(quorum)
                    except NotEnoughBookies:
                        # Read-only bookies may become writable again; any other must register
                        # first. A set: one that changes over is in both lists for a moment.
                        registered = {*self._registry.writable, *self._registry.read_only}
                        may_suffice = len(registered) >= quorum.ensemble_size
                        grace_s = None if may_suffice else self._config.registration_grace_s
                        async with asyncio.timeout(grace_s):
                            await self._registry.changed()
        except TimeoutError:
            # Once more, for its error.
            return self._bookies.new_ensemble(quorum)

    @asynccontextmanager
    async def _recovery_turn(self, ledger_id: int) -> AsyncGenerator[None, None]:
        """One recovery of a ledger at a time: two would take each other's answers for their own."""
        lock, users = self._recovering.get(ledger_id, (asyncio.Lock(), 0))
        self._recovering[ledger_id] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            # The last one to leave takes the lock out.
            lock, users = self._recovering.pop(ledger_id)
            if users > 1:
                self._recovering[ledger_id] = lock, users - 1

    async def _open_as_it_is(self, ledger_id: int) -> LedgerReader:
        """One attempt to open without recovering: asks the bookies how far it is confirmed."""
        stored = await self._read_metadata(ledger_id)
        metadata = stored.metadata
        if metadata.state is LedgerState.CLOSED:
            return self._reader(stored, metadata.last_entry, metadata.length)
        fragment = metadata.fragments[-1]
        # The metadata of old clients has no password: then that of the config counts.
        password = self._config.password if metadata.password is None else metadata.password
        # Without a master key: this asks and does not fence, and the ledger's writer goes on.
        votes = await LastEntryPoll(
            ledger_id,
            Quorum(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum),
            [self._links.link(bookie_id) for bookie_id in fragment.ensemble],
            answer_timeout_s=self._config.answer_timeout_s,
            decode=entry_decoder(metadata.digest_type, password),
        ).run()
        # Entries beyond it may be confirmed as well: only an entry that is sent later says so.
        last_confirmed = recovery_start(votes.last_confirmed, fragment.first_entry)
        return self._reader(stored, last_confirmed, votes.length_bytes)

    async def _read_metadata(self, ledger_id: int) -> StoredMetadata:
        """Raises ``UnsupportedLedger`` for a ledger whose metadata makes no sense."""
        stored = await self._store.read(ledger_id)
        metadata = stored.metadata
        if not metadata.fragments or any(
            len(each.ensemble) != metadata.ensemble_size for each in metadata.fragments
        ):
            raise UnsupportedLedger(ledger_id, "has fragments that do not fit its ensemble size")
        return stored

    def _reader(
        self, stored: StoredMetadata, last_confirmed: int, length_bytes: int
    ) -> LedgerReader:
        # The view asks how far the ledger is confirmed over V3; entries are read over V2.
        view = LedgerView(
            stored,
            last_confirmed=last_confirmed,
            length_bytes=length_bytes,
            link=self._links.v3_link,
            store=self._store,
            config=self._config,
        )
        return LedgerReader(
            view,
            self._links.link,
            counters=self.counters,
            retry=self._retry,
            config=self._config,
            read_ahead=self._read_ahead,
        )
