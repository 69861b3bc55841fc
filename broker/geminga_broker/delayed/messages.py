"""Holds back the delayed messages of one subscription, and says when they are due.

What a dispatcher reads goes through ``sift``: what is delayed is passed over and noted in the
index. A timer calls ``wake`` when something is due; ``take_due`` then gives it. One task at a time
writes buckets, reads their segments ahead of time and deletes those that nobody needs.
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
from geminga_broker.delayed.schedule.message_index import Bucket, DelayedMessageIndex
from geminga_broker.delayed.schedule.segments import cut, summary_of
from geminga_broker.errors import BrokerError, EntryDamaged, StorageUnavailable
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerSpan
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.policies.delayed import DelayedConfig
from geminga_ledger import EntryCorrupt, LedgerError, NoSuchEntry, NoSuchLedger
from geminga_protocol.records.delayed_buckets import (
    BucketKey,
    DelayedIndex,
    SegmentSummary,
    encode_segment,
    encode_summaries,
)
from geminga_protocol.records.errors import MalformedRecord
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import CoordinationError

log = logging.getLogger(__name__)

# The time of day may be set: it is looked at again at least so often.
LOOK_S_MAX = 60.0
RETRY_S = 1.0
# What the first entry of a bucket takes at most: bookies take 5 MiB.
SUMMARIES_BYTES_MAX = 4 * 1024 * 1024
# A topic that is closed in good order writes down what would else be read again, if it is so much
# of what a bucket has at least.
CLOSING_PART = 10
# What a bucket that cannot be read fails with; its messages are read from the topic.
LOST = (NoSuchLedger, NoSuchEntry, EntryCorrupt, MalformedRecord)


_entry_id = itemgetter(0)


def _unbroken_end(run: list[Entry], start: int, end: int) -> int:
    """Up to which number ``run[start:end]`` has every entry: others were not looked at."""
    first = run[start][0]
    if run[end - 1][0] - first == end - 1 - start:
        return run[end - 1][0] + 1
    index = start
    while run[index][0] - first == index - start:
        index += 1
    return run[index - 1][0] + 1


class DelayedMessages:
    """The delayed messages of ``cursor``; ``wake`` is called when there may be something due.

    ``is_due`` says that ``take_due`` may give something. ``config`` may be replaced at any time.
    """

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
        self.is_due = False
        stored = cursor.store
        self._store = None if stored is None else BucketStore(cursor, stored, topic)
        self._config = DelayedConfig()
        self._index = DelayedMessageIndex(self._kept(self._config), clock.wall_ms())
        self._recovering = asyncio.Lock()
        self._is_recovered = self._store is None
        self._lost: list[BucketKey] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._work: asyncio.Task[object] | None = None
        self._turning: asyncio.Task[object] | None = None
        # Entries of this ledger known not to be delayed, the second excluded.
        self._plain = (-1, 0, 0)

    @property
    def config(self) -> DelayedConfig:
        """How messages are held back."""
        return self._config

    @config.setter
    def config(self, config: DelayedConfig) -> None:
        self._config = config
        self._index.config = self._kept(config)
        self._plain = (-1, 0, 0)

    def _kept(self, config: DelayedConfig) -> DelayedConfig:
        """A subscription that is not stored has no buckets."""
        if self._store is not None:
            return config
        return replace(config, bucket_messages_min=sys.maxsize, bucket_messages_max=sys.maxsize)

    # Counting

    @property
    def count(self) -> int:
        """How many entries are held back."""
        if len(self._index):
            self._index.pass_by(self._cursor.mark_delete)
        return len(self._index)

    @property
    def size_bytes(self) -> int:
        """The memory that the index takes, about."""
        return self._index.size_bytes

    @property
    def bucket_count(self) -> int:
        """Into how many buckets the index is cut."""
        return self._index.bucket_count

    @property
    def loaded_count(self) -> int:
        """How many messages are in memory with their times; the others' are in buckets."""
        return self._index.loaded_count

    # Reading

    def pass_held(self, position: Position) -> Position:
        """The first position from ``position`` on that is not held back."""
        held = self._index.held
        while held:
            end = held.run_end(*position)
            if end == position[1]:
                break
            position = self._managed_ledger.chain.readable_from(Position(position[0], end))
        return position

    def sift(self, ledger_id: int, run: list[Entry]) -> tuple[int, list[Entry]]:
        """How many entries ``run`` begins with that are held back, and those after them that are
        not, up to the next that is."""
        plain_in, plain_from, plain_upto = self._plain
        first = run[0][0]
        if ledger_id == plain_in and plain_from <= first < plain_upto:
            # By number, not by count: what was acknowledged meanwhile is not in the run.
            if run[-1][0] < plain_upto:
                return 0, run
            return 0, run[: bisect_left(run, plain_upto, key=_entry_id)]
        if not self._config.enabled and not len(self._index):
            return 0, run
        passed = 0
        if len(self._index) or not is_plain(run[0][1]):
            passed = self._pass_delayed(ledger_id, run)
        end = self._plain_end(ledger_id, run, passed)
        if end > passed:
            self._plain = (ledger_id, run[passed][0], _unbroken_end(run, passed, end))
            if self._index.is_enough:
                self._look()
        return passed, run if end - passed == len(run) else run[passed:end]

    def _pass_delayed(self, ledger_id: int, run: list[Entry]) -> int:
        now_ms = self._clock.wall_ms()
        count = 0
        for entry_id, payload, _ in run:
            if not self._is_held(ledger_id, entry_id) and not (
                self._config.enabled
                and not is_plain(payload)
                and self._index.add(deliver_at_ms(payload), ledger_id, entry_id, now_ms)
            ):
                break
            count += 1
        if count:
            self._look()
        return count

    def _is_held(self, ledger_id: int, entry_id: int) -> bool:
        return len(self._index) > 0 and (ledger_id, entry_id) in self._index.held

    def _plain_end(self, ledger_id: int, run: list[Entry], start: int) -> int:
        """Up to where ``run`` is not delayed, from ``start`` on."""
        now_ms = self._clock.wall_ms()
        if not len(self._index):
            start = plain_end(run, start)
        for index in range(start, len(run)):
            entry_id, payload, _ = run[index]
            if self._is_held(ledger_id, entry_id) or (
                not is_plain(payload) and deliver_at_ms(payload) > now_ms
            ):
                return index
        return len(run)

    def take_due(self, read_position: Position, count_max: int) -> list[Position]:
        """At most ``count_max`` entries that are due, of those before ``read_position``.

        The others are held no longer, so they are read.
        """
        due = self._index.take_due(self._clock.wall_ms(), count_max)
        self.is_due = len(due) == count_max
        self._look()
        return [each for each in due if each < read_position]

    # Time

    def _look(self) -> None:
        """Have the work done that there is, and set the timer for what comes next."""
        if self._index.is_enough:
            self._end_bucket()
        if self._is_recovered and self._has_work() and not self._is_working:
            self._work = self._cursor.spawn(self._do_work(), name=f"delayed {self._cursor.name}")
        # Work that is under way looks again when it is done. The timer must not count the segments
        # that it reads: they are overdue, and it would go off at once, again and again.
        next_ms = None if self.is_due else self._index.next_ms(is_loading=self._is_working)
        if next_ms is None:
            return
        if self._timer is not None:
            if next_ms >= self._timer_ms:
                return
            self._timer.cancel()
        self._timer_ms = next_ms
        delay_s = max(0, next_ms - self._clock.wall_ms()) / 1000
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(delay_s, LOOK_S_MAX), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self.is_due = True
        self._wake()
        if self.is_due:  # nobody took it, for want of consumers: what follows can wait as well
            return
        self._look()

    # Work with buckets

    @property
    def _is_working(self) -> bool:
        return self._work is not None and not self._work.done()

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
        """Have the bucket written that has enough, now, not when its last ledger is full some day:
        what is in none is read again by the next owner. Buckets share no ledger, so it ends here.
        """
        span = self._managed_ledger.chain.span(self._index.open_upto)
        if span is None:
            return  # trimmed
        if span.closed_at_ms:
            if self._is_read(span):
                self._index.seal()
        elif self._turning is None or self._turning.done():
            work = self._turn_over()
            self._turning = self._cursor.spawn(work, name=f"new ledger for {self._cursor.name}")

    def _is_read(self, span: LedgerSpan) -> bool:
        """Whether the last entry of a ledger that has delayed messages was seen."""
        plain_in, _, plain_upto = self._plain
        return (plain_in, plain_upto) > span.last or (
            self._index.held.last_of(span.ledger_id) == span.last
        )

    async def _turn_over(self) -> None:
        try:
            await self._managed_ledger.roll_over()
        except BrokerError as error:
            log.info("no new ledger", extra={"cursor": self._cursor.name, "error": str(error)})
            return
        self._look()

    async def _do_work(self) -> None:
        while self._has_work():
            try:
                await self._work_once()
            except (LedgerError, CoordinationError, StorageUnavailable) as error:
                log.warning(
                    "index of delayed messages waits",
                    extra={"cursor": self._cursor.name, "error": str(error)},
                )
                await asyncio.sleep(RETRY_S)
            except BrokerError:
                return  # another broker has the cursor
        asyncio.get_running_loop().call_soon(self._look)

    async def _work_once(self) -> None:
        index = self._index
        wanted = index.segment_wanted(self._clock.wall_ms())
        if wanted is not None:
            await self._load_segment(wanted)
        elif index.sealing is not None:
            await self._write_bucket()
        else:
            await self._delete_unneeded()

    async def _load_segment(self, bucket: Bucket) -> None:
        assert self._store is not None
        number = bucket.next_segment
        try:
            messages = await self._store.segment(bucket.ledger_id, number)
        except LOST as error:
            log.error(  # noqa: TRY400 -- what it says is all there is to know
                "a bucket of delayed messages is lost: they are read from the topic",
                extra={"cursor": self._cursor.name, "error": str(error)},
            )
            await self._read_again(bucket)
            bucket.next_segment = len(bucket.segments)
        else:
            bucket.next_segment = number + 1
            self._index.loaded(messages)

    async def _read_again(self, bucket: Bucket) -> None:
        """Ask the messages themselves when they are due."""
        held = self._index.held
        runs = list(held.runs(bucket.key.first_ledger_id, bucket.key.last_ledger_id))
        for ledger_id, first, last in runs:
            position = Position(ledger_id, first)
            while position[1] <= last:
                if self._managed_ledger.chain.span(ledger_id) is None:
                    return  # trimmed: the mark-delete position has passed it
                found = await self._times_from(position, last)
                self._index.loaded(found)
                position = Position(ledger_id, found[-1][2] + 1)

    async def _times_from(self, position: Position, last: int) -> list[DelayedIndex]:
        try:
            entries = await self._managed_ledger.reader.read(position, last - position[1] + 1)
        except EntryDamaged:
            # Whoever reads it when it is due says what is wrong.
            return [(self._clock.wall_ms(), position[0], position[1])]
        return [(deliver_at_ms(payload), position[0], entry_id) for entry_id, payload, _ in entries]

    async def _write_bucket(self) -> None:
        assert self._store is not None
        sealing = self._index.sealing
        assert sealing is not None
        summaries, segments = [], []
        for segment in cut(self._index.sealed_messages(), self._config):
            if segment:
                summaries.append(summary_of(segment))
                segments.append(encode_segment(segment))
            await asyncio.sleep(0)
            if self._index.sealing is not sealing:
                return  # all was forgotten meanwhile
        encoded = encode_summaries(summaries)
        if len(encoded) > SUMMARIES_BYTES_MAX:
            log.warning(
                "a bucket of delayed messages is too large: it stays in memory",
                extra={"cursor": self._cursor.name, "size_bytes": len(encoded)},
            )
            self._index.unwritable()
            return
        times = [(each.due_first_ms, each.due_last_ms) for each in summaries]
        ledger_id = await self._store.write(sealing.key, encoded, segments)
        # A lost one of this name is replaced: the name is not to be forgotten any more.
        self._lost = [key for key in self._lost if key != sealing.key]
        self._index.written(sealing, Bucket(sealing.key, ledger_id, times))

    async def _delete_unneeded(self) -> None:
        assert self._store is not None
        unneeded = [each.key for each in self._index.unneeded()]
        lost, self._lost = self._lost, []
        for key in unneeded:
            del self._index.buckets[key]
        try:
            await self._store.delete([*unneeded, *lost])
        except BaseException:
            self._lost += [*unneeded, *lost]
            raise

    # Coming and going

    async def recover(self) -> None:
        """Take over the buckets of the owner before, once. Raises ``StorageUnavailable``."""
        async with self._recovering:
            if self._is_recovered:
                return
            try:
                await self._recover()
            except (LedgerError, CoordinationError) as error:
                raise StorageUnavailable(str(error)) from error
            self._is_recovered = True
        self._look()

    async def _recover(self) -> None:
        assert self._store is not None
        found: list[tuple[BucketKey, int, list[SegmentSummary]]] = []
        lost: list[BucketKey] = []
        for key, ledger_id in self._store.named().items():
            try:
                found.append((key, ledger_id, await self._store.summaries(ledger_id)))
            except LOST as error:
                log.error(  # noqa: TRY400 -- what it says is all there is to know
                    "a bucket of delayed messages is lost: they are read again",
                    extra={"cursor": self._cursor.name, "error": str(error)},
                )
                lost.append(key)
        # Only now, and at one time: were some restored before another cannot be read, what becomes
        # due until the next attempt would stay held, and its segments count as passed.
        now_ms = self._clock.wall_ms()
        for key, ledger_id, summaries in found:
            self._index.restore(key, ledger_id, summaries, now_ms)
        self._lost += lost
        self._index.pass_by(self._cursor.mark_delete)

    def passed(self) -> None:
        """The mark-delete position has moved far: let go of what it has passed."""
        if len(self._index) or self._index.buckets:
            self._index.pass_by(self._cursor.mark_delete)
            self._look()

    def clear(self) -> None:
        """Everything is read again, or nothing is left: hold nothing."""
        if self._store is not None and not self._is_recovered and not self._recovering.locked():
            self._is_recovered = True
            self._lost = list(self._store.named())
        if len(self._index) or self._index.buckets:
            self._index.clear(self._clock.wall_ms())
        self._plain = (-1, 0, 0)
        self._look()

    async def finish(self) -> None:
        """Before the cursor is closed in good order: write down what would be read again."""
        index = self._index
        enough = index.config.bucket_messages_min // CLOSING_PART
        if self._store is None or not self._is_recovered or index.open_count <= enough:
            return
        if index.sealing is None:
            index.seal()
            self._look()
        if self._work is not None:
            await asyncio.wait((self._work,))

    async def delete(self) -> None:
        """Before the cursor is deleted: delete the ledgers of its buckets.

        Raises ``StorageUnavailable``.
        """
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._turning, self._work):
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))
        if self._store is not None:
            try:
                await self._store.delete_all()
            except (LedgerError, CoordinationError) as error:
                raise StorageUnavailable(str(error)) from error
