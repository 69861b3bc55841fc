"""Plans micro-batches: where a query begins, how far each batch reads, and how it is split.

The planner lives as long as the query, in one process, and keeps nothing that a restart needs:
offsets in Spark's checkpoint have it all. What it asks of the cluster is ``StreamCluster``; what
Spark calls is in ``stream_reader.py``.

For each batch Spark calls ``latest_offset``, writes the offset into its checkpoint, and only then
calls ``parts``. After a restart it calls ``parts`` again with the offset that it wrote, so whatever
decides about the parts must be in the offset. ``commit`` comes when the next batch is planned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

from geminga import LogPosition
from pyspark_geminga.errors import DataLost
from pyspark_geminga.log_layout import LogLayout, total_bytes, total_entries
from pyspark_geminga.source.broker_view import COUNTED_ENTRIES_MAX, Begin, Snapshot
from pyspark_geminga.source.decisions.admission import (
    ByteBacklog,
    CountedEntry,
    RowBacklog,
    water_fill,
)
from pyspark_geminga.source.decisions.offsets import Place, SourceOffset
from pyspark_geminga.source.decisions.options import ByTopic, Edge, SourceOptions
from pyspark_geminga.source.decisions.splits import RecordCuts, parts_of, plan_cuts
from pyspark_geminga.source.reading import Part

log = logging.getLogger(__name__)

# Requests a second of a query that waits for messages. Spark itself polls 90 times a second.
IDLE_REQUESTS_PER_S = 8.0
IDLE_WAIT_MAX_S = 2.0
# Splits of a micro-batch are so many times as large as those of a batch read: tasks that read
# little cost more than they save.
STREAM_SPLIT_FACTOR = 2


@dataclass(frozen=True, slots=True)
class Limit:
    """How much a batch may read: rows, or bytes, or everything if both are ``None``."""

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
        """Yield the entries of a range in order. The cluster counts about ``rows_ahead`` rows more
        than were taken, in the background, until the generator is closed."""
        ...

    def follow(self, topics: Sequence[str]) -> None:
        """Open the query's subscription on these topics; a new one begins at the first message."""
        ...

    def unfollow(self, topic: str) -> None:
        """Close the consumer of a topic; its subscription stays as it is."""
        ...

    def acknowledge(self, topic: str, end: LogPosition) -> None:
        """Acknowledge everything before ``end`` for the query's subscription."""
        ...


@dataclass(eq=False, slots=True)
class StreamPlanner:
    """Decides about the batches of one query; ``monotonic_s`` and ``pause`` are its clock."""

    _cluster: StreamCluster
    _options: SourceOptions
    _: KW_ONLY
    monotonic_s: Callable[[], float]
    pause: Callable[[float], None]
    # What Spark calls, over and over; after a restart it begins with ``parts``:
    #
    #   initial_offset -> latest_offset -> [Spark writes the offset] -> parts -> [tasks] -> commit
    #                         ^                                                           |
    #                         +-----------------------------------------------------------+
    #
    _snapshot: Snapshot | None = None  # the newest one
    _ask_at_s: float = 0.0  # no snapshot is taken earlier, by ``monotonic_s``
    # Spark asks for the initial offset twice, and again after a restart.
    _initial: SourceOffset | None = None
    _has_begun: bool = False  # the initial offset was acknowledged
    # With Trigger.AvailableNow: where each topic ended when the query began.
    _targets: Mapping[str, LogPosition] | None = None
    # The end of the batch that was planned last, which ``report`` measures the lag from.
    _planned: SourceOffset | None = None
    # With a limit of rows: while a batch runs, the entries behind it are counted for the next one.
    # A topic's count is of use only if the next batch begins at its position.
    _counting: dict[str, RowBacklog] = field(default_factory=dict[str, RowBacklog])
    # By topic: the position in an offset, and the later name of the same position (see
    # ``_settled``).
    _settled_positions: dict[str, tuple[LogPosition, LogPosition]] = field(
        default_factory=dict[str, tuple[LogPosition, LogPosition]]
    )
    # Of topics whose ledgers are not known, the entry that came when a batch was planned. A task
    # that does not get that entry knows that it was deleted in between.
    _first_entries: dict[str, LogPosition] = field(default_factory=dict[str, LogPosition])
    # Topics on which the query's subscription has a consumer.
    _followed: set[str] = field(default_factory=set[str])
    _warned: set[str] = field(default_factory=set[str])  # topics whose loss was logged: once each

    def initial_offset(self) -> SourceOffset:
        """Where a query without a checkpoint begins: the same position at every call."""
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
        """Read nothing that is published from now on, and no topic that is created later."""
        snapshot = self._ask()
        self._targets = {topic: layout.end for topic, layout in snapshot.layouts.items()}

    def latest_offset(self, start: SourceOffset, limit: Limit) -> SourceOffset | None:
        """How far the batch that begins at ``start`` reads; ``None`` if there is nothing new.

        Raises ``DataLost``.
        """
        snapshot = self._news_since(start)
        if start.is_initial and not self._has_begun:
            # ``initial_offset`` must not acknowledge: Spark also asks a query with a checkpoint for
            # it, after a restart, and messages before that new offset may not be processed.
            self.commit(start)
            self._has_begun = True
        # Both raise ``DataLost`` also where nothing is left to read.
        begins = self._begins(start, snapshot)
        gone = self._gone(start, snapshot)
        backlogs = {
            topic: (begin, self._target(topic, snapshot))
            for topic, begin in begins.items()
            if snapshot.layouts[topic].may_hold(begin, self._target(topic, snapshot))
        }
        self._planned = start  # what ``report`` sees, unless a batch is planned below
        if not backlogs:
            return None
        # From here on there is something to read: first how far, then what the offset has to say of
        # it.
        ends, by_records = self._ends(backlogs, snapshot, limit)
        # A position behind the last entry of a ledger is written as the start of the next ledger,
        # also for topics that this batch does not read: the old ledger may be deleted while the
        # query is down, and its name would then look like a loss.
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
        # Where the batch begins is written only where ``start`` does not say it: for new topics,
        # and where the begin moved because messages were deleted. An initial offset is in no
        # checkpoint, so that all its positions are written.
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
                continue  # the batch reads nothing of this topic
            if layout is None:
                # Deleted between the planning of the batch and its repeat after a restart.
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
        """Acknowledge everything before ``end``: it is processed, and in the checkpoint."""
        if self._options.subscription is None:
            return
        for topic, place in end.places.items():
            # A position at the start of a ledger needs no acknowledgement: either the query began
            # there, or it read the ledger before to its end, and has acknowledged that one's last
            # entry already. An initial offset was never acknowledged.
            position = place.position
            is_inside = position.entry_id > 0 or position.batch_index > 0
            if topic in self._followed and (end.is_initial or is_inside):
                self._cluster.acknowledge(topic, position)

    def report(self) -> dict[str, object] | None:
        """Where topics end by the newest snapshot, without asking; ``lag`` has the entries and
        bytes of each topic that remain behind the batch planned last."""
        snapshot = self._snapshot
        if snapshot is None:
            return None
        ends = {topic: Place(layout.end) for topic, layout in snapshot.layouts.items()}
        document = SourceOffset(ends).to_json()
        # Without known ledgers the distance between two positions is unknown.
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
        """Take a snapshot, and let the subscription follow the topics that exist now."""
        self._snapshot = self._cluster.snapshot()
        if self._options.subscription is not None:
            topics = set(self._snapshot.layouts)
            # A consumer of a deleted topic reconnects, and the broker would create the topic again.
            for topic in self._followed - topics:
                self._cluster.unfollow(topic)
            self._cluster.follow(sorted(topics - self._followed))
            self._followed = topics
        return self._snapshot

    def _news_since(self, start: SourceOffset) -> Snapshot:
        """A snapshot with messages behind ``start``, or one that was taken within this call: what
        was published before the call is never missed."""
        options = self._options
        now_s = self.monotonic_s()
        known = self._snapshot
        is_recent = known is not None and now_s - known.asked_s < options.poll_interval_s
        if known is not None and is_recent and self._has_news(start, known):
            return known
        if self._ask_at_s > now_s:
            self.pause(self._ask_at_s - now_s)
        snapshot = self._ask()
        # A ledger that was read to its end may be missing in the next snapshot. The start of the
        # ledger behind it is noted now, as long as one of the two snapshots lists both.
        for topic, layout in snapshot.layouts.items():
            place = start.places.get(topic)
            if place is not None:
                earlier = layout if known is None else known.layouts.get(topic, layout)
                settled = layout.settled_since(earlier, self._settled(topic, place.position))
                if settled != place.position:
                    self._settled_positions[topic] = place.position, settled
        if self._has_news(start, snapshot):
            self._ask_at_s = snapshot.asked_s
        else:
            # The wait grows with the requests that a snapshot costs. IDLE_WAIT_MAX_S bounds it: a
            # query of many partitions notices new messages that much later.
            wait_s = self._cluster.requests_each_time / IDLE_REQUESTS_PER_S
            wait_s = max(options.idle_wait_s, min(wait_s, IDLE_WAIT_MAX_S))
            self._ask_at_s = snapshot.asked_s + wait_s
        return snapshot

    def _has_news(self, start: SourceOffset, snapshot: Snapshot) -> bool:
        """May any topic have messages behind ``start``?"""
        for topic, layout in snapshot.layouts.items():
            place = start.places.get(topic)
            begin = layout.first if place is None else self._settled(topic, place.position)
            if layout.is_lost(begin):
                begin = layout.first  # ``_retained`` decides later whether the query fails
            if layout.may_hold(begin, self._target(topic, snapshot)):
                return True
        return False

    def _target(self, topic: str, snapshot: Snapshot) -> LogPosition:
        """How far the topic may be read."""
        layout = snapshot.layouts[topic]
        if self._targets is None:
            return layout.end
        # A topic that was created after ``freeze`` is not read at all.
        return self._targets.get(topic, layout.first)

    # ---- where a batch begins and ends

    def _begins(self, start: SourceOffset, snapshot: Snapshot) -> dict[str, LogPosition]:
        """Where the batch begins in each topic that exists. Raises ``DataLost``."""
        begins: dict[str, LogPosition] = {}
        for topic, layout in snapshot.layouts.items():
            place = start.places.get(topic)
            # A topic that is new to the query is read from its first message, whether it was
            # created while the query ran or while it was down.
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
            ends = {topic: target for topic, (_, target) in backlogs.items()}
            if limit.bytes is not None:
                by_bytes = {
                    topic: ByteBacklog(snapshot.layouts[topic].between(begin, target), begin)
                    for topic, (begin, target) in backlogs.items()
                }
                water_fill(by_bytes, limit.bytes)
                ends = {topic: backlog.position for topic, backlog in by_bytes.items()}
            for topic, cutting in cuttings.items():
                begin, end = backlogs[topic][0], ends[topic]
                entries = self._cluster.entries(topic, begin, end, COUNTED_ENTRIES_MAX)
                with closing(entries):
                    for entry in entries:
                        cutting.add(entry.rows, entry.behind)
        return ends, {topic: cutting.cuts for topic, cutting in cuttings.items()}

    def _ends_by_rows(
        self,
        backlogs: Mapping[str, tuple[LogPosition, LogPosition]],
        rows: int,
        cuttings: Mapping[str, RecordCuts],
    ) -> dict[str, LogPosition]:
        """How far ``rows`` rows reach; the count that the batch before left behind goes on."""
        counting = self._counting
        # Spark may plan from elsewhere than the last batch's end: such a count is of no use.
        begins = {topic: begin for topic, (begin, _) in backlogs.items()}
        self._stop_counting(
            [topic for topic, each in counting.items() if each.position != begins.get(topic)]
        )
        with ExitStack() as on_failure:
            # After an error part of the entries is taken out of the generators: the next attempt
            # must count from the beginning.
            on_failure.callback(lambda: self._stop_counting([*counting]))
            for topic, (begin, target) in backlogs.items():
                if topic not in counting:
                    # Each topic's equal share of the limit, rounded up, is counted ahead.
                    entries = self._cluster.entries(topic, begin, target, -(-rows // len(backlogs)))
                    counting[topic] = RowBacklog(entries, begin, target)
                counting[topic].on_taken = cuttings[topic].add if topic in cuttings else None
            water_fill(counting, rows)
            on_failure.pop_all()
        ends = {topic: each.position for topic, each in counting.items()}
        # A count ends where the topic ended when it began. The topic may have grown since, and the
        # next batch needs a count of the new range.
        self._stop_counting([topic for topic, each in counting.items() if each.is_at_end])
        return ends

    def _stop_counting(self, topics: Sequence[str]) -> None:
        for topic in topics:
            self._counting.pop(topic).close()

    def _settled(self, topic: str, position: LogPosition) -> LogPosition:
        """The later name of ``position``: the start of the next ledger, for a position behind the
        last entry of a ledger. Deleting the ledger that was read to its end then loses nothing."""
        known = self._settled_positions.get(topic)
        if known is not None and known[0] == position:
            return known[1]
        return position

    # ---- what was lost

    def _retained(
        self, topic: str, begin: LogPosition, end: LogPosition, layout: LogLayout
    ) -> LogPosition:
        """Where reading up to ``end`` begins: at ``begin``, or at the first message that was not
        deleted. Raises ``DataLost``."""
        if not layout.ledgers:
            if not 0 <= begin.ledger_id < end.ledger_id:
                return begin  # the end is in the same ledger, which therefore still exists
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
        """The deleted topics that the query still has to read. A topic that the options no longer
        name keeps its offset instead: a later run may name it again."""
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
