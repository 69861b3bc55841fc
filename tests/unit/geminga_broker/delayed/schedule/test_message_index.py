"""Proves that the index gives every message once, never early, in time, across buckets, restarts
and whatever passes them by: what a dumb model does."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.delayed.schedule.message_index import Bucket, DelayedMessageIndex
from geminga_broker.delayed.schedule.segments import cut, summary_of
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.policies.delayed import DelayedConfig
from geminga_protocol.records.topics.delayed_buckets import BucketKey, DelayedIndex, SegmentSummary

SMALL = DelayedConfig(
    tick_ms=400,
    bucket_messages_min=3,
    bucket_messages_max=6,
    segment_messages_max=2,
    segment_step_ms=1000,
)


@dataclass
class Written:
    """Where buckets are written: what survives."""

    buckets: dict[BucketKey, tuple[int, list[SegmentSummary], list[list[DelayedIndex]]]] = field(
        default_factory=dict
    )
    number: int = 100


def work(index: DelayedMessageIndex, written: Written, now_ms: int) -> None:
    """What the task does that looks after the buckets."""
    if index.sealing is not None:
        segments = [each for each in cut(index.sealed_messages(), index.config) if each]
        summaries = [summary_of(each) for each in segments]
        written.number += 1
        written.buckets[index.sealing.key] = (written.number, summaries, segments)
        times = [(each.due_first_ms, each.due_last_ms) for each in summaries]
        index.written(index.sealing, Bucket(index.sealing.key, written.number, times))
    while (bucket := index.segment_wanted(now_ms)) is not None:
        index.loaded(written.buckets[bucket.key][2][bucket.next_segment])
        bucket.next_segment += 1
    for bucket in index.unneeded():
        del index.buckets[bucket.key], written.buckets[bucket.key]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add"] * 6 + ["roll", "restart", "close", "work", "work", "pass"]),
        st.integers(0, 40_000),
        st.integers(0, 3000),
    ),
    max_size=60,
)


class Topic:
    """An index with its buckets, and the model: what waits, and until when."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.next = Position(1, 0)
        self.index = DelayedMessageIndex(SMALL, self.now_ms)
        self.written = Written()
        self.waiting: dict[Position, int] = {}
        self.mark = Position(1, -1)
        # What came out since the last restart.
        self.taken: set[Position] = set()

    def add(self, delay_ms: int) -> None:
        position, self.next = self.next, Position(self.next[0], self.next[1] + 1)
        at = self.now_ms + delay_ms
        assert self.index.add(at, *position, self.now_ms) == (delay_ms > 0)
        if delay_ms:
            self.waiting[position] = at

    def roll(self) -> None:
        self.next = Position(self.next[0] + 1, 0)

    def work(self) -> None:
        work(self.index, self.written, self.now_ms)

    def pass_one(self) -> None:
        if self.waiting:
            self.mark = min(self.waiting)
            del self.waiting[self.mark]
            self.index.pass_by(self.mark)

    def restart(self) -> None:
        """The buckets are taken over; all else is read again: what is due is delivered then."""
        self.index = DelayedMessageIndex(SMALL, self.now_ms)
        self.taken.clear()
        for key, (number, summaries, _) in sorted(self.written.buckets.items()):
            self.index.restore(key, number, summaries, self.now_ms)
        if self.waiting:
            first = min(self.waiting)
            self.index.pass_by(Position(first[0], first[1] - 1))
        for position, at in sorted(self.waiting.items()):
            is_held = position in self.index.held
            if not is_held and not self.index.add(at, *position, self.now_ms):
                del self.waiting[position]

    def close(self) -> None:
        """What is not in a bucket yet is written first, though more may come of its ledger."""
        self.work()
        self.index.seal()
        self.work()
        self.restart()

    def take(self, count_max: int) -> None:
        """What went out before a restart may come again; what waits comes never early."""
        for position in self.index.take_due(self.now_ms, count_max):
            assert position not in self.taken
            assert position > self.mark
            self.taken.add(position)
            if position in self.waiting:
                assert self.waiting.pop(position) <= self.now_ms

    def run_out(self) -> None:
        """Nothing stays."""
        for _ in range(1000):
            self.work()
            self.take(100)
            following = self.index.next_ms()
            if following is None:
                break
            self.now_ms = max(self.now_ms + 1, following)
        assert not self.waiting


@given(STEPS)
def test_the_index_does_what_a_dumb_model_does(steps: list[tuple[str, int, int]]) -> None:
    topic = Topic()
    for what, delay_ms, pause_ms in steps:
        topic.now_ms += pause_ms
        if what == "add":
            topic.add(delay_ms)
        else:
            {
                "roll": topic.roll,
                "work": topic.work,
                "pass": topic.pass_one,
                "restart": topic.restart,
                "close": topic.close,
            }[what]()
        topic.take(4)
    topic.run_out()


def test_a_message_that_is_due_is_not_held() -> None:
    index = DelayedMessageIndex(SMALL, 1000)
    assert not index.add(1000, 1, 1, 1000)
    assert len(index.held) == 0


def test_a_full_bucket_begins_with_another_ledger_only() -> None:
    index = DelayedMessageIndex(SMALL, 0)
    for entry in range(4):
        index.add(9000, 1, entry, 0)
    assert index.open_count == 4
    index.add(9000, 2, 0, 0)
    assert index.sealing is not None
    assert index.sealing.key == BucketKey(1, 1)
    assert index.open_count == 1


def test_what_comes_late_of_a_ledger_in_a_bucket_stays_in_memory() -> None:
    index = DelayedMessageIndex(SMALL, 0)
    for entry in range(4):
        index.add(9000, 1, entry, 0)
    index.seal()
    index.add(9000, 1, 4, 0)
    assert index.open_count == 0
    assert len(index.take_due(9000, 10)) == 5


def test_the_next_owner_writes_no_second_bucket_of_a_ledger() -> None:
    index = DelayedMessageIndex(SMALL, 0)
    index.restore(BucketKey(1, 1), 9, [SegmentSummary(9000, 9000, {1: 0b1})], 0)
    for entry in range(1, 5):
        index.add(9000, 1, entry, 0)
    assert index.open_count == 0


def test_a_segment_is_taken_over_while_anything_of_it_is_still_to_come() -> None:
    index = DelayedMessageIndex(SMALL, 1000)
    due = SegmentSummary(500, 1000, {1: 0b11})
    partly_due = SegmentSummary(1000, 1001, {1: 0b1100})
    index.restore(BucketKey(1, 1), 9, [due, partly_due], 1000)
    assert [(1, entry) in index.held for entry in range(4)] == [False, False, True, True]


def test_a_bucket_too_large_to_be_written_stays_in_memory() -> None:
    index = DelayedMessageIndex(SMALL, 0)
    for entry in range(4):
        index.add(9000, 1, entry, 0)
    index.seal()
    index.unwritable()
    assert index.sealing is None
    assert sorted(index.take_due(9000, 10)) == [(1, entry) for entry in range(4)]


def test_what_is_forgotten_never_comes_and_its_buckets_are_not_needed() -> None:
    index, written = DelayedMessageIndex(SMALL, 0), Written()
    for entry in range(4):
        index.add(9000, 1, entry, 0)
    index.seal()
    work(index, written, 0)
    assert index.buckets
    index.clear(0)
    assert [each.key for each in index.unneeded()] == [BucketKey(1, 1)]
    work(index, written, 0)
    assert index.take_due(10**9, 10) == []
    assert not written.buckets


def test_the_segment_that_is_due_first_is_wanted_first_and_no_sooner_than_needed() -> None:
    index = DelayedMessageIndex(SMALL, 0)
    for key, at in ((BucketKey(1, 1), 90_000), (BucketKey(2, 2), 60_000)):
        summary = SegmentSummary(at, at, {key.first_ledger_id: 1})
        index.restore(key, key.first_ledger_id + 50, [summary], 0)
    assert index.next_ms() == 50_000
    assert index.segment_wanted(49_999) is None
    wanted = index.segment_wanted(85_000)
    assert wanted is not None
    assert wanted.ledger_id == 52


def test_of_a_segment_only_that_is_kept_in_memory_which_still_waits() -> None:
    index = DelayedMessageIndex(SMALL, 0)
    index.restore(BucketKey(1, 1), 9, [SegmentSummary(9000, 9000, {1: 0b111})], 0)
    index.pass_by(Position(1, 1))
    before = index.figures().size_bytes
    index.loaded([(9000, 1, entry) for entry in range(3)])
    assert index.figures().size_bytes == before + 24


def buckets_and_loaded(index: DelayedMessageIndex) -> tuple[int, int]:
    figures = index.figures()
    return figures.buckets, figures.loaded


def test_buckets_and_what_is_loaded_of_them_are_counted() -> None:
    index, written = DelayedMessageIndex(SMALL, 0), Written()
    assert buckets_and_loaded(index) == (0, 0)
    for entry in range(4):
        index.add(90_000, 1, entry, 0)
    assert buckets_and_loaded(index) == (1, 4)
    index.add(90_000, 2, 0, 0)
    assert buckets_and_loaded(index) == (2, 5)
    work(index, written, 0)
    assert buckets_and_loaded(index) == (2, 1)
    work(index, written, 90_000)
    assert buckets_and_loaded(index) == (2, 3), "one segment after the other"


def test_memory_is_a_byte_for_what_is_in_buckets_and_a_few_for_the_rest() -> None:
    index = DelayedMessageIndex(SMALL, 0)
    index.restore(BucketKey(1, 1), 9, [SegmentSummary(9000, 9000, {1: (1 << 1000) - 1})], 0)
    assert (len(index.held), index.figures().size_bytes) == (1000, 1000)
    index.add(9000, 2, 0, 0)
    assert index.figures().size_bytes == 1000 + 1 + 24
