"""``spark.read.format("pulsar")``: everything between two positions of each topic, once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from geminga import LogPosition
from pyspark_geminga._pool import ClientLoop, task_client
from pyspark_geminga.broker_view import BrokerView
from pyspark_geminga.errors import DataLost
from pyspark_geminga.log_layout import LogLayout
from pyspark_geminga.options import SourceOptions
from pyspark_geminga.reading import Part, read_part
from pyspark_geminga.splits import parts_of, plan_cuts

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Plans a read, in a process of its own, and is pickled into the tasks that carry it out."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """The parts that tasks read, decided by what the topics hold now."""
        loop = task_client(self._options.access)
        return loop.run(_plan(loop, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        return read_part(partition, self._options, self._columns)


async def _plan(loop: ClientLoop, options: SourceOptions) -> list[InputPartition]:
    view = BrokerView(loop.client, options)
    snapshot = await view.snapshot()
    topics = sorted(snapshot.layouts)
    ends = await asyncio.gather(
        *[view.resolve(options.ending, "latest", each, snapshot.layouts[each]) for each in topics]
    )
    starts = await asyncio.gather(
        *[
            view.resolve(options.starting, "earliest", each, snapshot.layouts[each])
            for each in topics
        ]
    )
    ranges: dict[str, tuple[LogPosition, LogPosition]] = {}
    for topic, start, end in zip(topics, starts, ends, strict=True):
        layout = snapshot.layouts[topic]
        ranges[topic] = _retained(topic, start, layout, options), end
    cuts = plan_cuts(
        {topic: snapshot.layouts[topic].between(*edges) for topic, edges in ranges.items()},
        options.splits,
    )
    return [
        Part(topic, first, behind, holds_start=snapshot.layouts[topic].holds(first))
        for topic, (start, end) in ranges.items()
        for first, behind in parts_of(start, end, cuts.get(topic, ()))
        if snapshot.layouts[topic].may_hold(first, behind)
    ]


def _retained(
    topic: str, start: LogPosition, layout: LogLayout, options: SourceOptions
) -> LogPosition:
    """Where to begin: at the start that is wanted, unless what was there is deleted."""
    if not layout.is_lost(start):
        return start
    if options.fails_on_data_loss:
        raise DataLost(topic, tuple(start), tuple(layout.first))
    return layout.first
