"""A cursor: how far one subscription has got, and keeping that durable.

Acknowledging changes memory at once; the change is written soon after, one write at a time for
however many acknowledgements came meanwhile. A callback that was given with an acknowledgement is
called when a write that covers it is durable. A cursor that is not durable (a reader's) stores
nothing.

A cursor whose record or ledger another broker has taken writes nothing any more: its callbacks are
called with an error, and ``on_lost`` reports to the topic that it is lost.
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

# How often a deletion is tried while its answers are lost: half a minute with the usual back-off.
DELETE_ATTEMPTS_MAX = 10
# Timers are no finer than this.
REST_S_MIN = 0.001

OnDurable = Callable[[BrokerError | None], None]
"""Called once: with None when the acknowledgement is durable, with an error if it never will be."""


# How a change becomes durable:
#
#     changed ─▶ dirty ─┬─ no callback ─▶ timer ─┐
#                       └─ a callback ───────────┴▶ _flush ─▶ store.save ─▶ callbacks
#                                                     ▲            │
#                                                     └─ dirty again, and a callback waits
class Cursor(Service):
    """The acknowledged positions of subscription ``name``; ``store`` is None if not durable.

    Code that changes ``acknowledged``, ``properties`` or ``position_properties`` calls ``changed``.
    The two mappings are replaced, never changed: what was written is compared with them.
    """

    __slots__ = (
        "_clock",
        "_is_dirty",
        "_is_flushing",
        "_is_over",
        "_left_out",
        "_random",
        "_stored",
        "_timer",
        "_undeleted",
        "_waiting",
        "acknowledged",
        "chain",
        "config",
        "last_mark_delete_ms",
        "name",
        "on_ledger_left",
        "on_lost",
        "position_properties",
        "properties",
        "store",
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
        self.acknowledged = Acknowledged(chain, state.mark_delete)
        self.acknowledged.restore(state.ranges, state.bits, state.partial)
        # Texts of users and of the delayed delivery, and numbers that hold for the position.
        self.properties: Mapping[str, str] = state.cursor_properties
        self.position_properties = state.position_properties
        # When it was last written (Unix time); 0 for not since it was loaded.
        self.last_mark_delete_ms = 0
        # Called when another broker turns out to have the cursor.
        self.on_lost: Callable[[], None] | None = None
        # Called when the stored mark-delete position has left a ledger, which may be trimmed now.
        self.on_ledger_left: Callable[[], None] | None = None
        # The mark-delete position that the next owner finds after a crash. It lags behind the mark
        # in memory, except after a reset to an earlier position.
        self._stored = state.mark_delete
        # Where the cursor is stored; None if it is not durable, or being deleted.
        self.store = store
        # The store whose deletion has begun, until it is done.
        self._undeleted: CursorStore | None = None
        self._clock = clock
        # Replaced by ``configure``.
        self.config = config
        self._random = random
        # Something changed since the state was last taken to be written.
        self._is_dirty = False
        # A task writes. It checks ``_is_dirty`` again before it ends, so a change that comes
        # meanwhile needs no task of its own.
        self._is_flushing = False
        # Set only while no task writes and no callback waits.
        self._timer: asyncio.TimerHandle | None = None
        # Callbacks of changes that are not durable yet, in the order of the changes. The first
        # ``covered`` of them belong to the write under way, later ones to the next.
        self._waiting: list[OnDurable] = []
        # Nothing more is saved: another broker has the cursor, or it is closed.
        self._is_over = False
        # How many entries and batches the last state left out.
        self._left_out = 0

    async def _open_parts(self) -> None:
        """There is nothing to open."""

    def configure(self, config: ManagedLedgerConfig) -> None:
        """Keep the cursor as ``config`` says from the next write on."""
        self.config = config
        if self.store is not None:
            self.store.config = config

    @property
    def is_durable(self) -> bool:
        """Whether the cursor outlives its consumers."""
        return self.store is not None

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
        """Write what has changed: soon, or at once where ``on_durable`` is to be called."""
        if self.store is None:
            if on_durable is not None:
                # At once, in the caller's turn: there is no write to wait for.
                on_durable(None)
            return
        if self._is_over:
            if on_durable is not None:
                on_durable(self._not_saved())
            return
        # Before the flags are looked at: a task that is writing sees it when its write is done.
        self._is_dirty = True
        if on_durable is not None:
            self._waiting.append(on_durable)
        # The task that writes takes this change along with its next write.
        if self._is_flushing:
            return
        # A consumer waits for a receipt. Where none does, a later write costs nothing but a few
        # repeated deliveries after a crash.
        if self._waiting:
            self._flush_now()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.config.cursor_flush_delay_s, self._flush_now)

    async def change_properties(self, put: Mapping[str, str], remove: Collection[str] = ()) -> None:
        """Set some of the cursor's properties, take others away; return when that is durable.

        Raises ``ServiceNotReady`` where another broker has the cursor.
        """
        kept = {name: value for name, value in self.properties.items() if name not in remove}
        self.properties = {**kept, **put}
        durable = DurableFuture()
        self.changed(durable)
        await durable

    def state(self) -> CursorState:
        """What is to be written now."""
        limits = StateLimits(
            ranges_max=self.config.cursor_ranges_max,
            batches_max=self.config.cursor_batches_max,
        )
        state, left_out = state_of(
            self.acknowledged,
            limits,
            position_properties=self.position_properties,
            cursor_properties=self.properties,
        )
        # Logged when it begins, not with each of the writes that follow. The cursor is correct in
        # memory all the same: only a crash or an unload forgets these.
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
            # Here, not in the task, which starts later: a second call must not spawn a second one.
            self._is_flushing = True
            self.spawn(self._flush(), name=f"flush cursor {self.name}")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _flush(self) -> None:
        """Write what has changed, and again as long as callbacks wait for later changes."""
        backoff = Backoff(self.config.retry_first_s, self.config.retry_limit_s, self._random)
        try:
            while self._is_dirty:
                # In one turn, so that this write covers just the first ``covered`` callbacks. What
                # changes from here on, during the write, sets it again.
                self._is_dirty = False
                covered = len(self._waiting)
                try:
                    saved = self.state()
                    assert self.store is not None
                    written_bytes = await self.store.save(saved)
                except TAKEN_OVER as error:
                    # No retry: the version of the other broker is the one that counts now.
                    self._give_up(error)
                    return
                except (LedgerError, CoordinationError) as error:
                    # The callbacks stay in front of ``_waiting``: the next attempt covers them with
                    # a newer state.
                    self._is_dirty = True
                    await self._back_off(backoff, "cursor not saved", error)
                    continue
                backoff.reset()
                self.last_mark_delete_ms = self._clock.wall_ms()
                # Before the callbacks and ``on_ledger_left``: a trim asks for ``needless_upto`` at
                # once.
                left, self._stored = self._stored, saved.mark_delete
                self._notify(covered, None)
                if left[0] != self._stored[0] and self.on_ledger_left is not None:
                    self.on_ledger_left()
                # Keep to the rate. What is small needs no rest, which would only delay receipts.
                rest_s = written_bytes / self.config.cursor_bytes_per_s_max
                if rest_s > REST_S_MIN:
                    await asyncio.sleep(rest_s)
                # Changes without a callback do not keep the task: they wait for the delay, below.
                if not self._waiting:
                    break
        finally:
            # Also after a cancellation: the close that cancelled writes the state itself.
            self._is_flushing = False
        # What changed meanwhile waits for the flush delay again, to share a write with others.
        if self._is_dirty:
            self.changed()

    async def _back_off(self, backoff: Backoff, what: str, error: Exception) -> None:
        delay_s = backoff.next_s()
        log.warning(what, extra={"cursor": self.name, "error": str(error), "retry_in_s": delay_s})
        await asyncio.sleep(delay_s)

    def _give_up(self, error: Exception) -> None:
        """Save nothing more: another broker has the cursor."""
        # First: a callback that changes the cursor gets the same error and starts no write.
        self._is_over = True
        log.warning("cursor lost", extra={"cursor": self.name, "error": str(error)})
        self._notify(len(self._waiting), self._not_saved())
        if self.on_lost is not None:
            self.on_lost()

    def _notify(self, count: int, error: BrokerError | None) -> None:
        """Call the first ``count`` callbacks."""
        # Taken out first: a callback may change the cursor, and give another callback.
        notified, self._waiting = self._waiting[:count], self._waiting[count:]
        for on_durable in notified:
            on_durable(error)

    def _not_saved(self) -> BrokerError:
        return ServiceNotReady(
            f"nothing was saved for subscription {self.name}: look its topic up again"
        )

    # Ending

    async def _close_parts(self) -> None:
        """Write a last time, as a snapshot that the next owner reads without opening a ledger."""
        # The task that wrote has ended (``Service`` cancels it first), perhaps in the middle of a
        # write: ``CursorStore`` keeps what is in doubt, and its ``close`` settles it.
        self._stop_timer()
        outcome: BrokerError | None = self._not_saved()
        try:
            if self.store is not None and not self._is_over:
                await self.store.close(self.state())
                outcome = None
        except (LedgerError, CoordinationError) as error:
            # Another owner's cursor is left as it should be; there may be very many at once.
            level = logging.INFO if isinstance(error, TAKEN_OVER) else logging.WARNING
            log.log(level, "cursor left open", extra={"cursor": self.name, "error": str(error)})
        finally:
            self._is_over = True
            self._notify(len(self._waiting), outcome)
            self.on_lost = self.on_ledger_left = None

    async def delete(self) -> None:
        """Delete the cursor; closing it then has nothing more to write. Called again, it finishes
        what failed the first time. Raises ``ServiceNotReady`` where another broker has it,
        ``LedgerError``, ``CoordinationError``."""
        # Without a store the cursor counts as not durable: it holds back no ledger from now on.
        store, self.store = self.store or self._undeleted, None
        self._stop_timer()
        # ``_waiting`` cannot grow any more: without a store ``changed`` answers at once.
        await self._end_tasks()  # a write under way must not overlap
        self._notify(len(self._waiting), self._not_saved())
        self._undeleted = store
        if store is None:
            return
        # A lost answer leaves in doubt whether the ledgers may go: ask until there is an answer.
        backoff = Backoff(self.config.retry_first_s, self.config.retry_limit_s, self._random)
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
                self._undeleted = None
                return
