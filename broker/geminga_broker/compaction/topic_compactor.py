"""The compaction of one topic: its cursor, the ledger in force, and the one run at a time.

The cursor ``__compaction`` is upstream's: up to its mark-delete position the topic is compacted,
into the ledger that a property of its position names. To the log it is a cursor like others, and
keeps what is beyond it; it has no consumers.

A new ledger is in force from the moment the cursor is stored with its name: a crash at any moment
leaves the former ledger in force or the new one, which is complete by then. Ledgers that are not in
force yet, or not any more, are named by two further properties, from before they hold anything
until they are deleted, so that the next owner deletes them::

    run begins     Begun = 8                                in force: 5
    run ends       CompactedTopicLedger = 8, Former = 5     in force: 8
    5 is deleted   (the names go with the next change)

Upstream carries such properties along until its own next compaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from geminga_broker.compaction.compacted_ledger import CompactedLedger
from geminga_broker.compaction.compacted_view import CompactedView
from geminga_broker.compaction.compaction_run import CompactionRun
from geminga_broker.compaction.errors import CompactedLedgerGone, CompactionRunning
from geminga_broker.compaction.report import CompactionReport, CompactionStatus, Progress
from geminga_broker.compaction.selection.survivors import Survivors
from geminga_broker.compaction.stream import CompactionSource
from geminga_broker.errors import BrokerError, StorageUnavailable, TopicFenced
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.cursors.durable_future import DurableFuture
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.writing.confirmation_waiter import ConfirmationWaiter
from geminga_broker.policies.compaction import CompactionConfig
from geminga_ledger import LedgerError
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.topics.compacted_ledger import (
    COMPACTED_LEDGER_PROPERTY,
    COMPACTION_CURSOR,
    compacted_ledger_labels,
    encode_place,
)
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import CoordinationError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# Ledgers that are to be deleted unless ``CompactedTopicLedger`` names them: one that is being
# written, and the one that was in force before.
BEGUN_PROPERTY = "geminga.CompactedTopicLedgerBegun"
FORMER_PROPERTY = "geminga.CompactedTopicLedgerFormer"
# How long ``forget`` may take to store the cursor, which is retried while bookies are away.
STORE_DEADLINE_S = 60.0
# What a run may fail with. A later run begins anew.
FAILURES = (BrokerError, LedgerError, CoordinationError)


class TopicCompactor(Service):
    """Compacts the topic ``name``, whose log is ``managed_ledger``, for ``view``; ``config`` says
    what holds now. Enter it with the log open."""

    def __init__(
        self,
        name: TopicName,
        factory: ManagedLedgerFactory,
        managed_ledger: ManagedLedger,
        clock: Clock,
        view: CompactedView,
        config: Callable[[], CompactionConfig],
    ) -> None:
        super().__init__()
        self.view = view
        self.report = CompactionReport()
        # The cursor ``__compaction``; None for a topic that was never to be compacted.
        self.cursor: Cursor | None = None
        self._name = name
        self._factory = factory
        self._log = managed_ledger
        self._clock = clock
        self._config = config
        # The last run, which may be done. ``trigger`` begins another only when it is.
        self._running: asyncio.Task[object] | None = None
        # Guards the cursor's properties, and with them which ledgers exist and which is in force.
        self._changing = asyncio.Lock()

    async def _close_parts(self) -> None:
        # The topic may have got its cursor, or lost it, at any time since the compactor was opened.
        if self.cursor is not None:
            await self.cursor.__aexit__(None, None, None)

    async def adopt(self, cursor: Cursor) -> None:
        """Take over the topic's cursor ``__compaction``, as it was loaded."""
        await self._take(cursor)
        # Where the topic was compacted before, readers see that at once.
        ledger_id = cursor.position_properties.get(COMPACTED_LEDGER_PROPERTY)
        if ledger_id is not None:
            ledgers = self._factory.ledgers
            # Position and ledger id were stored by one write, so they belong together.
            self.view.ledger = CompactedLedger(ledgers, ledger_id, cursor.mark_delete)
        # In the background: opening a topic does not wait for it.
        if self._unneeded(cursor):
            self.spawn(self._clean_up(cursor), name=f"delete compacted ledgers of {self._name}")

    async def _take(self, cursor: Cursor) -> Cursor:
        """Enter the cursor and connect it with the log."""
        # The topic may have settings of its own, which the factory that made the cursor lacks.
        cursor.configure(self._log.config)
        # The cursor holds the log back like a subscription's; when it moves, ledgers may go.
        cursor.on_ledger_left = self._log.trimmer.trim_soon
        cursor.on_lost = self._log.fence
        # Before it is ``self.cursor``: closing the compactor exits what it finds there.
        await cursor.__aenter__()
        self.cursor = cursor
        return cursor

    @property
    def is_running(self) -> bool:
        """Whether the topic is being compacted now."""
        return self._running is not None and not self._running.done()

    # Asked to compact

    def trigger(self) -> None:
        """Compact in the background. Raises ``CompactionRunning``, ``TopicFenced``."""
        if self.is_running:
            raise CompactionRunning
        if self._is_closing or self._log.is_fenced:
            raise TopicFenced(str(self._name))
        # Here, not in the task: an operator who asks right after the trigger sees it run.
        self.report.status = CompactionStatus.RUNNING
        self.report.last_error = ""
        self._running = self.spawn(self._run(), name=f"compact {self._name}")

    async def check(self, *, may_begin: bool) -> None:
        """Called periodically for a topic that is compacted by threshold: compact if more than the
        threshold is not compacted yet, unless enough others are being compacted.

        The topic gets the cursor with the first check, so that nothing is trimmed before it is
        compacted. Raises ``BrokerError``, ``LedgerError``, ``CoordinationError``.
        """
        if self.is_running or self._log.is_fenced or self._is_closing:
            return
        async with self._changing:
            cursor = await self._own_cursor()
        # Bytes of whole ledgers by their share of entries (``bytes_between``): a threshold needs no
        # more.
        is_due = cursor.backlog_bytes > self._config().threshold_bytes
        # Again: an operator may have triggered it while the cursor was made.
        if is_due and may_begin and not self.is_running:
            self.trigger()

    async def _run(self) -> None:
        began_s = self._clock.monotonic()
        progress: Progress | None = None
        # The reason where the task is cancelled, which is no failure of its own.
        reason = "the topic was closed, or truncated, meanwhile"
        try:
            progress = await self._compact()
        except FAILURES as error:
            reason = str(error)
            log.warning("not compacted", extra={"topic": str(self._name), "error": reason})
        finally:
            # Also for a run that was cancelled: stats must not show it as running for ever.
            duration_s = self._clock.monotonic() - began_s
            if progress is None:
                self.report.failed(self._clock.wall_ms(), duration_s, reason)
            else:
                self.report.succeeded(self._clock.wall_ms(), duration_s, progress)

    async def _compact(self) -> Progress:
        async with self._changing:
            cursor = await self._own_cursor()
            # First: there is one name for a ledger that is begun, and one for the former.
            await self._delete_unneeded(cursor)
            source = await self._source()
            if source is None:
                return Progress()
            run = CompactionRun(
                source,
                self._config(),
                partition=self._name.partition_index,
                clock=self._clock,
                on_written=self.report.wrote,
            )
            survivors = await run.find_newest()
            # Long: both phases hold the lock, so ``stop`` comes before what wants to change the
            # cursor.
            ledger_id = await self._write(cursor, run, survivors, source.upto)
            # A crash before this write of the cursor leaves the new ledger named as begun, one
            # after it the former named as such: the next owner deletes what is not in force.
            await self._put_in_force(cursor, ledger_id, source.upto)
            try:
                await self._delete_unneeded(cursor)
            except FAILURES as error:  # the next compaction, or owner, tries again
                log.info("compacted ledger not deleted yet", extra={"error": str(error)})
            return run.progress

    async def _source(self) -> CompactionSource | None:
        """What there is to compact; None where nothing was published since the last time."""
        former = self.view.ledger
        if former is not None:
            try:
                await former.opened()
            except CompactedLedgerGone:
                # Deleted by hand, say. The log may still have all of it: compact from its start.
                former = None
        # Fixed now, for both phases: what is published meanwhile is left to the next compaction.
        upto = self._log.reader.readable_upto
        if upto[1] < 0 or (former is not None and upto <= former.horizon):
            return None
        return CompactionSource(self._log.reader, former, upto)

    # The steps of a run

    async def _own_cursor(self) -> Cursor:
        """The cursor; created before the first entry of the log where there is none yet."""
        if self.cursor is None:
            # The cursor's position must be in a ledger of the log.
            await self._log.begin()
            chain = self._log.chain
            cursor = await self._factory.create_cursor(
                self._log.name, COMPACTION_CURSOR, chain, chain.before_first, {}
            )
            return await self._take(cursor)
        return self.cursor

    async def _write(
        self, cursor: Cursor, run: CompactionRun, survivors: Survivors, upto: Position
    ) -> int:
        """Phase two: write the new ledger; returns its id. It is closed, and named as begun."""
        written = ConfirmationWaiter()
        config = self._log.config
        place = encode_place(*upto, partition=self._name.partition_index)
        writer = await self._factory.ledgers.create(
            ensemble_size=config.ensemble_size,
            write_quorum=config.write_quorum,
            ack_quorum=config.ack_quorum,
            custom=compacted_ledger_labels(str(self._name), place),
            listener=written,
        )
        try:
            # Named before anything is written: a broker that dies here leaves a ledger that the
            # next owner finds.
            begun = {**cursor.position_properties, BEGUN_PROPERTY: writer.ledger_id}
            cursor.position_properties = begun
            await _stored(cursor)
            await run.write(survivors, writer, written)
        except BaseException:
            # The ledger stays, named as begun: the next run or owner deletes it.
            writer.detach()
            raise
        return writer.ledger_id

    async def _put_in_force(self, cursor: Cursor, ledger_id: int, horizon: Position) -> None:
        """Store the cursor once with its new position, the new ledger's name and the former's.

        The view shows the new ledger before the cursor is stored: from then on the log is trimmed
        up to ``horizon``, and the former ledger lacks what was published since.
        """
        # The name as it is stored, also where ``_source`` found that ledger gone: deleting it again
        # does no harm.
        former = cursor.position_properties.get(COMPACTED_LEDGER_PROPERTY)
        # A reset, not an acknowledgement: nothing beyond the horizon is acknowledged.
        cursor.acknowledged.reset(horizon)
        cursor.position_properties = {
            COMPACTED_LEDGER_PROPERTY: ledger_id,
            **({} if former is None else {FORMER_PROPERTY: former}),
        }
        self.view.ledger = CompactedLedger(self._factory.ledgers, ledger_id, horizon)
        await _stored(cursor)

    def _unneeded(self, cursor: Cursor) -> list[int]:
        """The ledgers that are named for deletion. One that was begun may be in force by now."""
        named = cursor.position_properties
        in_force = named.get(COMPACTED_LEDGER_PROPERTY)
        found = (named.get(name) for name in (BEGUN_PROPERTY, FORMER_PROPERTY))
        return [each for each in found if each is not None and each != in_force]

    async def _delete_unneeded(self, cursor: Cursor) -> None:
        """Delete the ledgers that are not in force. Raises ``LedgerError``, ``CoordinationError``.

        The names are taken away with the next write of the cursor: deleting a ledger twice does no
        harm.
        """
        for ledger_id in self._unneeded(cursor):
            await self._factory.ledgers.delete(ledger_id)
        cursor.position_properties = {
            name: value
            for name, value in cursor.position_properties.items()
            if name not in (BEGUN_PROPERTY, FORMER_PROPERTY)
        }
        # Without waiting: a name too many only makes the next owner delete a ledger twice.
        cursor.changed()

    async def _clean_up(self, cursor: Cursor) -> None:
        """Delete what a broker left that died while it compacted."""
        async with self._changing:
            try:
                await self._delete_unneeded(cursor)
            except FAILURES as error:
                log.info("compacted ledger not deleted yet", extra={"error": str(error)})

    # Ending

    async def stop(self) -> None:
        """Cancel a compaction that runs; what is in force stays so."""
        # Waited for: the cursor must not be written by two tasks.
        if self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait((self._running,))

    async def forget(self) -> None:
        """Delete the compacted ledger because the topic is truncated: all is read from the log.

        Raises ``StorageUnavailable``, and the error with which the cursor's write fails.
        """
        await self.stop()
        async with self._changing:
            cursor = self.cursor
            if cursor is None:
                return
            # Before its ledger is deleted: readers go to the log from now on.
            self.view.ledger = None
            try:
                async with asyncio.timeout(STORE_DEADLINE_S):
                    if self._unneeded(cursor):
                        # Of a compaction that was stopped. There is one name for a former ledger,
                        # so these go first. Stored before that: the run may have been about to
                        # store which ledger is in force, and a deleted one must not be.
                        await _stored(cursor)
                        await self._delete_unneeded(cursor)
                    former = cursor.position_properties.get(COMPACTED_LEDGER_PROPERTY)
                    cursor.position_properties = {} if former is None else {FORMER_PROPERTY: former}
                    await _stored(cursor)
                await self._delete_unneeded(cursor)
            except (TimeoutError, LedgerError, CoordinationError) as error:
                raise StorageUnavailable(
                    f"the compacted ledger was not deleted: {error}"
                ) from error

    async def delete(self) -> None:
        """Delete the ledgers, then the cursor: the topic is being deleted."""
        await self.stop()
        async with self._changing:
            cursor = self.cursor
            if cursor is None:
                return
            # The ledgers first: with the cursor their names would be lost.
            in_force = cursor.position_properties.get(COMPACTED_LEDGER_PROPERTY)
            self.view.ledger = None
            for ledger_id in self._unneeded(cursor):
                await self._factory.ledgers.delete(ledger_id)
            if in_force is not None:
                await self._factory.ledgers.delete(in_force)
            await cursor.delete()


async def _stored(cursor: Cursor) -> None:
    """Return when the present state of the cursor is durable, however long bookies are away.

    Raises the error with which the write fails for good: another broker has the cursor.
    """
    stored = DurableFuture()
    cursor.changed(stored)
    await stored
