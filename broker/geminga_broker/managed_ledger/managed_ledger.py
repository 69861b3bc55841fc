"""One topic's log: a chain of ledgers, written at the end, read anywhere, with cursors.

Appending is synchronous and cheap; confirmations come back in runs through ``LogListener``. The
ledger to write is created at the first append, rolled over by entries, size and age, and replaced
when its writer fails, with the unconfirmed entries sent again in order. Ledgers that all cursors
have passed are deleted. A fenced ledger or a changed metadata record means that another broker has
the log: it fences itself and never writes again.

    append_all ─▶ the open ledger's appender ─▶ bookies ─▶ run_confirmed ─▶ cache, LogListener
             └──▶ _waiting, while no ledger is open ─▶ the next ledger's appender
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence

from geminga_broker.errors import NotAllowed, StorageUnavailable, TopicFenced, TopicTerminated
from geminga_broker.managed_ledger.cache.log_cache import LogCache
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain, LedgerSpan
from geminga_broker.managed_ledger.ledger_chain.retention import KEEP_NOTHING
from geminga_broker.managed_ledger.ledger_chain.rollover import AGE_SPREAD, is_due
from geminga_broker.managed_ledger.log_listener import LogListener, LogState
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.managed_ledger.reading.log_reader import LogReader
from geminga_broker.managed_ledger.records.log_store import LABELS, LogStore
from geminga_broker.managed_ledger.records.own_record import OWNERSHIP_LOST
from geminga_broker.managed_ledger.records.recorded_chain import RecordedChain
from geminga_broker.managed_ledger.services import ManagedLedgerServices
from geminga_broker.managed_ledger.termination import Termination
from geminga_broker.managed_ledger.trimmer import Trimmer
from geminga_broker.managed_ledger.writing.append_request import AppendRequest, payload_of
from geminga_broker.managed_ledger.writing.appender import Appender
from geminga_broker.managed_ledger.writing.broker_entry_metadata import BrokerEntryMetadata
from geminga_ledger import EntryTooLarge, LedgerError, LedgerFenced
from geminga_runtime.backoff import Backoff
from geminga_runtime.coordination import CoordinationError, NodeMissing
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# How long ``truncate`` and ``roll_over`` wait for bookies and ZooKeeper.
CHANGE_DEADLINE_S = 60.0


class ManagedLedger(Service):
    """The log named ``name`` (``tenant/namespace/persistent/topic``, encoded).

    While it is open it is one of ``opened``, which are found by their names. ``create_with`` are
    the properties of a new log; without them opening a log that is not there raises
    ``NodeMissing``. ``stamps`` go in front of entries, which without them are stored as they come.

    What waits here for a ledger is bounded by the publishers: a session stops reading its client
    while too much of what it took, or all sessions took together, is not durable.
    """

    def __init__(
        self,
        name: str,
        services: ManagedLedgerServices,
        *,
        store: LogStore,
        listener: LogListener,
        opened: dict[str, ManagedLedger],
        create_with: Mapping[str, str] | None = None,
        stamps: BrokerEntryMetadata | None = None,
    ) -> None:
        super().__init__()
        ledgers, clock, config = services.ledgers, services.clock, services.config
        self.name, self.config = name, config
        # That of the record, once the log is open. One object for all parts: reader, cursors and
        # trimmer see every change that ``recorded`` makes.
        self.chain = LedgerChain()
        # Another broker has the log, or it was deleted: nothing is written or confirmed any more.
        self.is_fenced = False
        # Since the log was opened here, as upstream shows it. Times are Unix time, 0 for never.
        self.entries_added = 0
        self.last_ledger_created_ms = self.last_ledger_failed_ms = 0
        self.recorded = RecordedChain(store, ledgers)
        self.stamps = stamps
        self.termination = Termination(self, self.recorded)
        self.trimmer = Trimmer(self, self.recorded, clock, config)
        self.cached = LogCache(services.cache, self.trimmer.wanted_from)
        self.reader = LogReader(
            name,
            ledgers=ledgers,
            cached=self.cached,
            read_ahead_budget=services.read_ahead_budget,
            config=config,
        )
        self._clock, self._random = clock, services.random
        # The topic; None once the log is closed.
        self._listener: LogListener | None = listener
        self._create_with, self._opened = create_with, opened
        # That of the ledger that takes entries. Never one of ``_finishing``: ``_replace`` moves it
        # there.
        self._appender: Appender | None = None
        # Ledgers that take no more entries and are not closed yet, oldest first. The next ledger is
        # opened after they are closed, so positions in the log keep the order of appending.
        self._finishing: tuple[Appender, ...] = ()
        # Entries that were taken while no ledger was open, in order.
        self._waiting: list[AppendRequest] = []
        self._switching: asyncio.Task[object] | None = None

    # Opening and closing

    async def _open_parts(self) -> None:
        try:
            await self.recorded.load()
        except NodeMissing:
            if self._create_with is None:
                raise
            if self.stamps is not None:
                self.recorded.store.noted = self.stamps.properties
            # A new log has a ledger from the beginning: cursors need something to point at. The
            # ledger, then the record that names it. A broker that dies in between leaves a ledger
            # that only its labels tell (``RecordedChain``); in the other order it would leave a
            # record of a ledger that never was, which looks like a loss of messages.
            self.chain = self.reader.chain = self.recorded.chain
            appender = await self._new_appender()
            try:
                await self.recorded.create(appender.span, self._create_with)
            except BaseException:
                # Nothing else would: ``_close_parts`` knows only the appenders in use.
                appender.writer.detach()
                raise
            self._use(appender)
        else:
            # Not before ``load``, which replaces the chain.
            self.chain = self.reader.chain = self.recorded.chain
            self.termination.at = self.recorded.store.terminated_at
            reader = await self.recorded.recover_last(self._clock.wall_ms)
            if reader is not None:
                self.reader.keep(reader)
            if self.stamps is not None:
                await self.stamps.recover(self)
                # Only now: ``recover_last`` writes the record before the index is known, and must
                # leave the one that stands there.
                self.recorded.store.noted = self.stamps.properties
        # Last: a sweep finds open logs only. A log that fails to open was never registered.
        self._opened[self.name] = self
        self.trimmer.trim_soon()

    async def _close_parts(self) -> None:
        """Close the open ledger, so that the next owner need not recover it."""
        if self._opened.get(self.name) is self:
            del self._opened[self.name]
        # The switch has ended: a service cancels its tasks before it closes its parts. From here on
        # no ledger is open, so ``append_all`` raises.
        self._finishing, self._appender = self._appenders(), None
        try:
            if self._finishing and not self.is_fenced:
                await self._close_finishing()
                await self.recorded.save()
        except (LedgerError, CoordinationError) as error:
            # Another owner's log is left as it should be; there may be very many at once.
            level = logging.INFO if isinstance(error, OWNERSHIP_LOST) else logging.WARNING
            log.log(level, "log left open", extra={"log": self.name, "error": str(error)})
        finally:
            for each in self._finishing:
                each.writer.detach()  # what could not be closed, or not in time
            # Last: until the ledger is closed, what is on its way is confirmed into the cache.
            self.cached.clear()
            # The topic refers to its log: without the way back no garbage collector is needed.
            self._listener = None
            self.trimmer.readership = None

    @property
    def state(self) -> LogState:
        """What the log is doing, as upstream's internal stats show it."""
        # In this order: a fenced log is closed later, a terminated one may still close its last
        # ledger.
        if self.is_fenced:
            return LogState.FENCED
        if self._is_closing:
            return LogState.CLOSED
        if self._finishing:
            return LogState.CLOSING_LEDGER
        if self.termination.at is not None:
            return LogState.TERMINATED
        if self._is_switching:
            return LogState.CREATING_LEDGER
        return LogState.LEDGER_OPENED

    # Appending

    def append_all(self, items: Sequence[AppendRequest]) -> None:
        """Take entries; ``LogListener.run_appended`` says when they are durable, in this order.

        Raises ``TopicFenced`` once another broker has the log or it closes, ``TopicTerminated``,
        and ``NotAllowed`` for an entry that no bookie takes; then none of them is taken.
        """
        if self.stamps is None:
            self._append_all(items)
        else:
            self.stamps.append(items, self._append_all)

    def _append_all(self, items: Sequence[AppendRequest]) -> None:
        # The usual way: a log that has an open ledger is neither fenced, closing nor terminated.
        appender = self._appender
        if appender is not None:
            try:
                appender.append_all(items)
            except EntryTooLarge as error:
                raise NotAllowed(str(error)) from error
            except LedgerError as error:
                # The writer has taken none of ``items``: they can go to the next ledger as a whole.
                log.warning("ledger takes no more", extra={"log": self.name, "error": str(error)})
                self._replace(appender)
            else:
                return
        # There is no ledger, or it failed just now: the entries wait for the next one.
        if self.is_fenced or self._is_closing:
            raise TopicFenced(self.name)
        if self.termination.is_under_way or self.termination.at is not None:
            raise TopicTerminated
        # No writer is there to refuse what is too large; later it could not be refused any more.
        largest, limit = max(map(len, map(payload_of, items))), self.config.entry_bytes_max
        if largest > limit:
            raise NotAllowed(f"an entry of {largest} bytes is over the limit of {limit}")
        self._waiting.extend(items)
        self._switch_soon()

    def _replace(self, appender: Appender) -> None:
        """Write to another ledger as soon as what ``appender`` has on its way is confirmed."""
        # An appender that is being replaced already may still fail, or become due.
        if appender is self._appender:
            self._appender = None
            self._finishing += (appender,)
            self._switch_soon()

    @property
    def pending_count(self) -> int:
        """Entries taken and not yet durable."""
        return sum(each.pending_count for each in self._appenders()) + len(self._waiting)

    def pending(self) -> Iterator[AppendRequest]:
        """Entries taken and not yet durable, in this order. Await nothing between two of them."""
        for appender in self._appenders():
            yield from appender.pending
        yield from self._waiting

    def _appenders(self) -> tuple[Appender, ...]:
        """The appenders of all ledgers that are not closed yet, oldest first."""
        return self._finishing if self._appender is None else (*self._finishing, self._appender)

    def run_confirmed(
        self, appender: Appender, entries: list[Entry], batch: list[AppendRequest], size_bytes: int
    ) -> None:
        """Called by an appender: a run is durable. HOT: once for each batch of answers."""
        span, listener = appender.span, self._listener
        # The writers of a closed log are closed or detached: none of them confirms anything.
        assert listener is not None
        # First the span: reads and acknowledgements of these entries are checked against it.
        span.entries += len(entries)
        span.size_bytes += size_bytes
        self.entries_added += len(entries)
        now_s = self._clock.monotonic()
        # The cache before the listener, which wakes dispatchers: they read from the cache.
        self.cached.insert(span.ledger_id, entries, size_bytes, now_s)
        listener.run_appended(span.ledger_id, entries, batch)
        # Last, as the listener may change which ledger is open. A ledger that is finishing gets its
        # last confirmations here, too, and needs no replacing.
        age_s = now_s - appender.begun_at_s
        if appender is self._appender and is_due(self.config, span, age_s, appender.age_max_s):
            self._replace(appender)

    def appender_failed(self, appender: Appender, error: LedgerError) -> None:
        """Called by an appender: its ledger takes no more."""
        # Another client has recovered the ledger. Entries that were not confirmed may be in it or
        # not: only the next owner finds out, and producers send them again there.
        if isinstance(error, LedgerFenced):
            self.fence()
            return
        facts = {"ledger": appender.span.ledger_id, "error": str(error)}
        log.warning("ledger failed", extra=facts)
        # In front of what came later: entries keep the order in which they were taken. Closing the
        # failed ledger finds out where it ends before the next one is opened.
        self._waiting[:0] = appender.take_pending()
        self._replace(appender)
        if not self.termination.is_under_way:  # a termination itself looks whether entries wait
            self.go_on()

    def fence(self) -> None:
        """Stop: another broker has the log."""
        if self.is_fenced:
            return
        self.is_fenced = True
        for each in self._appenders():
            each.writer.detach()  # from now on its confirmations are not passed on
        self._appender = None
        self._finishing = ()
        self._waiting.clear()
        # The task that finds the log fenced may be the switch itself.
        switching = self._switching
        if switching is not None and switching is not asyncio.current_task():
            switching.cancel()
        log.warning("log fenced", extra={"log": self.name})
        # Last: the topic finds the log fenced as a whole, with nothing pending.
        if self._listener is not None:
            self._listener.log_fenced()

    # Changing the ledger that is written

    @property
    def _is_switching(self) -> bool:
        return self._switching is not None and not self._switching.done()

    def _switch_soon(self) -> None:
        """Go on in a new ledger, unless the log is terminated. While a termination is under way, do
        so only if entries wait: a ledger that is open when the end is recorded would take entries
        behind that end."""
        has_ended = self.termination.at is not None
        is_ending = self.termination.is_under_way and not self._waiting
        if self._appender is None and not self._is_switching and not (has_ended or is_ending):
            self._switching = self.spawn(self._switch(), name=f"switch {self.name}")

    async def _switch(self) -> None:
        """Close what takes no more, create the next ledger, append the waiting entries to it.

        Retries until it succeeds: while the bookies are away, producers wait and get no error.
        """
        backoff = Backoff(self.config.retry_first_s, self.config.retry_limit_s, self._random)
        while self._appender is None and not self.is_fenced:
            try:
                # Each step only when the one before is done: the last ledger is closed, so its end
                # is known; the new one is in the record, so the next owner looks for entries there;
                # then it takes entries. A crash before the last step leaves an empty ledger, which
                # the next owner recovers.
                await self._close_finishing()
                appender = await self._new_appender()
                try:
                    await self.recorded.append(appender.span)
                except BaseException:
                    # The record may name the ledger: the next write of the record drops it.
                    appender.writer.detach()
                    raise
                self._use(appender)
            except (LedgerFenced, *OWNERSHIP_LOST):
                self.fence()
            except (LedgerError, CoordinationError) as error:
                self.last_ledger_failed_ms = self._clock.wall_ms()
                delay_s = backoff.next_s()
                facts = {"log": self.name, "error": str(error), "retry_in_s": delay_s}
                log.warning("no ledger to write", extra=facts)
                await asyncio.sleep(delay_s)
            else:
                backoff.reset()
        # The ledger before is closed: it may be one that all cursors have passed.
        self.trimmer.trim_soon()

    async def _close_finishing(self) -> None:
        while self._finishing:
            # One that cannot be closed stays first: those behind it keep their order, and are
            # closed by the next attempt.
            appender = self._finishing[0]
            await appender.writer.close()
            appender.span.closed_at_ms = self._clock.wall_ms()
            # By identity, not the first: a second task may have closed it, too, in the meantime.
            self._finishing = tuple(each for each in self._finishing if each is not appender)

    async def _new_appender(self) -> Appender:
        # Upstream's labels (``LedgerMetadataUtils``): they say to which log a ledger belongs, also
        # where no record names it.
        has_stamps = self.stamps is not None
        appender = Appender(self.run_confirmed, self.appender_failed, has_stamps=has_stamps)
        writer = await self.recorded.ledgers.create(
            ensemble_size=self.config.ensemble_size,
            write_quorum=self.config.write_quorum,
            ack_quorum=self.config.ack_quorum,
            custom={"pulsar/managed-ledger": self.name.encode(), **dict(LABELS)},
            listener=appender,
        )
        # The writer was created with the appender as its listener, so it comes last.
        appender.writer, appender.span = writer, LedgerSpan(writer.ledger_id)
        return appender

    def _use(self, appender: Appender) -> None:
        """Write to this ledger from now on, first what waited for it. Raises ``LedgerError`` where
        the ledger takes nothing; the entries go on waiting then."""
        # Before the first append: a confirmation is inserted into the cache.
        self.cached.begin(appender.span.ledger_id)
        appender.begun_at_s = self._clock.monotonic()
        # Drawn once for each ledger: drawn at each check, nearly all ledgers would go at the lower
        # end.
        spread = 1 + AGE_SPREAD * self._random.random()
        appender.age_max_s = self.config.ledger_age_max_s * spread
        self.last_ledger_created_ms = self._clock.wall_ms()
        self._appender = appender
        if self._waiting:
            try:
                appender.append_all(self._waiting)
            except LedgerError:
                self._replace(appender)
                raise
            self._waiting = []

    async def begin(self) -> None:
        """Make sure that the log has a ledger: a stored cursor needs something to point at."""
        # A log that we created has one. Upstream writes a record before the first ledger is there,
        # and a deletion that ended early leaves a record without ledgers.
        if not self.chain.spans and not self.is_fenced:
            await self._switched()

    async def roll_over(self) -> None:
        """Go on in a new ledger unless the last one has no entry yet.

        Raises ``TopicFenced``, ``StorageUnavailable``, the latter also while it is terminated.
        """
        if self.termination.is_under_way:
            raise StorageUnavailable(f"{self.name} is being terminated")
        appender = self._appender
        if appender is not None and (appender.span.entries or appender.pending_count):
            self._replace(appender)
        await self._switched()

    async def _switched(self) -> None:
        """Return when a ledger is open, unless the log has ended. Raises ``StorageUnavailable`` at
        the deadline, when the switch to that ledger still goes on, and ``TopicFenced``."""
        self._switch_soon()
        try:
            async with asyncio.timeout(CHANGE_DEADLINE_S):
                # A switch that ended may have been followed by another in the same turn.
                while self._switching is not None and self._is_switching:
                    await asyncio.wait((self._switching,))
        except TimeoutError:
            raise StorageUnavailable(
                f"no new ledger in {CHANGE_DEADLINE_S:g} s: are the bookies up?"
            ) from None
        if self.is_fenced or self._is_closing:
            raise TopicFenced(self.name)

    async def drain(self) -> bool:
        """Close the ledgers that are open; whether no entry waits for another one."""
        # What waits for a ledger must become durable, too, and that takes an open one.
        if self._waiting or self._is_switching:
            await self._switched()
        self._finishing, self._appender = self._appenders(), None
        await self._close_finishing()
        # A ledger that failed while it was closed has given its entries back.
        return not self._waiting

    def go_on(self) -> None:
        """Open a ledger for the entries that wait: the log was not terminated."""
        if self._waiting and not (self.is_fenced or self._is_closing):
            self._switch_soon()

    # Deleting

    def sweep(self) -> None:
        """Called periodically: roll over a ledger that grew old, trim what retention kept."""
        appender = self._appender
        if appender is not None:
            age_s = self._clock.monotonic() - appender.begun_at_s
            if is_due(self.config, appender.span, age_s, appender.age_max_s):
                self._replace(appender)
        self.trimmer.trim_soon()

    async def truncate(self) -> None:
        """Move every cursor to the end, then delete all entries there are now.

        What is published meanwhile stays; so does the last ledger of a log that was terminated,
        which says where it ends. Raises ``TopicFenced``, ``StorageUnavailable``.
        """
        # First: only whole ledgers go, and what is published meanwhile goes to the next one. An
        # entry that is appended behind the cursors would keep all of its ledger.
        await self.roll_over()
        end = self.chain.last_confirmed
        # The ledger of after ``roll_over`` may have entries already: the end is before its first.
        if self._appender is not None:
            end = self.chain.previous_of(Position(self._appender.span.ledger_id, 0))
        await self.trimmer.pass_everything(end, CHANGE_DEADLINE_S)
        await self.trimmer.trim(KEEP_NOTHING)

    async def delete(self) -> None:
        """Delete all ledgers and the log's own record; call when nothing uses it any more."""
        # Closing it later writes nothing, then.
        self.is_fenced = True
        # The switch and the trimmer change the record; ``recorded.delete`` must come after all of
        # that.
        await self._end_tasks()
        unclosed, self._appender = self._appenders(), None
        for each in unclosed:
            try:
                # Only to stop the writer in good order: the ledger is deleted, whatever its end is.
                await each.writer.close()
            except LedgerError as error:
                log.info("deleting an unclosed ledger", extra={"error": str(error)})
        self._finishing = ()
        self.cached.clear()
        await self.recorded.delete()
