"""Opens logs and cursors with what they share, and sweeps the open logs periodically."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from random import Random

from geminga_broker.errors import TopicNotFound
from geminga_broker.managed_ledger.acknowledgement.cursor_state import (
    REPLICATED_PROPERTY,
    CursorState,
)
from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.managed_ledger.cache.read_ahead import ReadAheadBudget
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.cursors.cursor_store import CursorStore
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain
from geminga_broker.managed_ledger.log_listener import LogListener
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.records.log_store import LogStore
from geminga_broker.managed_ledger.services import ManagedLedgerServices
from geminga_broker.managed_ledger.writing.broker_entry_metadata import (
    NO_STAMPS,
    BrokerEntryFields,
    BrokerEntryMetadata,
)
from geminga_ledger import Ledgers
from geminga_protocol.pulsar.topics.topic_names import decode_local
from geminga_protocol.records.topics.managed_ledger import managed_ledger_path
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination, NodeExists, NodeMissing
from geminga_runtime.service import Service

# How often entries that have become too old are evicted from the cache.
CACHE_SWEEP_S = 1.0
# So many logs are swept before other tasks get a turn of the event loop.
LOGS_SWEPT_AT_ONCE = 500
# Cursors of one log that are loaded at a time: each asks ZooKeeper, most also open a ledger.
CURSOR_LOADS_MAX = 16


class ManagedLedgerFactory(Service):
    """Makes the broker's logs and cursors, which their users enter. While the factory is entered
    itself, it sweeps the open logs and the cache.

    All logs share ``cache``; ``stamps`` says what the broker writes in front of all entries.
    """

    def __init__(
        self,
        *,
        coordination: Coordination,
        ledgers: Ledgers,
        cache: EntryCache,
        clock: Clock,
        random: Random,
        config: ManagedLedgerConfig,
        stamps: BrokerEntryFields = NO_STAMPS,
    ) -> None:
        super().__init__()
        self.cache = cache
        # For parts of a topic that write ledgers of their own (compaction, buckets, schemas).
        self.ledgers = ledgers
        # The defaults: topics may have settings of their own for their logs and cursors.
        self.config = config
        self.coordination = coordination
        self._clock = clock
        self._random = random
        self._stamps = stamps
        # The logs that are open, by name: each adds and removes itself.
        self._opened: dict[str, ManagedLedger] = {}
        self._services = ManagedLedgerServices(
            ledgers=ledgers,
            cache=cache,
            read_ahead_budget=ReadAheadBudget(config.fetched_bytes_max),
            clock=clock,
            random=random,
            config=config,
        )

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack
        self.spawn_every(CACHE_SWEEP_S, self._sweep_cache, name="sweep the entry cache")
        self.spawn_every(self.config.sweep_period_s, self._sweep_logs, name="sweep the logs")

    async def _sweep_cache(self) -> None:
        self.cache.sweep(self._clock.monotonic())

    async def _sweep_logs(self) -> None:
        """Roll over and trim logs by time, idle ones too: one timer serves all of them."""
        # A copy: logs are opened and closed whenever others have a turn.
        for number, log in enumerate(list(self._opened.values()), 1):
            # ``sweep`` waits for nothing: it starts tasks of the log where there is something to
            # do.
            log.sweep()
            if number % LOGS_SWEPT_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def exists(self, name: str) -> bool:
        """Whether the log ``name`` is stored."""
        return await self.coordination.exists(managed_ledger_path(name)) is not None

    def log(
        self, name: str, listener: LogListener, *, create_with: Mapping[str, str] | None
    ) -> ManagedLedger:
        """The log ``name``, to be entered. A new log is created with the properties
        ``create_with``; where that is None, entering it raises ``NodeMissing``."""
        has_stamps = self._stamps != NO_STAMPS
        return ManagedLedger(
            name,
            self._services,
            store=LogStore(self.coordination, name),
            listener=listener,
            opened=self._opened,
            create_with=create_with,
            stamps=BrokerEntryMetadata(self._stamps, self._clock) if has_stamps else None,
        )

    async def cursor_names(self, log_name: str) -> list[str]:
        """Names of the durable cursors of a log. Raises ``TopicNotFound``."""
        try:
            # Cursors are the nodes below that of their log.
            encoded = await self.coordination.children(managed_ledger_path(log_name))
        except NodeMissing:
            raise TopicNotFound(log_name) from None
        return [decode_local(each) for each in encoded]

    async def load_cursors(self, log_name: str, chain: LedgerChain) -> list[Cursor]:
        """All durable cursors of a log, to be entered, a few loaded at a time.

        The first that cannot be loaded ends the loading of the others; its error is raised. One
        that is deleted meanwhile is left out.
        """
        names = await self.cursor_names(log_name)
        # The workers share one iterator: each takes the next name when it is done with one.
        remaining, loaded = iter(names), dict[str, Cursor]()

        async def load_in_turn() -> None:
            for name in remaining:
                # Its subscription was deleted after the names were read.
                with suppress(NodeMissing):
                    loaded[name] = await self.load_cursor(log_name, name, chain)

        # Most logs have at most one: a group of tasks costs a tenth of loading a topic.
        if len(names) <= 1:
            await load_in_turn()
            return list(loaded.values())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(CURSOR_LOADS_MAX, len(names))):
                    group.create_task(load_in_turn(), name=f"load cursors of {log_name}")
        except ExceptionGroup as errors:
            # The error itself, as from a single load: callers handle no groups of errors.
            raise errors.exceptions[0] from None
        # In the order of their names, whichever was loaded first.
        return [loaded[name] for name in names if name in loaded]

    async def load_cursor(self, log_name: str, name: str, chain: LedgerChain) -> Cursor:
        """A durable cursor as it was stored, to be entered."""
        store = self._store(log_name, name)
        # ``load`` also stops a former owner that may still write the cursor.
        return self._cursor(name, chain, await store.load(), store)

    async def create_cursor(
        self,
        log_name: str,
        name: str,
        chain: LedgerChain,
        at: Position,
        labels: Mapping[str, str],
        *,
        is_replicated: bool = False,
    ) -> Cursor:
        """A new durable cursor whose mark-delete position is ``at``, to be entered."""
        store = self._store(log_name, name)
        state = CursorState(
            mark_delete=at,
            position_properties={REPLICATED_PROPERTY: 1} if is_replicated else {},
            cursor_properties=dict(labels),
        )
        try:
            await store.create(state)
        except NodeExists:
            # An earlier attempt made it, and its outcome was lost: the client had gone, or
            # ZooKeeper's answer did not arrive.
            state = await store.load()
        return self._cursor(name, chain, state, store)

    def volatile_cursor(self, name: str, chain: LedgerChain, at: Position) -> Cursor:
        """A cursor that is never stored, to be entered."""
        return self._cursor(name, chain, CursorState(mark_delete=at), None)

    def _store(self, log_name: str, name: str) -> CursorStore:
        return CursorStore(
            self.coordination,
            self.ledgers,
            self._clock,
            self.config,
            log_name=log_name,
            name=name,
        )

    def _cursor(
        self, name: str, chain: LedgerChain, state: CursorState, store: CursorStore | None
    ) -> Cursor:
        return Cursor(
            name,
            chain=chain,
            state=state,
            store=store,
            clock=self._clock,
            random=self._random,
            config=self.config,
        )
