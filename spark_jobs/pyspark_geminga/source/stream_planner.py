"""Plans micro-batches: where a query begins, how far each batch reads, and how it is split.

The planner lives as long as the query, in one process, and keeps nothing that a restart needs:
offsets in Spark's checkpoint have it all. What it asks of the cluster is ``StreamCluster``; what
Spark calls is in ``stream_reader.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Protocol

from geminga import LogPosition
from pyspark_geminga.errors import DataLost
from pyspark_geminga.log_layout import LogLayout, total_bytes, total_entries
from pyspark_geminga.source.admission import ByteBacklog, CountedEntry, RowBacklog, water_fill
from pyspark_geminga.source.broker_view import COUNTED_ENTRIES_MAX, Begin, Snapshot
from pyspark_geminga.source.offsets import Place, SourceOffset
from pyspark_geminga.source.options import ByTopic, Edge, SourceOptions
from pyspark_geminga.source.reading import Part
from pyspark_geminga.source.splits import RecordCuts, parts_of, plan_cuts

log = logging.getLogger(__name__)

# Requests a second of a query that waits for messages: Spark asks 90 times a second.
IDLE_REQUESTS_PER_S = 8.0
IDLE_WAIT_MAX_S = 2.0
# A micro-batch is cut only where it has more than so many splits' worth of a topic: tasks that read
# little cost more than they save.
STREAM_SPLIT_FACTOR = 2


@dataclass(frozen=True, slots=True)
class Limit:
    """How much a batch may read: neither means everything."""

    rows: int | None = None
    bytes: int | None = None


class StreamCluster(Protocol):
    """What the planner asks of the cluster; every call returns when it is answered."""

    @property
    def requests_each_time(self) -> int:
        """About how many requests a snapshot costs."""
        ...

    def snapshot(self) -> Snapshot:
        """The logs of all topics now."""
        ...

    def resolve(self, wanted: ByTopic, default: Edge, topic: str, layout: LogLayout) -> LogPosition:
        """The position that the options ask for."""
        ...

    def begin(self, topic: str, start: LogPosition, end: LogPosition) -> Begin:
        """What is left of the range, of a log whose ledgers are not known."""
        ...

    def entries(
        self, topic: str, start: LogPosition, end: LogPosition, rows_ahead: int
    ) -> Generator[CountedEntry]:
        """The entries between, one after the other. Those of about the next ``rows_ahead`` rows are
        counted while nothing is asked for; closing it ends that."""
        ...

    def follow(self, topics: Sequence[str]) -> None:
        """Have the query's subscription on these topics, from their first message on."""
        ...

    def unfollow(self, topic: str) -> None:
        """Leave the subscription on a topic as it is."""
        ...

    def acknowledge(self, topic: str, end: LogPosition) -> None:
        """Everything before ``end`` is processed."""
        ...


class StreamPlanner:
    """Decides about the batches of one query; ``monotonic_s`` and ``pause`` are its clock."""

    def __init__(
        self,
        cluster: StreamCluster,
        options: SourceOptions,
        *,
        monotonic_s: Callable[[], float],
        pause: Callable[[float], None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._monotonic_s = monotonic_s
        self._pause = pause
        self._snapshot: Snapshot | None = None
        self._ask_at_s = 0.0
        # Spark asks for the initial offset twice, and again after a restart.
        self._initial: SourceOffset | None = None
        self._has_begun = False
        # With Trigger.AvailableNow: where each topic ended when the query began.
        self._targets: Mapping[str, LogPosition] | None = None
        self._planned: SourceOffset | None = None
        # With a limit of rows: what lies behind the batch that was planned last is counted while
        # that batch runs. Each topic's is of use if the next batch begins at its position.
        self._counting: dict[str, RowBacklog] = {}
        # Of each topic a position in an offset, and another name of it.
        self._settled_positions: dict[str, tuple[LogPosition, LogPosition]] = {}
        # Of topics whose ledgers are not known, the entry that came when a batch was planned.
        self._first_entries: dict[str, LogPosition] = {}
        self._followed: set[str] = set()
        self._warned: set[str] = set()

    def initial_offset(self) -> SourceOffset:
        """Where a query begins that has no checkpoint: the same at every call."""
        if self._initial is None:
            snapshot = self._ask()
            self._initial = SourceOffset(
                {
                    topic: Place(
                        self._cluster.resolve(self._options.starting, "latest", topic, layout)
                    )
                    for topic, layout in snapshot.layouts.items()
                },
                is_initial=True,
            )
        return self._initial

    def freeze(self) -> None:
        """Read nothing that is published from now on, and no topic that is made."""
        snapshot = self._ask()
        self._targets = {topic: layout.end for topic, layout in snapshot.layouts.items()}

    def latest_offset(self, start: SourceOffset, limit: Limit) -> SourceOffset | None:
        """How far the batch that begins at ``start`` reads; ``None`` if there is nothing new.

        Raises ``DataLost``.
        """
        snapshot = self._news_since(start)
        if start.is_initial and not self._has_begun:
            # Not where the initial offset is made: Spark has it made again for a query that has a
            # checkpoint, and what lies before the new one may not be processed.
            self.commit(start)
            self._has_begun = True
        begins = self._begins(start, snapshot)
        gone = self._gone(start, snapshot)
        backlogs = {
            topic: (begin, self._target(topic, snapshot))
            for topic, begin in begins.items()
            if snapshot.layouts[topic].may_hold(begin, self._target(topic, snapshot))
        }
        self._planned = start
        if not backlogs:
            return None
        ends, by_records = self._ends(backlogs, snapshot, limit)
        # Also of topics that the batch does not read the checkpoint gets the name that outlives the
        # ledger which was read to its end: that one may be deleted while the query is down.
        places = {
            topic: Place(begins[topic]) if topic in begins else place
            for topic, place in start.places.items()
            if topic not in gone
        }
        places |= {topic: Place(end) for topic, end in ends.items()}
        ranges = {
            topic: snapshot.layouts[topic].between(begins[topic], end)
            for topic, end in ends.items()
        }
        cuts = plan_cuts(ranges, self._options.splits.spared(STREAM_SPLIT_FACTOR), by_records)
        # What the start does not say, or not in the checkpoint, or what is deleted.
        starts = {
            topic: Place(begins[topic])
            for topic in ends
            if topic not in start.places or start.places[topic].position != begins[topic]
        }
        if start.is_initial:
            starts = {**start.places, **starts}
        self._planned = SourceOffset(places, starts, cuts, gone)
        return self._planned

    def parts(self, start: SourceOffset, end: SourceOffset) -> list[Part]:
        """What the tasks of the batch read. Raises ``DataLost``."""
        if self._snapshot is None:
            self._ask()  # after a restart Spark repeats a batch before it asks for another
        snapshot = self._snapshot
        assert snapshot is not None
        parts: list[Part] = []
        for topic, place in end.places.items():
            before = end.start_of(topic, start)
            layout = snapshot.layouts.get(topic)
            if before is None or before.position >= place.position:
                continue
            if layout is None:
                self._lost(topic, before.position, None)
                continue
            begin = self._retained(topic, before.position, place.position, layout)
            parts += [
                Part.of(topic, first, behind, layout, has_come=self._first_entries.get(topic))
                for first, behind in parts_of(begin, place.position, end.cuts.get(topic, ()))
                if layout.may_hold(first, behind)
            ]
        return parts

    def commit(self, end: SourceOffset) -> None:
        """Everything before ``end`` is processed, and in the checkpoint."""
        for topic, place in end.places.items():
            # At the start of a ledger a query stands that begins there, or that read the ledger
            # before it to its end, and acknowledged that under the name which it had then.
            if end.is_initial or place.position.entry_id > 0 or place.position.batch_index > 0:
                self._acknowledge(topic, place.position)

    def report(self) -> dict[str, object] | None:
        """Where topics end, as far as is known, and how far behind the query is: ``lag`` has the
        entries and bytes of each topic that the batch planned last leaves."""
        snapshot = self._snapshot
        if snapshot is None:
            return None
        ends = {topic: Place(layout.end) for topic, layout in snapshot.layouts.items()}
        document = SourceOffset(ends).to_json()
        planned = self._planned
        if planned is not None and all(each.ledgers for each in snapshot.layouts.values()):
            lag: dict[str, dict[str, int]] = {}
            for topic, layout in sorted(snapshot.layouts.items()):
                place = planned.places.get(topic)
                begin = layout.first if place is None else place.position
                left = layout.between(begin, layout.end)
                lag[topic] = {"entries": total_entries(left), "bytes": total_bytes(left)}
            document["lag"] = lag
        return document

    # ---- what is there

    def _ask(self) -> Snapshot:
        self._snapshot = self._cluster.snapshot()
        if self._options.subscription is not None:
            topics = set(self._snapshot.layouts)
            # A consumer that stays at a topic that was deleted would have it made again.
            for topic in self._followed - topics:
                self._cluster.unfollow(topic)
            self._cluster.follow(sorted(topics - self._followed))
            self._followed = topics
        return self._snapshot

    def _news_since(self, start: SourceOffset) -> Snapshot:
        """A snapshot with something new. That there is nothing new is only said of a snapshot that
        was asked for within this call: what was published before it is never missed."""
        options = self._options
        now_s = self._monotonic_s()
        known = self._snapshot
        is_recent = known is not None and now_s - known.asked_s < options.poll_interval_s
        if known is not None and is_recent and self._has_news(start, known):
            return known
        if self._ask_at_s > now_s:
            self._pause(self._ask_at_s - now_s)
        snapshot = self._ask()
        self._settle(start, known, snapshot)
        if self._has_news(start, snapshot):
            self._ask_at_s = snapshot.asked_s
        else:
            wait_s = self._cluster.requests_each_time / IDLE_REQUESTS_PER_S
            wait_s = max(options.idle_wait_s, min(wait_s, IDLE_WAIT_MAX_S))
            self._ask_at_s = snapshot.asked_s + wait_s
        return snapshot

    def _has_news(self, start: SourceOffset, snapshot: Snapshot) -> bool:
        for topic, layout in snapshot.layouts.items():
            place = start.places.get(topic)
            begin = layout.first if place is None else self._settled(topic, place.position)
            if layout.is_lost(begin):
                begin = layout.first
            if layout.may_hold(begin, self._target(topic, snapshot)):
                return True
        return False

    def _target(self, topic: str, snapshot: Snapshot) -> LogPosition:
        """How far the topic may be read."""
        layout = snapshot.layouts[topic]
        if self._targets is None:
            return layout.end
        return self._targets.get(topic, layout.first)

    # ---- where a batch begins and ends

    def _begins(self, start: SourceOffset, snapshot: Snapshot) -> dict[str, LogPosition]:
        begins: dict[str, LogPosition] = {}
        for topic, layout in snapshot.layouts.items():
            place = start.places.get(topic)
            # What came while the query runs, or while it did not, is read from its first message.
            begin = layout.first if place is None else place.position
            begin = self._retained(topic, begin, self._target(topic, snapshot), layout)
            begins[topic] = layout.settled(self._settled(topic, begin))
        return begins

    def _ends(
        self,
        backlogs: Mapping[str, tuple[LogPosition, LogPosition]],
        snapshot: Snapshot,
        limit: Limit,
    ) -> tuple[dict[str, LogPosition], dict[str, list[LogPosition]]]:
        """How far each topic is read, and where that has to be cut for ``maxRecordsPerPartition``.
        A limit of rows counts entries anyway; else they are counted for that option alone."""
        rules = self._options.splits
        cuttings = {topic: RecordCuts(rules) for topic in backlogs if rules.records_max}
        if limit.rows is not None:
            ends = self._ends_by_rows(backlogs, limit.rows, cuttings)
        else:
            ends = self._ends_by_size(backlogs, snapshot, limit)
            for topic, cutting in cuttings.items():
                begin, end = backlogs[topic][0], ends[topic]
                entries = self._cluster.entries(topic, begin, end, COUNTED_ENTRIES_MAX)
                with closing(entries):
                    for entry in entries:
                        cutting.add(entry.rows, entry.behind)
        return ends, {topic: cutting.cuts for topic, cutting in cuttings.items()}

    @staticmethod
    def _ends_by_size(
        backlogs: Mapping[str, tuple[LogPosition, LogPosition]], snapshot: Snapshot, limit: Limit
    ) -> dict[str, LogPosition]:
        """With a limit of bytes, or without any."""
        if limit.bytes is not None:
            by_bytes = {
                topic: ByteBacklog(snapshot.layouts[topic].between(begin, target), begin)
                for topic, (begin, target) in backlogs.items()
            }
            water_fill(by_bytes, limit.bytes)
            return {topic: backlog.position for topic, backlog in by_bytes.items()}
        return {topic: target for topic, (_, target) in backlogs.items()}

    def _ends_by_rows(
        self,
        backlogs: Mapping[str, tuple[LogPosition, LogPosition]],
        rows: int,
        cuttings: Mapping[str, RecordCuts],
    ) -> dict[str, LogPosition]:
        counting = self._counting
        begins = {topic: begin for topic, (begin, _) in backlogs.items()}
        self._stop_counting(
            [topic for topic, each in counting.items() if each.position != begins.get(topic)]
        )
        with ExitStack() as on_failure:
            on_failure.callback(lambda: self._stop_counting([*counting]))
            for topic, (begin, target) in backlogs.items():
                if topic not in counting:
                    entries = self._cluster.entries(topic, begin, target, -(-rows // len(backlogs)))
                    counting[topic] = RowBacklog(entries, begin, target)
                counting[topic].on_taken = cuttings[topic].add if topic in cuttings else None
            water_fill(counting, rows)
            on_failure.pop_all()
        ends = {topic: each.position for topic, each in counting.items()}
        # Where the topic ended when counting began, it may go on now: that is another range.
        self._stop_counting([topic for topic, each in counting.items() if each.is_at_end])
        return ends

    def _stop_counting(self, topics: Sequence[str]) -> None:
        for topic in topics:
            self._counting.pop(topic).close()

    def _settled(self, topic: str, position: LogPosition) -> LogPosition:
        """The position behind a ledger that was read to its end, as the start of the next: deleting
        that ledger loses nothing. It has to be learnt while the ledger is still listed."""
        known = self._settled_positions.get(topic)
        if known is not None and known[0] == position:
            return known[1]
        return position

    def _settle(self, start: SourceOffset, before: Snapshot | None, now: Snapshot) -> None:
        for topic, layout in now.layouts.items():
            place = start.places.get(topic)
            if place is None:
                continue
            known = self._settled(topic, place.position)
            earlier = layout if before is None else before.layouts.get(topic, layout)
            settled = layout.settled_since(earlier, known)
            if settled != place.position:
                self._settled_positions[topic] = place.position, settled

    # ---- what was lost

    def _retained(
        self, topic: str, begin: LogPosition, end: LogPosition, layout: LogLayout
    ) -> LogPosition:
        """Where to begin to read up to ``end``: where it was to, unless what was there is
        deleted."""
        if not layout.ledgers:
            if not 0 <= begin.ledger_id < end.ledger_id:
                return begin  # in a ledger that is there, as the end is in it
            first, is_lost = self._cluster.begin(topic, begin, end)
            if is_lost:
                self._lost(topic, begin, first)
            if first is None:
                return begin
            self._first_entries[topic] = first
            return begin if first.ledger_id == begin.ledger_id else first
        if not layout.is_lost(self._settled(topic, begin)):
            return begin
        self._lost(topic, begin, layout.first)
        return layout.first

    def _gone(self, start: SourceOffset, snapshot: Snapshot) -> tuple[str, ...]:
        """The topics that the query has to read, and that were deleted. Those that the options name
        no longer are not among them: their offsets are kept, so that they can come back."""
        gone: list[str] = []
        for topic, place in start.places.items():
            if topic not in snapshot.layouts and self._options.topics.covers(topic):
                self._lost(topic, place.position, None)
                gone.append(topic)
        return tuple(sorted(gone))

    def _lost(self, topic: str, wanted: LogPosition, available: LogPosition | None) -> None:
        if self._options.fails_on_data_loss:
            raise DataLost(topic, tuple(wanted), None if available is None else tuple(available))
        if topic not in self._warned:
            self._warned.add(topic)
            log.warning(
                "messages were deleted before they were read",
                extra={"topic": topic, "wanted": wanted, "available": available},
            )

    def _acknowledge(self, topic: str, end: LogPosition) -> None:
        if self._options.subscription is not None and topic in self._followed:
            self._cluster.acknowledge(topic, end)
