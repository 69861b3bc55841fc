"""The delayed messages of one subscription: which are held back, and when each is due. Pure.

Those of the newest ledgers are in memory, in the *open* wheel. When there are enough and their
last ledger is over (``is_enough`` tells the owner of the index to end it), that wheel becomes a
bucket: it is written down, and from then on only a byte for each of its messages stays, and the
segment that is due next, in the *loaded* wheel. Buckets never share a ledger, as upstream's: what
still comes of a ledger that is in one stays in memory.

A message counts as long as it is held. So it does no harm when a wheel or a bucket still has one
that came out, was acknowledged or was passed by the mark-delete position: it is no longer held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from geminga_broker.delayed.schedule.delayed_bitmap import DelayedBitmap
from geminga_broker.delayed.schedule.time_wheel import TimeWheel
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.policies.delayed import DelayedConfig
from geminga_protocol.records.delayed_buckets import BucketKey, DelayedIndex, SegmentSummary

# A segment is read so long before its first message is due.
LOAD_AHEAD_MS = 10_000


@dataclass(slots=True)
class Bucket:
    """A bucket that is written: its ledger, and from when to when each segment is due."""

    key: BucketKey
    ledger_id: int
    segments: list[tuple[int, int]]
    next_segment: int = 0

    @property
    def load_from_ms(self) -> int | None:
        """When the next segment is to be read; None when all were."""
        if self.next_segment >= len(self.segments):
            return None
        return self.segments[self.next_segment][0] - LOAD_AHEAD_MS


@dataclass(slots=True)
class OpenBucket:
    """Messages of consecutive ledgers that are not written yet."""

    wheel: TimeWheel
    key: BucketKey


class DelayedMessageIndex:
    """Delayed messages; ``now_ms`` is the time (Unix time), here and in all methods.

    ``sealing`` is the bucket that is to be written, until ``written`` or ``clear``.
    """

    def __init__(self, config: DelayedConfig, now_ms: int) -> None:
        self.config = config
        self.held = DelayedBitmap()
        self.buckets: dict[BucketKey, Bucket] = {}
        self.sealing: OpenBucket | None = None
        self._loaded = TimeWheel(now_ms, config.slot_ms)
        self._open: OpenBucket | None = None
        # The last ledger of any bucket.
        self._bucketed_upto = -1
        self._passed_ledger_id = -1

    def __len__(self) -> int:
        return len(self.held)

    @property
    def size_bytes(self) -> int:
        """The memory that the index takes, about."""
        return sum(wheel.size_bytes for wheel in self._wheels()) + len(self.held)

    @property
    def loaded_count(self) -> int:
        """How many messages are in memory with their times."""
        return sum(map(len, self._wheels()))

    @property
    def bucket_count(self) -> int:
        """Into how many buckets the messages are cut, those that are not written yet included."""
        return len(self.buckets) + sum(each is not None for each in (self.sealing, self._open))

    def _wheels(self) -> list[TimeWheel]:
        parts = [each.wheel for each in (self.sealing, self._open) if each is not None]
        return [self._loaded, *parts]

    # Coming

    def add(self, deliver_at_ms: int, ledger_id: int, entry_id: int, now_ms: int) -> bool:
        """Hold a message back; False where it is due already."""
        if deliver_at_ms <= now_ms:
            return False
        if self.held.add(ledger_id, entry_id):
            self._wheel_for(ledger_id, now_ms).add(deliver_at_ms, ledger_id, entry_id)
        return True

    def _wheel_for(self, ledger_id: int, now_ms: int) -> TimeWheel:
        """The open bucket's, if the message may be in it: ledgers come in their order."""
        if ledger_id <= self._bucketed_upto:
            return self._loaded
        open_bucket = self._open
        if open_bucket is not None and ledger_id > open_bucket.key.last_ledger_id:
            if self.is_enough:
                self.seal()
                open_bucket = None
            else:
                open_bucket.key = BucketKey(open_bucket.key.first_ledger_id, ledger_id)
        if open_bucket is None:
            wheel = TimeWheel(now_ms, self.config.slot_ms)
            open_bucket = self._open = OpenBucket(wheel, BucketKey(ledger_id, ledger_id))
        is_full = len(open_bucket.wheel) >= self.config.bucket_messages_max
        if is_full or ledger_id < open_bucket.key.first_ledger_id:
            return self._loaded
        return open_bucket.wheel

    # Becoming due

    def take_due(self, now_ms: int, count_max: int) -> list[Position]:
        """Let at most ``count_max`` messages go that are due: they are held no longer."""
        taken: list[Position] = []
        for wheel in self._wheels():
            while len(taken) < count_max:
                due = wheel.take_due(now_ms, count_max - len(taken))
                if not due:
                    break
                release = self.held.release
                taken += [Position(each[1], each[2]) for each in due if release(each[1], each[2])]
        return taken

    def next_ms(self, *, is_loading: bool = False) -> int | None:
        """When to look again: no message is due before, no segment is to be read before, unless
        ``is_loading`` says that segments are being read already."""
        times = [wheel.next_ms() for wheel in self._wheels()]
        if not is_loading:
            times += [bucket.load_from_ms for bucket in self.buckets.values()]
        return min((each for each in times if each is not None), default=None)

    # Buckets

    @property
    def is_enough(self) -> bool:
        """Whether the open bucket has so much that it should be written, and none is being."""
        return self.sealing is None and self.open_count >= self.config.bucket_messages_min

    def seal(self) -> None:
        """Make the open bucket, if there is one, the bucket that is to be written."""
        assert self.sealing is None
        self.sealing, self._open = self._open, None
        if self.sealing is not None:
            self._bucketed_upto = self.sealing.key.last_ledger_id

    @property
    def open_count(self) -> int:
        """How many messages would be read again after a restart, about."""
        return 0 if self._open is None else len(self._open.wheel)

    @property
    def open_upto(self) -> int:
        """The last ledger of the open bucket, which there is."""
        assert self._open is not None
        return self._open.key.last_ledger_id

    def sealed_messages(self) -> Iterator[list[DelayedIndex]]:
        """Those of the bucket that is to be written, in the order of their times, in pieces."""
        assert self.sealing is not None
        for piece in self.sealing.wheel.in_order():
            yield [each for each in piece if each[1:] in self.held]

    def unwritable(self) -> None:
        """The bucket is too large to be written: its messages stay in memory."""
        assert self.sealing is not None
        for piece in self.sealing.wheel.in_order():
            self.loaded(piece)
        self.sealing = None

    def written(self, sealed: OpenBucket, bucket: Bucket) -> None:
        """``sealed`` is written: its messages are read from the bucket when they are due."""
        if self.sealing is sealed:
            self.sealing = None
        self.buckets[bucket.key] = bucket

    def restore(
        self, key: BucketKey, ledger_id: int, summaries: list[SegmentSummary], now_ms: int
    ) -> None:
        """Take a bucket over; what is due of it is not held, so it is read from the topic."""
        first = 0
        while first < len(summaries) and summaries[first].due_last_ms <= now_ms:
            first += 1
        for summary in summaries[first:]:
            for entries_of, members in summary.entries.items():
                self.held.add_bits(entries_of, members)
        segments = [(each.due_first_ms, each.due_last_ms) for each in summaries]
        self.buckets[key] = Bucket(key, ledger_id, segments, first)
        self._bucketed_upto = max(self._bucketed_upto, key.last_ledger_id)

    def segment_wanted(self, now_ms: int) -> Bucket | None:
        """The bucket of which the next segment is to be read now."""
        if self._loaded.has_due(now_ms, self.config.segment_messages_max):
            return None  # what is due already waits for consumers: one after the other
        wanted: Bucket | None = None
        earliest_ms = now_ms + 1
        for bucket in self.buckets.values():
            from_ms = bucket.load_from_ms
            if from_ms is not None and from_ms < earliest_ms:
                wanted, earliest_ms = bucket, from_ms
        return wanted

    def loaded(self, messages: Iterable[DelayedIndex]) -> None:
        """These were read from a bucket, or from the topic itself where a bucket is lost."""
        add = self._loaded.add
        for message in messages:
            if message[1:] in self.held:
                add(*message)

    def unneeded(self) -> list[Bucket]:
        """The buckets of which no message is held any more, of those that are worth a look."""
        if not self.held:
            return list(self.buckets.values())
        return [
            bucket
            for key, bucket in self.buckets.items()
            if (bucket.load_from_ms is None or key.last_ledger_id < self._passed_ledger_id)
            and not self.held.has_any(key.first_ledger_id, key.last_ledger_id)
        ]

    # Going

    def pass_by(self, mark_delete: Position) -> None:
        """Forget what the mark-delete position has passed."""
        self.held.pass_by(mark_delete)
        self._passed_ledger_id = mark_delete[0]

    def clear(self, now_ms: int) -> None:
        """Hold nothing. The buckets stay, ``unneeded``; a message that comes again may be held."""
        self.held.clear()
        self._loaded = TimeWheel(now_ms, self.config.slot_ms)
        self._open = None
        self.sealing = None
        self._bucketed_upto = -1
