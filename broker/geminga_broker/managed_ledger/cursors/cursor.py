"""A cursor: how far one subscription has got, and keeping that durable.

Acknowledging changes memory at once; the change is written soon after, one write at a time for
however many acknowledgements came meanwhile. Who asked for a receipt is called when a write that
covers its acknowledgement is durable. A cursor that is not durable (a reader's) keeps nothing.

A cursor whose record or ledger another broker has taken writes nothing any more; who waits is told
that nothing was saved, and the cursor's owner that the topic is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from random import Random

from geminga_broker.errors import BrokerError, ServiceNotReady
from geminga_broker.managed_ledger.acknowledgement.acknowledged import Acknowledged
from geminga_broker.managed_ledger.acknowledgement.cursor_state import (
    REPLICATED_PROPERTY,
    CursorState,
    StateLimits,
    state_of,
)
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.cursors.cursor_store import TAKEN_OVER, CursorStore
from geminga_broker.managed_ledger.cursors.durable_future import DurableFuture
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain
from geminga_broker.managed_ledger.positions import Position
from geminga_ledger import LedgerError
from geminga_runtime.backoff import Backoff
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import ConnectionLost, CoordinationError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# So often is a deletion tried whose answer is lost: half a minute with the usual back-off.
DELETE_ATTEMPTS_MAX = 10
# Timers are no finer than this.
REST_S_MIN = 0.001

OnDurable = Callable[[BrokerError | None], None]
"""Called once: with None when the acknowledgement is durable, with why when it never will be."""


def _nothing() -> None:
    """Nobody wants to know."""


class Cursor(Service):
    """The acknowledged positions of subscription ``name``; ``store`` is None if not durable.

    ``on_lost`` is called when another broker turns out to have the cursor, ``on_ledger_left`` when
    its mark-delete position was stored in another ledger than before: its owner may set them.
    """

    __slots__ = (
        "_clock",
        "_config",
        "_is_dirty",
        "_is_flushing",
        "_is_over",
        "_left_out",
        "_random",
        "_store",
        "_stored",
        "_timer",
        "_undeleted",
        "_waiting",
        "acknowledged",
        "chain",
        "last_mark_delete_ms",
        "name",
        "on_ledger_left",
        "on_lost",
        "position_properties",
        "properties",
    )

    def __init__(
        self,
        name: str,
        *,
        chain: LedgerChain,
        state: CursorState,
        store: CursorStore | None,
        clock: Clock,
        random: Random,
        config: ManagedLedgerConfig,
    ) -> None:
        super().__init__()
        self.name = name
        self.chain = chain
        # Replaced, never changed: what was written is compared with it.
        self.properties: Mapping[str, str] = state.cursor_properties
        self.acknowledged = Acknowledged(chain, state.mark_delete)
        self.acknowledged.restore(state.ranges, state.partial)
        self.acknowledged.restore_bits(state.bits)
        self.last_mark_delete_ms = 0
        self.on_lost: Callable[[], None] = _nothing
        self.on_ledger_left: Callable[[], None] = _nothing
        # The mark-delete position that the next owner finds after a crash.
        self._stored = state.mark_delete
        self.position_properties = state.position_properties
        self._store = store
        # The store whose deletion has begun, until it is done.
        self._undeleted: CursorStore | None = None
        self._clock = clock
        self._config = config
        self._random = random
        self._is_dirty = False
        self._is_flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[OnDurable] = []
        # Nothing more is saved: another broker has the cursor, or it is closed.
        self._is_over = False
        self._left_out = 0

    async def _open_parts(self) -> None:
        """There is nothing to open."""

    @property
    def config(self) -> ManagedLedgerConfig:
        """How the cursor is kept; what is set holds from the next write on."""
        return self._config

    @config.setter
    def config(self, config: ManagedLedgerConfig) -> None:
        self._config = config
        if self._store is not None:
            self._store.config = config

    @property
    def is_durable(self) -> bool:
        """Whether the cursor outlives its consumers."""
        return self._store is not None

    @property
    def store(self) -> CursorStore | None:
        """Where it is kept, for those who only look; None if it is not durable."""
        return self._store

    @property
    def mark_delete(self) -> Position:
        """Everything up to here is acknowledged."""
        return self.acknowledged.mark_delete

    @property
    def needless_upto(self) -> Position:
        """Entries up to here are needed neither now nor after a crash: the log may delete them.

        What the next owner will find counts, too: it begins at the stored position, and what the
        cursor keeps beside that (the compacted ledger, sequence ids) holds for that position only.
        """
        return min(self._stored, self.mark_delete)

    @property
    def is_replicated(self) -> bool:
        """Whether other clusters are to keep the subscription alike."""
        return REPLICATED_PROPERTY in self.position_properties

    @property
    def backlog_entries(self) -> int:
        """Stored entries not acknowledged yet."""
        behind = self.chain.entries_between(self.mark_delete, self.chain.last_confirmed)
        return behind - self.acknowledged.ahead_count

    @property
    def backlog_bytes(self) -> int:
        """About how many bytes those have."""
        return self.chain.bytes_between(self.mark_delete, self.chain.last_confirmed)

    # Changes

    def changed(self, on_durable: OnDurable | None = None) -> None:
        """Something was acknowledged: write it soon, at once where somebody waits for it."""
        if self._store is None:
            if on_durable is not None:
                on_durable(None)
            return
        if self._is_over:
            if on_durable is not None:
                on_durable(self._not_saved())
            return
        self._is_dirty = True
        if on_durable is not None:
            self._waiting.append(on_durable)
        if self._is_flushing:
            return
        if self._waiting:
            self._flush_now()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._config.cursor_flush_delay_s, self._flush_now)

    async def change_properties(self, put: Mapping[str, str], remove: Collection[str] = ()) -> None:
        """Set some of the cursor's properties, take others away; return when that is durable.

        Raises ``ServiceNotReady`` where another broker has the cursor.
        """
        kept = {name: value for name, value in self.properties.items() if name not in remove}
        self.properties = {**kept, **put}
        durable = DurableFuture()
        self.changed(durable)
        await durable.wait()

    def state(self) -> CursorState:
        """What must be kept."""
        limits = StateLimits(
            ranges_max=self._config.cursor_ranges_max,
            batches_max=self._config.cursor_batches_max,
        )
        state, left_out = state_of(
            self.acknowledged,
            limits,
            position_properties=self.position_properties,
            cursor_properties=self.properties,
        )
        if left_out and not self._left_out:
            log.warning(
                "too many holes: after a crash some messages would be delivered again",
                extra={"cursor": self.name, "left_out": left_out},
            )
        self._left_out = left_out
        return state

    # Writing

    def _flush_now(self) -> None:
        self._stop_timer()
        if not self._is_flushing and self._is_dirty:
            self._is_flushing = True
            self.spawn(self._flush(), name=f"flush cursor {self.name}")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _flush(self) -> None:
        backoff = self._new_backoff()
        try:
            while self._is_dirty:
                self._is_dirty = False
                covered = len(self._waiting)
                try:
                    saved = self.state()
                    assert self._store is not None
                    written_bytes = await self._store.save(saved)
                except TAKEN_OVER as error:
                    self._give_up(error)
                    return
                except (LedgerError, CoordinationError) as error:
                    self._is_dirty = True
                    await self._back_off(backoff, "cursor not saved", error)
                    continue
                backoff.reset()
                self.last_mark_delete_ms = self._clock.wall_ms()
                left, self._stored = self._stored, saved.mark_delete
                self._tell(covered, None)
                if left[0] != self._stored[0]:
                    self.on_ledger_left()
                await self._rest(written_bytes)
                if not self._waiting:
                    break
        finally:
            self._is_flushing = False
        if self._is_dirty:
            self.changed()

    async def _rest(self, written_bytes: int) -> None:
        """Keep to the rate; what is small needs no rest, which would only delay receipts."""
        rest_s = written_bytes / self._config.cursor_bytes_per_s_max
        if rest_s > REST_S_MIN:
            await asyncio.sleep(rest_s)

    def _new_backoff(self) -> Backoff:
        return Backoff(self._config.retry_first_s, self._config.retry_limit_s, self._random)

    async def _back_off(self, backoff: Backoff, what: str, error: Exception) -> None:
        delay_s = backoff.next_s()
        log.warning(what, extra={"cursor": self.name, "error": str(error), "retry_in_s": delay_s})
        await asyncio.sleep(delay_s)

    def _give_up(self, error: Exception) -> None:
        """Another broker has the cursor: nothing was saved, and nothing more will be."""
        self._is_over = True
        log.warning("cursor lost", extra={"cursor": self.name, "error": str(error)})
        self._tell(len(self._waiting), self._not_saved())
        self.on_lost()

    def _tell(self, count: int, error: BrokerError | None) -> None:
        """Tell the first ``count`` of those who wait."""
        told, self._waiting = self._waiting[:count], self._waiting[count:]
        for on_durable in told:
            on_durable(error)

    def _not_saved(self) -> BrokerError:
        return ServiceNotReady(
            f"nothing was saved for subscription {self.name}: look its topic up again"
        )

    # Ending

    async def _close_parts(self) -> None:
        """A last write, as a snapshot that the next owner reads without opening a ledger."""
        self._stop_timer()
        outcome: BrokerError | None = self._not_saved()
        try:
            if self._store is not None and not self._is_over:
                await self._store.close(self.state())
                outcome = None
        except (LedgerError, CoordinationError) as error:
            # Another owner's cursor is left as it should be; there may be very many at once.
            level = logging.INFO if isinstance(error, TAKEN_OVER) else logging.WARNING
            log.log(level, "cursor left open", extra={"cursor": self.name, "error": str(error)})
        finally:
            self._is_over = True
            self._tell(len(self._waiting), outcome)
            self.on_lost = self.on_ledger_left = _nothing

    async def delete(self) -> None:
        """Forget the cursor for good; closing it then has nothing more to write. Done again, it
        finishes what failed the first time. Raises ``ServiceNotReady`` where another broker has it,
        ``LedgerError``, ``CoordinationError``."""
        store, self._store = self._store or self._undeleted, None
        self._stop_timer()
        await self._end_tasks()  # a write under way must not overlap
        self._tell(len(self._waiting), self._not_saved())
        self._undeleted = store
        if store is not None:
            await self._delete_stored(store)
            self._undeleted = None

    async def _delete_stored(self, store: CursorStore) -> None:
        """A lost answer leaves in doubt whether the ledgers may go: ask until there is one."""
        backoff = self._new_backoff()
        for attempt in range(1, DELETE_ATTEMPTS_MAX + 1):
            try:
                await store.delete()
            except ConnectionLost as error:
                if attempt == DELETE_ATTEMPTS_MAX:
                    raise
                await self._back_off(backoff, "cursor not deleted", error)
            except TAKEN_OVER as error:
                self._give_up(error)
                raise self._not_saved() from error
            else:
                return
