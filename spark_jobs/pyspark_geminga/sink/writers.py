"""What Spark calls: a writer for a batch, and one for a stream.

A writer is made in the process that plans the query, and pickled to the tasks; ``commit`` and
``abort`` run in a third process, on another copy. There is nothing to commit: consumers get what a
task stored at once. Where a task fails, its next attempt stores the rest.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from geminga.arrow import PayloadEncoder, payload_schema
from pyspark_geminga._pool import task_client
from pyspark_geminga.access import Access
from pyspark_geminga.errors import InvalidOption
from pyspark_geminga.rest import AdminClient
from pyspark_geminga.sink.cutting import EPOCHS
from pyspark_geminga.sink.deduplication import DeduplicationCheck
from pyspark_geminga.sink.errors import IncompleteInput, InvalidColumn
from pyspark_geminga.sink.options import SinkOptions
from pyspark_geminga.sink.rows import RawEncoder, RowLayout, ValueEncoder
from pyspark_geminga.sink.task_writer import Identity, TaskWriter, Written, open_patiently

log = logging.getLogger(__name__)

# What Spark sets for the tasks of a streaming query, micro-batches in ``foreachBatch`` included.
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"

# Of this process: tasks that run one after the other share what was found out about topics.
_checks: dict[Access, DeduplicationCheck] = {}


@dataclass
class TaskCommit(WriterCommitMessage):
    """What one task reports to the driver."""

    written: Written


# Where a plan is, in which process:
#
#   made by ``of``  -- pickled -->  ``write``, in tasks  -- TaskCommits -->  ``commit`` or ``abort``
#   (planning)                      (executors)                              (a third process)
@dataclass(frozen=True)
class WritePlan:
    """What is decided once for all tasks of a query."""

    options: SinkOptions
    schema: StructType
    is_streaming: bool
    # How many the topic had when the query was planned. The number is fixed, because a task that is
    # repeated must send each row to the same partition.
    partitions: int = 0

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, is_streaming: bool) -> WritePlan:
        """Check everything that can be known before there are rows: options, columns, and that the
        topic accepts such messages. Raises ``ConnectorError`` or ``ClientError``."""
        # A first plan, to learn the columns and the schema; the one that is returned has the
        # partitions, too.
        plan = cls(SinkOptions.of(options, is_streaming=is_streaming), schema, is_streaming)
        plan.layout()
        schema_info = plan.encoder().schema_info
        chosen, topic = plan.options, plan.options.topic
        # Each row names its topic: none is known before the tasks have rows.
        if topic is None:
            return plan
        clients = task_client(chosen.access)

        async def prepare() -> int:
            partitions = await clients.client.partitions(topic)
            # One partition stands for all: they share the schema and the policies of the topic.
            name = f"{topic}-partition-0" if partitions else topic
            # Opening a producer creates a missing topic, and registers the schema. Without a name
            # of its own: the producer of a task must find its name free.
            producer = await open_patiently(clients.client, name, schema_info, chosen, Identity(0))
            async with producer:
                if chosen.deduplicates:
                    await deduplication_check(chosen.access)(name)
            return partitions

        return cls(chosen, schema, is_streaming, clients.run(prepare()))

    def layout(self) -> RowLayout:
        """Which columns are what. Raises ``InvalidColumn``."""
        return RowLayout.of(self._columns(), has_topic_option=self.options.topic is not None)

    def encoder(self) -> ValueEncoder:
        """What makes payloads of the columns that are the value. Raises ``InvalidColumn``."""
        columns = self._columns()
        # In the order of the query's columns, which becomes that of the record's fields.
        value = pa.schema([columns.field(name) for name in self.layout().value])
        if self.options.is_raw:
            return RawEncoder(value)
        try:
            return PayloadEncoder(payload_schema(value, self.options.record_format), value)
        except ValueError as error:
            names = ", ".join(value.names)
            raise InvalidColumn(names, f"cannot be the value of a message: {error}") from error

    def _columns(self) -> pa.Schema:
        return to_arrow_schema(self.schema, timezone="UTC")

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Store the rows of one attempt of a task, and return when all of them are stored."""
        options, layout, encoder = self.options, self.layout(), self.encoder()
        clients = task_client(options.access)
        writer = TaskWriter(
            clients.client,
            options,
            encoder.schema_info,
            self.identity(),
            partitions=self.partitions,
            check=deduplication_check(options.access) if options.deduplicates else None,
        )
        # The order: rows are sent as they come, then all receipts are awaited, and the producers
        # close in any case. What was stored before an error stays: the next attempt repeats it.
        try:
            for batch in batches:
                clients.run(writer.add(layout.rows(batch, encoder)))
            # Sorted, an incomplete set of rows would get sequence ids that belong to other rows in
            # the repeat. Unsorted rows are a beginning of what the repeat sends, and may be stored.
            if options.is_sorted and not all_rows_came():
                raise IncompleteInput
            written = clients.run(writer.finish())
        finally:
            # Also after an error: the next attempt, maybe on another machine, needs the names of
            # these producers.
            clients.run(writer.close())
        return TaskCommit(written)

    def identity(self) -> Identity:
        """The identity under which topics deduplicate this task."""
        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        task = context.partitionId()
        if not self.options.deduplicates:
            return Identity(task)
        if not self.is_streaming:
            # The epoch is 0: a batch write under one key is one epoch, however often it is
            # repeated.
            return Identity(task, f"spark-{self.options.dedup_key}-{task}")
        # The query's id is in its checkpoint and stays the same over restarts, unlike the id of its
        # run. Micro-batches are numbered without gaps, and a repeated one has the same number.
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise InvalidOption("semantics", "dedup needs a Spark that tells tasks their query")
        if int(batch) >= EPOCHS:
            raise InvalidOption("semantics", f"dedup counts no more than {EPOCHS} batches")
        return Identity(task, f"spark-{query}-{task}", int(batch))


def all_rows_came() -> bool:
    """Has Spark sent this task all of its rows? To be called behind the last row that came.

    Where the stage before the sink fails, Spark closes the worker's pipe, and Arrow's reader takes
    that for an end like any other. Behind complete rows Spark sends one more word (END_OF_STREAM),
    which the worker reads after the writer has returned; this function peeks at it. No interface of
    Spark gives access to the pipe, so it is taken from the frame of the worker's ``main``.

    Raises ``InvalidOption`` for a Spark whose worker has it elsewhere.
    """
    # ``main`` is some frames further out; how many depends on the version of Spark.
    frame = inspect.currentframe()
    while frame is not None:
        peek = getattr(frame.f_locals.get("infile"), "peek", None)
        if peek is not None:
            return bool(peek(1))  # waits for the word, or for the end
        frame = frame.f_back
    raise InvalidOption(
        "orderWithinTask",
        "value does not work with this version of Spark, which does not say whether a task got all "
        "of its rows; use none where rows come in the same order each time",
    )


def deduplication_check(access: Access) -> DeduplicationCheck:
    """The check of this process for a cluster."""
    if access not in _checks:
        _checks[access] = DeduplicationCheck(AdminClient(access))
    return _checks[access]


# Without a ``repr``: it would show how the client authenticates.
@dataclass(eq=False, repr=False)
class _PlannedWriter:
    """What both kinds of writers do in a task; the plan is all that Spark has to pickle."""

    plan: WritePlan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Store the rows of one task, or of one task of a micro-batch."""
        return self.plan.write(iterator)


# Before Spark's class, whose ``write`` it replaces.
class BatchWriter(_PlannedWriter, DataSourceArrowWriter):
    """Writes the rows of a DataFrame."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        _log_commit("batch written", self.plan, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task failed in all its attempts: what others stored stays."""
        _log_commit("batch given up", self.plan, messages)


class StreamWriter(_PlannedWriter, DataSourceStreamArrowWriter):
    """Writes the rows of each micro-batch."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's
        """All tasks of the micro-batch are done."""
        _log_commit("micro-batch written", self.plan, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's
        """A task failed in all its attempts, or a commit: what was stored stays, and the query's
        next run repeats the micro-batch."""
        _log_commit("micro-batch given up", self.plan, messages, batchId)


def _log_commit(
    event: str,
    plan: WritePlan,
    messages: Sequence[WriterCommitMessage | None],
    batch_id: int | None = None,
) -> None:
    # A task that failed, in an ``abort``, has None in its place.
    written = [message.written for message in messages if isinstance(message, TaskCommit)]
    log.info(
        event,
        extra={
            "topic": plan.options.topic,
            "batch": batch_id,
            "tasks": len(written),
            "rows": sum(each.rows for each in written),
            "repeated_rows": sum(each.repeated_rows for each in written),
        },
    )
