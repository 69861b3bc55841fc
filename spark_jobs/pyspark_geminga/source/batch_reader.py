"""``spark.read.format("pulsar")``: everything between two positions of each topic, once.

Spark plans a read once, in a process of its own (``plan_batch``), and sends the parts to tasks,
which read them (``reading.py``). What is published in between is not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from geminga import LogPosition
from pyspark_geminga._pool import task_client
from pyspark_geminga.errors import DataLost
from pyspark_geminga.source.broker_view import COUNTED_ENTRIES_MAX, BrokerView, patiently
from pyspark_geminga.source.decisions.filters import Pruning
from pyspark_geminga.source.decisions.options import SourceOptions
from pyspark_geminga.source.decisions.splits import RecordCuts, SplitRules, parts_of, plan_cuts
from pyspark_geminga.source.reading import Part, read_part
from pyspark_geminga.source.row_schema import RowSchema

if TYPE_CHECKING:
    import pyarrow as pa

# Topics whose entries are counted concurrently: each is read ahead by up to 16 MiB, and more of
# them would only wait for the one event loop that counts.
COUNTED_TOPICS_MAX = 4


# Without a ``repr``: it would show how the client authenticates.
@dataclass(eq=False, repr=False)
class BatchReader(DataSourceReader):
    """Plans a read, in a process of its own, and is pickled into the tasks that carry it out."""

    options: SourceOptions
    rows: RowSchema
    # Pickled with the reader: tasks filter by its keys.
    pruning: Pruning = field(default_factory=Pruning, init=False)

    def partitions(self) -> Sequence[InputPartition]:
        """The parts that tasks read, decided by what the topics hold now."""
        loop = task_client(self.options.access)
        view = BrokerView(loop.client, self.options)
        planning = partial(plan_batch, view, self.options, self.pruning)
        # Planned as a whole again after a failure that may pass: half of a plan, of another moment
        # than the rest, is of no use.
        return loop.run(patiently(planning, self.options.poll_timeout_s))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        return read_part(partition, self.options, self.rows, self.pruning.keys)


class FilteringBatchReader(BatchReader):
    """With ``filterPushdown``: leaves out what cannot match.

    A class of its own, because Spark concludes from the method that the reader takes filters, and
    fails where its setting does not allow that.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Note what can be left out; by returning all filters, have Spark apply each again."""
        # Spark calls this before ``partitions``, in the process that plans.
        self.pruning = Pruning.of(filters)
        return filters


async def plan_batch(
    view: BrokerView, options: SourceOptions, pruning: Pruning
) -> list[InputPartition]:
    """The parts of a read. Raises ``DataLost``, ``ConnectorError`` or ``ClientError``."""
    snapshot = await view.snapshot()
    # Sorted, so that planning twice gives the same parts in the same order.
    topics = [topic for topic in sorted(snapshot.layouts) if pruning.wants(topic)]

    # Of topics whose ledgers are not known, the first entry that the broker sent just now: a task
    # that does not get it knows that it was deleted.
    first_entries: dict[str, LogPosition] = {}

    async def edges(topic: str) -> tuple[LogPosition, LogPosition]:
        layout = snapshot.layouts[topic]
        start = await view.resolve(options.starting, "earliest", topic, layout)
        end = await view.resolve(options.ending, "latest", topic, layout)
        # First what the options ask for is compared with what is left of the log.
        if layout.ledgers:
            if layout.is_lost(start):
                if options.fails_on_data_loss:
                    raise DataLost(topic, tuple(start), tuple(layout.first))
                start = layout.first
        # Within one ledger nothing can be lost: brokers delete whole ledgers, and its end is still
        # there.
        elif 0 <= start.ledger_id < end.ledger_id:
            first, is_lost = await view.begin(topic, start, end)
            if is_lost and options.fails_on_data_loss:
                raise DataLost(topic, tuple(start), first and tuple(first))
            if first is not None:
                first_entries[topic] = first
                start = start if first.ledger_id == start.ledger_id else first
        # Filters narrow the range last: they must not hide a loss in what the options ask for.
        if pruning.from_ms is not None:
            start = max(start, await view.position_at(topic, pruning.from_ms))
        if pruning.until_ms is not None:
            end = min(end, await view.position_at(topic, pruning.until_ms))
        return start, end

    ranges = dict(
        zip(topics, await asyncio.gather(*[edges(topic) for topic in topics]), strict=True)
    )
    cuts = plan_cuts(
        {topic: snapshot.layouts[topic].between(*ranges[topic]) for topic in topics},
        options.splits,
        await _record_cuts(view, ranges, options.splits),
    )
    return [
        Part.of(topic, first, behind, snapshot.layouts[topic], has_come=first_entries.get(topic))
        for topic, (start, end) in ranges.items()
        # A part without entries, between cuts behind the last one of a ledger, needs no task.
        for first, behind in parts_of(start, end, cuts.get(topic, ()))
        if snapshot.layouts[topic].may_hold(first, behind)
    ]


async def _record_cuts(
    view: BrokerView, ranges: Mapping[str, tuple[LogPosition, LogPosition]], rules: SplitRules
) -> dict[str, list[LogPosition]]:
    """The cuts for ``records_max``, for which every entry is read; none without that rule."""
    if rules.records_max is None:
        return {}
    slots = asyncio.Semaphore(COUNTED_TOPICS_MAX)

    async def cuts_of(topic: str) -> list[LogPosition]:
        start, end = ranges[topic]
        cutting = RecordCuts(rules)
        async with slots:
            # Piece by piece: a range may have more entries than memory has room for.
            while counted := await view.counted(topic, start, end, COUNTED_ENTRIES_MAX):
                for entry in counted:
                    cutting.add(entry.rows, entry.behind)
                start = counted[-1].behind  # the reader was closed: the next one goes on here
        return cutting.cuts

    cuts = await asyncio.gather(*[cuts_of(topic) for topic in ranges])
    return dict(zip(ranges, cuts, strict=True))
