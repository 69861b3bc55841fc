"""Holds back the delayed messages of one subscription until they are due.

What a dispatcher reads goes through ``sift``: entries that are delayed are passed over and added to
the index. A timer calls ``wake`` when something is due; ``take_due`` then returns it. One task at a
time writes buckets, reads their segments ahead of time and deletes those that are unneeded.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter

from geminga_broker.delayed.bucket_store import BucketStore, garbage_of
from geminga_broker.delayed.schedule.deliver_at import deliver_at_ms, is_plain, plain_end
from geminga_broker.delayed.schedule.message_index import (
    Bucket,
    DelayedFigures,
    DelayedMessageIndex,
)
from geminga_broker.delayed.schedule.segments import cut, summary_of
from geminga_broker.errors import BrokerError, EntryDamaged, StorageUnavailable
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.policies.delayed import DelayedConfig
from geminga_ledger import EntryCorrupt, LedgerError, NoSuchEntry, NoSuchLedger
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.topics.delayed_buckets import (
    BucketKey,
    SegmentSummary,
    buckets_of,
    encode_segment,
    encode_summaries,
)
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import CoordinationError

log = logging.getLogger(__name__)

# How often the time of day is checked, at least: it may be set while the timer runs.
CHECK_S_MAX = 60.0
RETRY_S = 1.0
# The largest first entry of a bucket: bookies take 5 MiB.
SUMMARIES_BYTES_MAX = 4 * 1024 * 1024
# A topic that is closed in good order writes an open bucket that has more than this part of the
# least number of messages: the next owner would read them again.
CLOSING_PART = 10
# The errors of a bucket that cannot be read; its messages are read from the topic.
LOST = (NoSuchLedger, NoSuchEntry, EntryCorrupt, MalformedRecord)


_entry_id = itemgetter(0)


def _unbroken_end(run: list[Entry], start: int, end: int) -> int:
    """The entry id behind the first unbroken sequence of ids in ``run[start:end]``. Entries that a
    gap leaves out were acknowledged, and were not parsed."""
    first = run[start][0]
    if run[end - 1][0] - first == end - 1 - start:
        return run[end - 1][0] + 1
    index = start
    while run[index][0] - first == index - start:
        index += 1
    return run[index - 1][0] + 1


class DelayedMessages:
    """The delayed messages of ``cursor``; ``wake`` is called when something may be due."""

    def __init__(
        self,
        managed_ledger: ManagedLedger,
        cursor: Cursor,
        clock: Clock,
        *,
        topic: str,
        wake: Callable[[], None],
    ) -> None:
        self._managed_ledger = managed_ledger
        self._cursor = cursor
        self._clock = clock
        self._wake = wake
        # ``take_due`` may return something. While it is True no further timer is set: the
        # dispatcher is to take what is due.
        self.is_due = False
        # Where buckets are stored; None for a subscription that is not stored itself.
        stored = cursor.store
        self._store = None if stored is None else BucketStore(cursor, stored.ledgers, topic)
        self._index = DelayedMessageIndex(DelayedConfig(), clock.wall_ms())
        self.apply(DelayedConfig())
        # Of several consumers that connect at once, one recovers the buckets.
        self._recovering = asyncio.Lock()
        # Until then no work with buckets is done: those of the owner before are not known yet.
        self._is_recovered = self._store is None
        # Buckets that cannot be read: their names are to be taken out of the cursor.
        self._lost: list[BucketKey] = []
        # The timer, and the time that it is set for (Unix time).
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        # The tasks that work with buckets, and that roll the log over to end one. At most one at a
        # time, as ``BucketStore`` demands. They are tasks of the cursor, whose close ends them.
        self._work: asyncio.Task[object] | None = None
        self._rolling_over: asyncio.Task[object] | None = None

    def apply(self, config: DelayedConfig) -> None:
        """Hold messages back as ``config`` says from now on."""
        self._config = config
        # A subscription that is not stored writes no buckets.
        if self._store is None:
            config = replace(
                config, bucket_messages_min=sys.maxsize, bucket_messages_max=sys.maxsize
            )
        self._index.config = config
        # A ledger and the entries of it that are known not to be delayed, from the first up to the
        # second, which is excluded: what is read again, as consumers did not take it, is not parsed
        # again.
        self._plain = (-1, 0, 0)

    def figures(self) -> DelayedFigures:
        """What statistics show, without what the mark-delete position has passed by now."""
        if self._index.held:
            self._index.pass_by(self._cursor.mark_delete)
        return self._index.figures()

    # Reading

    def pass_held(self, position: Position) -> Position:
        """The first position from ``position`` on whose entry is not held back."""
        held = self._index.held
        # Across ledgers: the run may end with its ledger, and the next begin with another run.
        while held:
            end = held.run_end(*position)
            if end == position[1]:
                break
            position = self._managed_ledger.chain.readable_from(Position(position[0], end))
        return position

    def sift(self, ledger_id: int, run: list[Entry]) -> tuple[int, list[Entry]]:
        """Split a run: how many entries at its start are held back, and the entries behind them
        that are not, up to the next that is. HOT: each entry of a Shared subscription comes here.
        """
        plain_in, plain_from, plain_upto = self._plain
        first = run[0][0]
        # What was looked at before, and was plain.
        if ledger_id == plain_in and plain_from <= first < plain_upto:
            # By entry id, not by count: what was acknowledged meanwhile is not in the run.
            if run[-1][0] < plain_upto:
                return 0, run
            return 0, run[: bisect_left(run, plain_upto, key=_entry_id)]
        held = self._index.held
        if not self._config.enabled and not held:
            return 0, run
        # What is held back, or is to be, at the start of the run.
        passed = 0
        if held or not is_plain(run[0][1]):
            passed = self._pass_delayed(ledger_id, run)
        # ``end`` is the index of the first entry behind them that is held back, or is to be. While
        # nothing is held back, one quick loop finds the first entry worth a closer look.
        now_ms = self._clock.wall_ms()
        has_held = len(held) > 0
        for end in range(passed if has_held else plain_end(run, passed), len(run)):
            entry_id, payload, _ = run[end]
            if (has_held and (ledger_id, entry_id) in held) or (
                not is_plain(payload) and deliver_at_ms(payload) > now_ms
            ):
                break
        else:
            end = len(run)
        if end > passed:
            # Not beyond a gap: what the run leaves out was never parsed, and may come later.
            self._plain = (ledger_id, run[passed][0], _unbroken_end(run, passed, end))
            # The ledger may be read to its end now, and the open bucket end with it.
            if self._index.is_enough:
                self._check()
        return passed, run if end - passed == len(run) else run[passed:end]

    def _pass_delayed(self, ledger_id: int, run: list[Entry]) -> int:
        """How many entries at the start of ``run`` are held back, after adding the delayed ones to
        the index."""
        now_ms = self._clock.wall_ms()
        held = self._index.held
        count = 0
        for entry_id, payload, _ in run:
            if (ledger_id, entry_id) not in held and not (
                self._config.enabled
                and not is_plain(payload)
                and self._index.add(deliver_at_ms(payload), ledger_id, entry_id, now_ms)
            ):
                break
            count += 1
        if count:
            self._check()
        return count

    def take_due(self, read_position: Position, count_max: int) -> list[Position]:
        """At most ``count_max`` entries that are due, of those before ``read_position``.

        Due entries behind it are released too: the dispatcher comes to them when it reads on.
        """
        due = self._index.take_due(self._clock.wall_ms(), count_max)
        # Then there may be more of them; the dispatcher asks again when it has sent these.
        self.is_due = len(due) == count_max
        self._check()
        return [each for each in due if each < read_position]

    # Time

    def _check(self) -> None:
        """Start the work with buckets that is to be done, and set the timer for what comes next."""
        if self._index.is_enough:
            self._end_bucket()
        is_working = self._work is not None and not self._work.done()
        if self._is_recovered and self._has_work() and not is_working:
            is_working = True
            self._work = self._cursor.spawn(self._do_work(), name=f"delayed {self._cursor.name}")
        # Work that is under way checks again when it is done. The timer must not count the segments
        # that it reads: they are overdue, and it would go off at once, again and again.
        next_ms = None if self.is_due else self._index.next_ms(is_loading=is_working)
        if next_ms is None:
            return
        if self._timer is not None:
            # The timer that is set comes first, and checks again.
            if next_ms >= self._timer_ms:
                return
            self._timer.cancel()
        self._timer_ms = next_ms
        # By the wall clock, which may be set while the timer runs by the monotonic one: so it never
        # runs longer than ``CHECK_S_MAX``.
        delay_s = max(0, next_ms - self._clock.wall_ms()) / 1000
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(delay_s, CHECK_S_MAX), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self.is_due = True
        self._wake()
        # ``wake`` mostly leads to ``take_due``. Where it does not, there is no consumer, and what
        # is due later can wait as well: the next ``take_due`` sets the timer again.
        if not self.is_due:
            self._check()

    # Work with buckets

    def _has_work(self) -> bool:
        if self._store is None:
            return False
        index = self._index
        return bool(
            index.sealing is not None
            or self._lost
            or index.segment_wanted(self._clock.wall_ms())
            or (index.buckets and index.unneeded())
            or garbage_of(self._cursor.properties)
        )

    def _end_bucket(self) -> None:
        """Seal the open bucket, which has enough messages, when its last ledger is complete.

        An open ledger is closed for that, since it may take hours to become full: the next owner
        reads again what is in no bucket. Buckets share no ledger, so the bucket ends with it.
        """
        assert self._index.open is not None
        span = self._managed_ledger.chain.span(self._index.open.key.last_ledger_id)
        if span is None:
            return  # trimmed
        if span.closed_at_ms:
            # Complete when its last entry was read, too: that one is known to be plain, or held.
            plain_in, _, plain_upto = self._plain
            is_plain_to_end = (plain_in, plain_upto) > span.last
            if is_plain_to_end or self._index.held.last_of(span.ledger_id) == span.last:
                self._index.seal()
        elif self._rolling_over is None or self._rolling_over.done():
            name = f"new ledger for {self._cursor.name}"
            self._rolling_over = self._cursor.spawn(self._roll_over(), name=name)

    async def _roll_over(self) -> None:
        try:
            await self._managed_ledger.roll_over()
        except BrokerError as error:
            log.info("no new ledger", extra={"cursor": self._cursor.name, "error": str(error)})
            return
        self._check()

    async def _do_work(self) -> None:
        """Work with buckets until there is nothing to do: what consumers wait for comes first."""
        assert self._store is not None
        index = self._index
        while self._has_work():
            try:
                if (wanted := index.segment_wanted(self._clock.wall_ms())) is not None:
                    await self._load_segment(wanted)
                elif index.sealing is not None:
                    await self._write_bucket()
                else:
                    # What no message needs any more: buckets, and names of buckets that are lost.
                    keys = [each.key for each in index.unneeded()]
                    for key in keys:
                        del index.buckets[key]
                    keys += self._lost
                    self._lost = []
                    try:
                        await self._store.delete(keys)
                    except BaseException:
                        # The index does not know them any more: kept here for the next attempt.
                        self._lost += keys
                        raise
            except (LedgerError, CoordinationError, StorageUnavailable) as error:
                log.warning(
                    "index of delayed messages waits",
                    extra={"cursor": self._cursor.name, "error": str(error)},
                )
                await asyncio.sleep(RETRY_S)
            except BrokerError:
                return  # another broker has the cursor
        # When this task is done: until then no other one is started.
        asyncio.get_running_loop().call_soon(self._check)

    async def _load_segment(self, bucket: Bucket) -> None:
        assert self._store is not None
        number = bucket.next_segment
        try:
            # While this waits, ``clear`` may come: then ``held`` is empty, and ``loaded`` takes
            # nothing.
            messages = await self._store.segment(bucket.ledger_id, number)
        except LOST as error:
            log.error(  # noqa: TRY400 -- what it says is all there is to know
                "a bucket of delayed messages is lost: they are read from the topic",
                extra={"cursor": self._cursor.name, "error": str(error)},
            )
            # All that is held of its ledgers: only the segments say which of them has which
            # message.
            await self._read_again(bucket)
            bucket.next_segment = len(bucket.segments)
        else:
            # After the read: a segment whose read fails is read again.
            bucket.next_segment = number + 1
            self._index.loaded(messages)

    async def _read_again(self, bucket: Bucket) -> None:
        """Learn from the messages themselves when they are due."""
        held, log_reader = self._index.held, self._managed_ledger.reader
        # A copy: entries are released while their messages are read.
        runs = list(held.runs(bucket.key.first_ledger_id, bucket.key.last_ledger_id))
        for ledger_id, first, last in runs:
            at = first
            while at <= last:
                if self._managed_ledger.chain.span(ledger_id) is None:
                    return  # trimmed: the mark-delete position has passed it
                try:
                    entries = await log_reader.read(Position(ledger_id, at), last - at + 1)
                except EntryDamaged:
                    # Due now: the dispatcher that reads it deals with the damage.
                    found = [(self._clock.wall_ms(), ledger_id, at)]
                else:
                    found = [(deliver_at_ms(each[1]), ledger_id, each[0]) for each in entries]
                self._index.loaded(found)
                at = found[-1][2] + 1

    async def _write_bucket(self) -> None:
        assert self._store is not None
        sealing = self._index.sealing
        assert sealing is not None
        # Encoded before the ledger is made, with pauses: half a million messages take their time.
        summaries, segments = [], []
        for segment in cut(self._index.sealed_messages(), self._config):
            if segment:
                summaries.append(summary_of(segment))
                segments.append(encode_segment(segment))
            await asyncio.sleep(0)
            if self._index.sealing is not sealing:
                return  # ``clear`` came meanwhile
        encoded = encode_summaries(summaries)
        if len(encoded) > SUMMARIES_BYTES_MAX:
            log.warning(
                "a bucket of delayed messages is too large: it stays in memory",
                extra={"cursor": self._cursor.name, "size_bytes": len(encoded)},
            )
            self._index.unwritable()
            return
        # From here on ``clear`` does not stop it: the bucket is stored, and deleted as unneeded.
        times = [(each.due_first_ms, each.due_last_ms) for each in summaries]
        # Its messages stay in the wheel of ``sealing`` meanwhile, and come out of it when they are
        # due.
        ledger_id = await self._store.write(sealing.key, encoded, segments)
        # Where a lost bucket had this name, it is replaced now: the name must stay.
        self._lost = [key for key in self._lost if key != sealing.key]
        self._index.written(sealing, Bucket(sealing.key, ledger_id, times))

    # Opening and closing

    async def recover(self) -> None:
        """Take over the buckets of the owner before, once. Raises ``StorageUnavailable``."""
        async with self._recovering:
            if self._is_recovered:
                return
            assert self._store is not None
            found: list[tuple[BucketKey, int, list[SegmentSummary]]] = []
            lost: list[BucketKey] = []
            try:
                for key, ledger_id in buckets_of(self._cursor.properties).items():
                    try:
                        found.append((key, ledger_id, await self._store.summaries(ledger_id)))
                    except LOST as error:
                        log.error(  # noqa: TRY400 -- what it says is all there is to know
                            "a bucket of delayed messages is lost: they are read again",
                            extra={"cursor": self._cursor.name, "error": str(error)},
                        )
                        lost.append(key)
            except (LedgerError, CoordinationError) as error:
                raise StorageUnavailable(str(error)) from error
            # Restored only when all were read, and with one time for all. Were some restored and
            # then another not read, messages that become due until the next attempt would stay
            # held, and their segments would be skipped.
            now_ms = self._clock.wall_ms()
            for key, ledger_id, summaries in found:
                self._index.restore(key, ledger_id, summaries, now_ms)
            self._lost += lost
            self._index.pass_by(self._cursor.mark_delete)
            # Last: from here on ``_check`` starts work, which may delete buckets as unneeded.
            self._is_recovered = True
        self._check()

    def passed(self) -> None:
        """Forget what the mark-delete position has passed: it has moved far."""
        if self._index.held or self._index.buckets:
            self._index.pass_by(self._cursor.mark_delete)
            self._check()

    def clear(self) -> None:
        """Hold nothing back: everything is read again, or nothing is left."""
        # Buckets that were not recovered yet need not be: they are to be deleted.
        if self._store is not None and not self._is_recovered and not self._recovering.locked():
            self._is_recovered = True
            # As lost ones they are deleted by name, and never read.
            self._lost = list(buckets_of(self._cursor.properties))
        if self._index.held or self._index.buckets:
            self._index.clear(self._clock.wall_ms())
        self._plain = (-1, 0, 0)
        self._check()

    async def finish(self) -> None:
        """Write the open bucket before the cursor is closed in good order, if it is worth it."""
        index = self._index
        enough = index.config.bucket_messages_min // CLOSING_PART
        if self._store is None or not self._is_recovered or index.open_count <= enough:
            return
        if index.sealing is None:
            index.seal()
            self._check()
        if self._work is not None:
            # ``wait``, as an error of the task must not keep the cursor from being closed.
            await asyncio.wait((self._work,))

    async def delete(self) -> None:
        """Delete the ledgers of all buckets before the cursor is deleted.

        Raises ``StorageUnavailable``.
        """
        if self._timer is not None:
            self._timer.cancel()
        # No task may write another ledger, or name one, while they are deleted.
        for task in (self._rolling_over, self._work):
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))
        if self._store is not None:
            try:
                await self._store.delete_all()
            except (LedgerError, CoordinationError) as error:
                raise StorageUnavailable(str(error)) from error
