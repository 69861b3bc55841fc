"""``spark.readStream.format("pulsar")``: what Spark calls, on a ``StreamPlanner``.

Spark keeps one reader in the process that plans a query, and makes another one, which it pickles
into the tasks: they share only the options.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from geminga import Consumer, LogPosition
from pyspark_geminga._pool import PlannerLoop
from pyspark_geminga.errors import ConnectorError
from pyspark_geminga.log_layout import LogLayout
from pyspark_geminga.source.broker_view import Begin, BrokerView, Snapshot, patiently
from pyspark_geminga.source.checkpoints import last_before
from pyspark_geminga.source.decisions.admission import CountedEntry
from pyspark_geminga.source.decisions.offsets import SourceOffset
from pyspark_geminga.source.decisions.options import ByTopic, Edge, SourceOptions
from pyspark_geminga.source.reading import read_part
from pyspark_geminga.source.row_schema import RowSchema
from pyspark_geminga.source.stream_planner import Limit, StreamPlanner

if TYPE_CHECKING:
    import pyarrow as pa

AnswerT = TypeVar("AnswerT")


# Which calls which, in the process that plans and in the tasks:
#
#   Spark -> StreamReader -> StreamPlanner -> Cluster -> PlannerLoop (a thread) -> BrokerView
#   Spark -> StreamReader -> read_part -> task_client
#
# Without a ``repr``: it would show how the client authenticates.
@dataclass(eq=False, repr=False)
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark calls; its offsets are the JSON objects of ``SourceOffset``."""

    # The two fields are what Spark pickles; the planner, once it is made, stays in its process.
    options: SourceOptions
    rows: RowSchema

    @cached_property
    def _planner(self) -> StreamPlanner:
        """Made at the first call that plans: the reader is pickled before, without connections."""
        cluster = Cluster(PlannerLoop(self.options.access), self.options)
        return StreamPlanner(cluster, self.options, monotonic_s=time.monotonic, pause=time.sleep)

    def initialOffset(self) -> dict[str, object]:  # noqa: N802  # Spark's name
        """Where a query without a checkpoint begins."""
        return self._planner.initial_offset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """The limit that the options set; Spark gives it back to ``latestOffset``."""
        if self.options.bytes_max is not None:
            return ReadMaxBytes(self.options.bytes_max)
        if self.options.rows_max is not None:
            return ReadMaxRows(self.options.rows_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Read up to where the topics end now, in as many batches as limits make of it."""
        self._planner.freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the batch from ``start`` reads; ``start`` itself if there is nothing new."""
        # Spark gives back what ``getDefaultReadLimit`` has returned, or, with a trigger that reads
        # everything at once, ReadAllAvailable.
        if isinstance(limit, ReadMaxRows):
            wanted = Limit(rows=limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            wanted = Limit(bytes=limit.max_bytes)
        elif isinstance(limit, ReadAllAvailable):
            wanted = Limit()
        else:
            raise ConnectorError(f"the source knows no limit such as {limit!r}")
        planned = self._planner.latest_offset(SourceOffset.from_json(start), wanted)
        # Spark plans no batch where the text of the offset is that of the start.
        return start if planned is None else planned.to_json()

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802  # Spark's name
        """Where the topics end, for the query's progress; without a request."""
        return self._planner.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What the tasks of a batch read."""
        if start == end:
            return []
        return self._planner.parts(SourceOffset.from_json(start), SourceOffset.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        # No keys: Spark offers filters to batch reads alone.
        return read_part(partition, self.options, self.rows)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before ``end`` is processed: the subscription follows."""
        self._planner.commit(SourceOffset.from_json(end))


class Cluster:
    """The cluster as the planner sees it: calls block Spark's thread while the work runs on the
    planner's event loop, which retries where a failure may pass."""

    def __init__(self, loop: PlannerLoop, options: SourceOptions) -> None:
        self._loop = loop
        self._options = options
        # Its coroutines run on the loop alone; the methods here block one of Spark's threads until
        # they end.
        self._view = BrokerView(loop.client, options)
        # A consumer for each topic that is followed. It only acknowledges.
        self._subscriptions: dict[str, Consumer[bytes]] = {}

    @property
    def requests_each_time(self) -> int:
        """About how many requests a snapshot costs."""
        return self._view.requests_each_time

    def snapshot(self) -> Snapshot:
        """The logs of all topics now."""
        return self._patiently(self._view.snapshot)

    def resolve(self, wanted: ByTopic, default: Edge, topic: str, layout: LogLayout) -> LogPosition:
        """The position that the options ask for."""
        return self._patiently(lambda: self._view.resolve(wanted, default, topic, layout))

    def begin(self, topic: str, start: LogPosition, end: LogPosition) -> Begin:
        """What is left of the range, of a log whose ledgers are not known."""
        return self._patiently(lambda: self._view.begin(topic, start, end))

    def entries(
        self, topic: str, start: LogPosition, end: LogPosition, rows_ahead: int
    ) -> Generator[CountedEntry]:
        """Yield the entries of a range in order; the next piece is counted in the background."""
        # One piece is counted and one is taken at any time, so that no more than two are in memory.
        counting = self._loop.begin(self._view.counted(topic, start, end, rows_ahead))
        try:
            while counted := counting.result():
                behind = counted[-1].behind
                # Before the first entry is yielded: the loop counts while the batch runs.
                counting = self._loop.begin(self._view.counted(topic, behind, end, rows_ahead))
                yield from counted
        finally:
            # The generator is closed or has ended: what was counted ahead is of no use.
            counting.cancel()

    def follow(self, topics: Sequence[str]) -> None:
        """Open the query's subscription on these topics; a new one begins at the first message."""
        subscription = self._options.subscription
        assert subscription is not None

        async def opened(topic: str) -> Consumer[bytes]:
            # Nothing is received: with a queue of one, the broker sends one message.
            return await self._loop.client.consumer(
                topic, subscription, initial_position="earliest", receiver_queue_size=1
            )

        # One after the other: a query that starts has time, and a broker has many topics to look
        # up.
        for topic in topics:
            self._subscriptions[topic] = self._patiently(partial(opened, topic))

    def unfollow(self, topic: str) -> None:
        """Close the consumer of a topic; its subscription stays as it is."""
        self._loop.run(self._subscriptions.pop(topic).close())

    def acknowledge(self, topic: str, end: LogPosition) -> None:
        """Acknowledge everything before ``end``; returns when the broker has confirmed it."""
        if end.ledger_id < 0:
            return  # the start of the log: nothing lies before it
        consumer, last = self._subscriptions[topic], last_before(end)
        self._patiently(lambda: consumer.ack_confirmed(last, cumulative=True))

    def _patiently(self, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        return self._loop.run(patiently(ask, self._options.poll_timeout_s))
