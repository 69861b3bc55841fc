"""The delayed messages of one subscription: which are held back, and when each is due. Pure.

Those of the newest ledgers are in memory, in the *open* bucket's wheel. When there are enough and
their last ledger is complete (``is_enough`` asks the owner of the index to end it), the bucket is
*sealed* and then written; from then on only a byte for each of its messages stays in memory, and
the segment that is due next, in the *loaded* wheel. Buckets never share a ledger, as upstream's:
messages that still come of a ledger that is in a bucket stay in the loaded wheel::

    add ─▶ open ─▶ sealing ─▶ bucket (stored) ─▶ segment by segment ─▶ loaded ─▶ take_due
       └───────────────────────────────────────────────────────────────▶

The set ``held`` decides whether a message counts. So it does no harm when a wheel or a bucket still
has one that came out, was acknowledged or was passed by the mark-delete position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from geminga_broker.delayed.schedule.delayed_bitmap import DelayedBitmap
from geminga_broker.delayed.schedule.time_wheel import MESSAGE_BYTES, TimeWheel
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.policies.delayed import DelayedConfig
from geminga_protocol.records.topics.delayed_buckets import BucketKey, DelayedIndex, SegmentSummary

# How long before its first message is due a segment is read.
LOAD_AHEAD_MS = 10_000


@dataclass(slots=True)
class Bucket:
    """A bucket that is stored."""

    key: BucketKey
    ledger_id: int
    # When the first and the last message of each segment are due (Unix time).
    segments: list[tuple[int, int]]
    # The first segment that was not read yet.
    next_segment: int = 0

    @property
    def load_from_ms(self) -> int | None:
        """When the next segment is to be read (Unix time); None when all were."""
        if self.next_segment >= len(self.segments):
            return None
        return self.segments[self.next_segment][0] - LOAD_AHEAD_MS


@dataclass(slots=True)
class OpenBucket:
    """Messages of consecutive ledgers that are not written yet."""

    wheel: TimeWheel
    key: BucketKey


@dataclass(frozen=True, slots=True)
class DelayedFigures:
    """What statistics show of the delayed messages of one subscription."""

    # How many entries are held back.
    count: int = 0
    # About how much memory the index takes.
    size_bytes: int = 0
    # Into how many buckets the messages are cut, those that are not written yet included.
    buckets: int = 0
    # How many messages are in memory with their times; the others' are in buckets.
    loaded: int = 0


class DelayedMessageIndex:
    """The delayed messages; ``now_ms`` is the time (Unix time), here and in all methods."""

    def __init__(self, config: DelayedConfig, now_ms: int) -> None:
        # May be replaced at any time.
        self.config = config
        # The messages that are held back. What a wheel or a bucket has beyond them does not count.
        self.held = DelayedBitmap()
        # The buckets that are stored.
        self.buckets: dict[BucketKey, Bucket] = {}
        # The bucket that is to be written, until ``written``, ``unwritable`` or ``clear``.
        self.sealing: OpenBucket | None = None
        # Messages with their times: those of segments that were read, and those that fit into no
        # bucket.
        self._loaded = TimeWheel(now_ms, config.slot_ms)
        # The bucket of the newest ledgers; None before the first message of one.
        self.open: OpenBucket | None = None
        # The last ledger of any bucket that is sealed or stored.
        self._bucketed_upto = -1
        # The ledger of the mark-delete position, as far as ``pass_by`` was called.
        self._passed_ledger_id = -1

    def figures(self) -> DelayedFigures:
        """What statistics show."""
        wheels = self._wheels()
        loaded = sum(map(len, wheels))
        return DelayedFigures(
            count=len(self.held),
            # A byte for each message that is held, in the bitmaps.
            size_bytes=loaded * MESSAGE_BYTES + len(self.held),
            # One wheel is that of loaded messages, each of the others an unwritten bucket's.
            buckets=len(self.buckets) + len(wheels) - 1,
            loaded=loaded,
        )

    def _wheels(self) -> list[TimeWheel]:
        parts = [each.wheel for each in (self.sealing, self.open) if each is not None]
        return [self._loaded, *parts]

    # Adding

    def add(self, deliver_at_ms: int, ledger_id: int, entry_id: int, now_ms: int) -> bool:
        """Hold a message back; False where it is due already."""
        if deliver_at_ms <= now_ms:
            return False
        # Held already, by a bucket or a wheel that knows its time, or passed by the mark.
        if not self.held.add(ledger_id, entry_id):
            return True
        # A message of a ledger that is in a bucket already stays in the loaded wheel.
        if ledger_id <= self._bucketed_upto:
            self._loaded.add(deliver_at_ms, ledger_id, entry_id)
            return True
        open_bucket = self.open
        # The first message of a further ledger: the one before is complete, as far as it was read.
        if open_bucket is not None and ledger_id > open_bucket.key.last_ledger_id:
            if self.is_enough:
                self.seal()
                open_bucket = None
            else:
                # Not enough for a bucket yet: it goes on over a further ledger.
                open_bucket.key = BucketKey(open_bucket.key.first_ledger_id, ledger_id)
        if open_bucket is None:
            wheel = TimeWheel(now_ms, self.config.slot_ms)
            open_bucket = self.open = OpenBucket(wheel, BucketKey(ledger_id, ledger_id))
        # Entries are read in order, but an earlier ledger may be read again after a redelivery.
        is_full = len(open_bucket.wheel) >= self.config.bucket_messages_max
        is_earlier = ledger_id < open_bucket.key.first_ledger_id
        # Such a message is in memory until it is due; the next owner reads it again.
        wheel = self._loaded if is_full or is_earlier else open_bucket.wheel
        wheel.add(deliver_at_ms, ledger_id, entry_id)
        return True

    # Taking the messages that are due

    def take_due(self, now_ms: int, count_max: int) -> list[Position]:
        """Release at most ``count_max`` messages that are due."""
        taken: list[Position] = []
        # Wheel by wheel, not by time over all: the dispatcher sorts what is due by position.
        for wheel in self._wheels():
            # Again where some of those taken are no longer held.
            while len(taken) < count_max:
                due = wheel.take_due(now_ms, count_max - len(taken))
                if not due:
                    break
                release = self.held.release
                taken += [Position(each[1], each[2]) for each in due if release(each[1], each[2])]
        return taken

    def next_ms(self, *, is_loading: bool = False) -> int | None:
        """When to check again (Unix time): before, no message is due and no segment is to be read.
        Segments do not count where ``is_loading`` says that they are being read already."""
        times = [wheel.next_ms() for wheel in self._wheels()]
        if not is_loading:
            times += [bucket.load_from_ms for bucket in self.buckets.values()]
        return min((each for each in times if each is not None), default=None)

    # Buckets

    @property
    def is_enough(self) -> bool:
        """Whether the open bucket has enough messages to be written, and no other is being
        written."""
        return self.sealing is None and self.open_count >= self.config.bucket_messages_min

    def seal(self) -> None:
        """End the open bucket, if there is one: it is the one to be written now."""
        assert self.sealing is None
        self.sealing, self.open = self.open, None
        if self.sealing is not None:
            # Before it is written: messages of these ledgers that still come must not open another
            # bucket with a ledger that this one has.
            self._bucketed_upto = self.sealing.key.last_ledger_id

    @property
    def open_count(self) -> int:
        """About how many messages are in no bucket, so that the next owner reads them again."""
        return 0 if self.open is None else len(self.open.wheel)

    def sealed_messages(self) -> Iterator[list[DelayedIndex]]:
        """The messages of the bucket to be written, in the order of their times, in pieces."""
        assert self.sealing is not None
        for piece in self.sealing.wheel.in_order():
            yield [each for each in piece if each[1:] in self.held]

    def unwritable(self) -> None:
        """Keep the messages of the sealed bucket in memory: it is too large to be written."""
        assert self.sealing is not None
        for piece in self.sealing.wheel.in_order():
            self.loaded(piece)
        self.sealing = None

    def written(self, sealed: OpenBucket, bucket: Bucket) -> None:
        """Replace ``sealed``, which is stored, by ``bucket``: its messages are read from there."""
        # ``clear`` may have come meanwhile: the bucket is stored all the same, and unneeded.
        if self.sealing is sealed:
            self.sealing = None
        self.buckets[bucket.key] = bucket

    def restore(
        self, key: BucketKey, ledger_id: int, summaries: list[SegmentSummary], now_ms: int
    ) -> None:
        """Take a stored bucket over. Messages that are due by now are not held back: dispatchers
        find them when they read the topic."""
        first = 0
        # Segments are in the order of their times, and a segment is passed over as a whole or not.
        while first < len(summaries) and summaries[first].due_last_ms <= now_ms:
            first += 1
        for summary in summaries[first:]:
            for entries_of, members in summary.entries.items():
                # Those that are acknowledged by now are held as well, until ``pass_by`` or their
                # time.
                self.held.add_bits(entries_of, members)
        segments = [(each.due_first_ms, each.due_last_ms) for each in summaries]
        self.buckets[key] = Bucket(key, ledger_id, segments, first)
        self._bucketed_upto = max(self._bucketed_upto, key.last_ledger_id)

    def segment_wanted(self, now_ms: int) -> Bucket | None:
        """The bucket of which a segment is to be read now; None for none."""
        # A whole segment waits for consumers already: memory has no more than two of them.
        if self._loaded.has_due(now_ms, self.config.segment_messages_max):
            return None
        wanted: Bucket | None = None
        earliest_ms = now_ms + 1
        for bucket in self.buckets.values():
            from_ms = bucket.load_from_ms
            if from_ms is not None and from_ms < earliest_ms:
                wanted, earliest_ms = bucket, from_ms
        return wanted

    def loaded(self, messages: Iterable[DelayedIndex]) -> None:
        """Add messages that were read from a bucket, or from the topic where a bucket is lost."""
        add = self._loaded.add
        for message in messages:
            if message[1:] in self.held:
                add(*message)

    def unneeded(self) -> list[Bucket]:
        """Buckets of which no message is held back any more."""
        if not self.held:
            return list(self.buckets.values())
        # Searching the bitmaps is slow, so other buckets are left out: only one that was read to
        # its end, or that the mark-delete position has passed, can have no message left.
        return [
            bucket
            for key, bucket in self.buckets.items()
            if (bucket.load_from_ms is None or key.last_ledger_id < self._passed_ledger_id)
            and next(self.held.runs(key.first_ledger_id, key.last_ledger_id), None) is None
        ]

    # Forgetting

    def pass_by(self, mark_delete: Position) -> None:
        """Forget what the mark-delete position has passed."""
        self.held.pass_by(mark_delete)
        # The wheels keep their messages: what is not held any more is dropped when it comes out.
        self._passed_ledger_id = mark_delete[0]

    def clear(self, now_ms: int) -> None:
        """Forget all messages. Buckets stay, ``unneeded``, until they are deleted; a message that
        is read again may be held back again."""
        self.held = DelayedBitmap()
        self._loaded = TimeWheel(now_ms, self.config.slot_ms)
        self.open = None
        self.sealing = None
        self._bucketed_upto = -1
