"""A stream's batches are the log exactly once, through restarts, limits, new topics and trims."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga import LOG_START, LogPosition
from pyspark_geminga.log_layout import Ledger, LogLayout
from pyspark_geminga.source.broker_view import Begin, Snapshot
from pyspark_geminga.source.decisions.admission import CountedEntry
from pyspark_geminga.source.decisions.offsets import Place, SourceOffset
from pyspark_geminga.source.decisions.options import ByTopic, Edge, SourceOptions
from pyspark_geminga.source.reading import Part
from pyspark_geminga.source.stream_planner import Limit, StreamPlanner

A, B = (f"persistent://public/default/{name}" for name in "ab")
UNLIMITED = Limit()


@dataclass
class FakeLog:
    """A log: the rows of each entry, by ledger. The first ledgers may be trimmed."""

    ledgers: dict[int, list[int]] = field(default_factory=lambda: {1: []})
    added: int = 0

    def add(self, *rows: int) -> None:
        self.added += len(rows) or 1
        self.ledgers[max(self.ledgers)].extend(rows or (1,))

    def roll(self) -> None:
        self.ledgers[max(self.ledgers) + 1] = []

    def trim(self) -> None:
        """Delete all ledgers but the last."""
        self.ledgers = {max(self.ledgers): self.ledgers[max(self.ledgers)]}

    @property
    def layout(self) -> LogLayout:
        ledgers = tuple(
            Ledger(each, len(rows), 100 * len(rows)) for each, rows in self.ledgers.items()
        )
        written = [each for each in ledgers if each.entries] or [ledgers[-1]]
        return LogLayout(
            ledgers, LogPosition(written[-1].ledger_id, written[-1].entries), self.added
        )

    def stored(self, start: LogPosition, end: LogPosition) -> list[LogPosition]:
        return [
            LogPosition(ledger, entry)
            for ledger, rows in self.ledgers.items()
            for entry in range(len(rows))
            if start <= (ledger, entry, -1) < end
        ]


class FakeCluster:
    """Logs by topic, and a clock that ``pause`` moves."""

    def __init__(self, **logs: FakeLog) -> None:
        self.logs = {f"persistent://public/default/{name}": log for name, log in logs.items()}
        self.now_s = 0.0
        self.requests = 0
        self.readers = 0
        self.is_broken = False
        self.opened: list[Generator[CountedEntry]] = []
        self.acknowledged: dict[str, LogPosition] = {}
        self.followed: list[str] = []
        self.has_rest = True

    requests_each_time = 1

    def snapshot(self) -> Snapshot:
        self.requests += 1
        layouts = {topic: log.layout for topic, log in self.logs.items()}
        if not self.has_rest:
            layouts = {topic: LogLayout((), each.end) for topic, each in layouts.items()}
        return Snapshot(layouts, self.now_s)

    def begin(self, topic: str, start: LogPosition, end: LogPosition) -> Begin:
        log = self.logs[topic]
        first = next(iter(log.stored(start, end)), None)
        return Begin(first, is_lost=start.ledger_id not in log.ledgers)

    def resolve(self, wanted: ByTopic, default: Edge, topic: str, layout: LogLayout) -> LogPosition:
        del topic
        return layout.end if wanted.get("", default) == "latest" else layout.first

    def entries(
        self, topic: str, start: LogPosition, end: LogPosition, rows_ahead: int
    ) -> Generator[CountedEntry]:
        assert rows_ahead > 0
        reader = self._read(topic, start, end)
        self.opened.append(reader)  # else forgetting it would close it
        return reader

    def _read(self, topic: str, start: LogPosition, end: LogPosition) -> Generator[CountedEntry]:
        log = self.logs[topic]
        self.readers += 1
        try:
            for entry in log.stored(start, end):
                if self.is_broken:
                    raise OSError("the connection is broken")
                rows = log.ledgers[entry.ledger_id][entry.entry_id]
                yield CountedEntry(rows, LogPosition(entry.ledger_id, entry.entry_id + 1))
        finally:
            self.readers -= 1

    def rows_of(self, part: Part) -> list[int]:
        """The rows of each entry in ``part`` that has any."""
        log = self.logs[part.topic]
        rows = [
            log.ledgers[each.ledger_id][each.entry_id] for each in log.stored(part.start, part.end)
        ]
        return [each for each in rows if each]

    def follow(self, topics: Sequence[str]) -> None:
        self.followed += topics

    def unfollow(self, topic: str) -> None:
        self.followed.remove(topic)

    def acknowledge(self, topic: str, end: LogPosition) -> None:
        self.acknowledged[topic] = end

    def planner(self, **options: str) -> StreamPlanner:
        """The planner of a query that starts or restarts."""
        given = {"service.url": "pulsar://x", "topics": "a,b", "startingOffsets": "earliest"}
        read = SourceOptions.of({**given, **options}, is_streaming=True)

        def pause(seconds: float) -> None:
            self.now_s += seconds

        return StreamPlanner(self, read, monotonic_s=lambda: self.now_s, pause=pause)


class Query:
    """What Spark does: keeps offsets as JSON text, and asks in its order."""

    def __init__(self, cluster: FakeCluster, planner: StreamPlanner) -> None:
        self.cluster = cluster
        self.planner = planner
        self.log: list[str] = []  # the offset log of the checkpoint
        self.parts: list[Part] = []
        self.read: list[tuple[str, LogPosition]] = []

    @property
    def start(self) -> SourceOffset:
        if self.log:
            return SourceOffset.from_json(json.loads(self.log[-1]))
        return SourceOffset.from_json(self.planner.initial_offset().to_json())

    def plan(self, limit: Limit = UNLIMITED) -> bool:
        """Write the end of the next batch into the log, if there is one."""
        end = self.planner.latest_offset(self.start, limit)
        if end is not None:
            self.log.append(json.dumps(end.to_json()))
        return end is not None

    def run(self) -> None:
        """Read the batch that was planned last, whose start is that of the one before."""
        end = self.start
        before = Query(self.cluster, self.planner)
        before.log = self.log[:-1]
        for part in self.planner.parts(before.start, end):
            self.parts.append(part)
            stored = self.cluster.logs[part.topic].stored(part.start, part.end)
            self.read += [(part.topic, entry) for entry in stored]

    def batch(self, limit: Limit = UNLIMITED) -> bool:
        has_news = self.plan(limit)
        if has_news:
            self.run()
        return has_news

    def restart(self, **options: str) -> None:
        self.planner = self.cluster.planner(**options)


def everything(cluster: FakeCluster) -> list[tuple[str, LogPosition]]:
    return sorted(
        (topic, entry)
        for topic, log in cluster.logs.items()
        for entry in log.stored(LOG_START, log.layout.end)
    )


def test_batches_are_what_was_published_since() -> None:
    cluster = FakeCluster(a=FakeLog(), b=FakeLog())
    query = Query(cluster, cluster.planner())
    assert not query.batch()
    cluster.logs[A].add(1, 1)
    assert query.batch()
    cluster.logs[A].add(1)
    cluster.logs[B].add(1)
    assert query.batch()
    assert not query.batch()
    assert sorted(query.read) == everything(cluster)


def test_a_query_from_the_latest_message_loses_nothing_when_it_dies_in_its_first_batch() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1, 1]}), b=FakeLog())
    query = Query(cluster, cluster.planner(startingOffsets="latest"))
    first = query.planner.initial_offset()
    cluster.logs[A].add(1, 1)
    assert query.planner.initial_offset() is first
    assert query.plan()  # the log has the end of batch 0, nothing has its start
    cluster.logs[A].add(1)
    query.restart(startingOffsets="latest")  # its initial offset lies behind that end now
    query.run()
    while query.batch():
        pass
    assert query.read == [(A, LogPosition(1, entry)) for entry in (2, 3, 4)]


def test_nothing_new_is_never_said_of_a_snapshot_from_before_the_question() -> None:
    cluster = FakeCluster(a=FakeLog(), b=FakeLog())
    query = Query(cluster, cluster.planner())
    assert not query.plan()
    cluster.logs[A].add()
    assert query.plan()


def test_an_idle_query_asks_seldom() -> None:
    cluster = FakeCluster(a=FakeLog(), b=FakeLog())
    query = Query(cluster, cluster.planner())
    while cluster.now_s < 60:
        assert not query.plan()
        query.planner.report()
        cluster.now_s += 0.01  # Spark's pollingDelay
    assert cluster.requests < 60 * 10


def test_with_more_topics_an_idle_query_asks_less_often_for_all_of_them() -> None:
    cluster = FakeCluster(a=FakeLog(), b=FakeLog())
    cluster.requests_each_time = 12
    query = Query(cluster, cluster.planner())
    while cluster.now_s < 60:
        assert not query.plan()
        cluster.now_s += 0.01
    assert 12 * cluster.requests < 60 * 10


def test_a_new_topic_is_read_from_its_first_message() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1]}))
    query = Query(cluster, cluster.planner(startingOffsets="latest"))
    assert not query.batch()
    cluster.logs[B] = FakeLog({5: [1, 1]})
    assert query.plan()
    query.restart(startingOffsets="latest")  # its checkpoint says where it begins
    query.run()
    assert query.read == [(B, LogPosition(5, 0)), (B, LogPosition(5, 1))]


def test_available_now_reads_up_to_where_topics_ended_and_no_topic_that_comes() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1] * 10}))
    query = Query(cluster, cluster.planner())
    query.planner.freeze()
    batches = 0
    while query.batch(Limit(rows=4)):
        batches += 1
        cluster.logs[A].add()
        cluster.logs[B] = FakeLog({7: [1]})
    assert (batches, cluster.readers) == (3, 0)
    assert query.read == [(A, LogPosition(1, entry)) for entry in range(10)]
    query.restart()
    query.planner.freeze()
    while query.batch():
        pass
    assert sorted(query.read) == everything(cluster)


def test_entries_are_counted_on_behind_a_batch_for_the_next_one() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1] * 8}), b=FakeLog({1: [1]}))
    query = Query(cluster, cluster.planner())
    assert query.batch(Limit(rows=4))
    assert cluster.readers == 1  # what b had is counted
    assert query.batch(Limit(rows=4))
    assert query.batch(Limit(rows=4))
    assert (len(cluster.opened), cluster.readers) == (2, 0)
    cluster.logs[A].add(1)
    assert query.batch(Limit(rows=4))
    assert len(cluster.opened) == 3
    assert len(query.read) == 10


def test_what_was_counted_is_of_no_use_to_a_batch_that_begins_elsewhere() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1] * 8}), b=FakeLog())
    planner = cluster.planner()
    first = planner.initial_offset()
    planned = planner.latest_offset(first, Limit(rows=3))
    assert planned is not None
    assert planned.places[A].position == LogPosition(1, 3)
    assert planner.latest_offset(first, Limit(rows=3)) == planned
    assert (len(cluster.opened), cluster.readers) == (2, 1)


def test_after_a_failure_entries_are_counted_from_the_start_of_the_batch() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1] * 8}), b=FakeLog({1: [1] * 8}))
    query = Query(cluster, cluster.planner())
    assert query.batch(Limit(rows=4))
    cluster.is_broken = True
    with pytest.raises(OSError, match="broken"):
        query.plan(Limit(rows=4))
    cluster.is_broken = False
    assert cluster.readers == 0
    while query.batch(Limit(rows=4)):
        pass
    assert len(set(query.read)) == len(query.read) == 16


def test_a_batch_that_is_repeated_is_split_as_it_was() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1] * 10, 2: [1] * 10}))
    query = Query(cluster, cluster.planner(targetSplitBytes="300"))
    assert query.plan()
    end = query.start
    before = query.planner.initial_offset()
    planned = query.planner.parts(before, end)
    assert len(planned) == 4
    query.restart(targetSplitBytes="10")
    assert query.planner.parts(before, end) == planned


def test_a_topic_that_the_options_name_no_longer_keeps_its_place() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1]}), b=FakeLog({2: [1]}))
    query = Query(cluster, cluster.planner())
    assert query.batch()
    log = cluster.logs.pop(A)
    query.restart(topics="b")
    cluster.logs[B].add()
    assert query.batch()
    cluster.logs[A] = log
    log.add()
    query.restart()
    assert query.batch()
    assert sorted(query.read) == everything(cluster)


def test_a_subscription_follows_what_is_processed() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1, 1]}), b=FakeLog())
    query = Query(cluster, cluster.planner(predefinedSubscription="spark"))
    assert query.batch()
    assert cluster.followed == [A, B]
    assert cluster.acknowledged[A] == LogPosition(1, 0)  # where the query begins
    query.planner.commit(query.start)
    assert cluster.acknowledged == {A: LogPosition(1, 2), B: LogPosition(1, 0)}


def test_a_restart_acknowledges_nothing_that_was_not_processed() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1]}), b=FakeLog())
    options = {"predefinedSubscription": "spark", "startingOffsets": "latest"}
    query = Query(cluster, cluster.planner(**options))
    assert not query.plan()
    assert cluster.acknowledged[A] == LogPosition(1, 1)  # what the query does not want
    cluster.logs[A].add(1)
    assert query.plan()
    cluster.logs[A].add(1)
    query.restart(**options)
    query.planner.initial_offset()  # as Spark asks again, though there is a checkpoint
    query.run()
    assert query.plan()
    assert cluster.acknowledged[A] == LogPosition(1, 1)


def test_the_subscription_is_left_on_a_topic_that_was_deleted() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1]}), b=FakeLog())
    query = Query(cluster, cluster.planner(predefinedSubscription="spark", failOnDataLoss="false"))
    assert query.batch()
    del cluster.logs[A]
    cluster.logs[B].add()
    assert query.batch()
    assert cluster.followed == [B]  # a consumer that stays would create the topic again
    query.planner.commit(query.start)
    assert cluster.acknowledged[B] == LogPosition(1, 1)


def test_without_a_subscription_nothing_is_acknowledged() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1]}), b=FakeLog())
    query = Query(cluster, cluster.planner())
    assert query.batch()
    query.planner.commit(query.start)
    assert (cluster.followed, cluster.acknowledged) == ([], {})


@pytest.mark.parametrize("limit", [UNLIMITED, Limit(rows=1000), Limit(bytes=10_000)])
def test_no_task_of_a_stream_has_more_records_than_the_option_says(limit: Limit) -> None:
    cluster = FakeCluster(a=FakeLog({1: [3, 3, 9, 0, 3], 2: [3, 3]}), b=FakeLog({5: [1]}))
    options = {"maxRecordsPerPartition": "6"}
    query = Query(cluster, cluster.planner(**options))
    assert query.plan(limit)
    # A limit of rows has the entries counted already.
    assert len(cluster.opened) == 2
    query.restart(maxRecordsPerPartition="1")  # the checkpoint says where the batch was cut
    query.run()
    assert [cluster.rows_of(part) for part in query.parts] == [[3, 3], [9], [3, 3], [3], [1]]
    assert sorted(query.read) == everything(cluster)
    assert cluster.readers == 0 or limit.rows is not None


def test_the_report_says_how_far_the_query_is_behind() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1] * 10, 2: [1] * 5}), b=FakeLog())
    query = Query(cluster, cluster.planner())
    assert query.plan(Limit(rows=4))
    requests = cluster.requests
    report = query.planner.report()
    assert report is not None
    assert report["lag"] == {A: {"entries": 11, "bytes": 1100}, B: {"entries": 0, "bytes": 0}}
    assert SourceOffset.from_json(report).places[A] == Place(LogPosition(2, 5))
    assert cluster.requests == requests


steps = st.lists(
    st.sampled_from(["add a", "add b", "roll a", "roll b", "plan", "run", "die", "new b"]),
    max_size=40,
)


@given(
    steps,
    st.sampled_from([UNLIMITED, Limit(rows=3), Limit(rows=9), Limit(bytes=250)]),
    st.sampled_from([2, 5, 1000]),
    st.data(),
)
def test_whatever_happens_batches_are_the_log_exactly_once(
    story: list[str], limit: Limit, records_max: int, data: st.DataObject
) -> None:
    cluster = FakeCluster(a=FakeLog())
    options = {"targetSplitBytes": "150", "maxRecordsPerPartition": str(records_max)}
    query = Query(cluster, cluster.planner(**options))
    is_planned = False
    for step in story:
        what, _, name = step.partition(" ")
        topic = f"persistent://public/default/{name}"
        if what == "new":
            cluster.logs.setdefault(topic, FakeLog({7: []}))
        elif what == "add" and topic in cluster.logs:
            cluster.logs[topic].add(*data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=5)))
        elif what == "roll" and topic in cluster.logs:
            cluster.logs[topic].roll()
        elif what == "plan" and not is_planned:
            is_planned = query.plan(limit)
        elif what == "run" and is_planned:
            query.run()
            is_planned = False
        elif what == "die":
            query.restart(**options)
    if is_planned:
        query.run()
    while query.batch(limit):
        pass
    for topic, log in cluster.logs.items():
        read = [entry for name, entry in query.read if name == topic]
        assert read == log.stored(LOG_START, log.layout.end)
    counts = [cluster.rows_of(part) for part in query.parts]
    assert all(sum(rows) <= records_max or len(rows) == 1 for rows in counts)
