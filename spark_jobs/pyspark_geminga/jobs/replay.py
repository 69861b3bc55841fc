"""Publishes stored messages again: those of an archive, or of a part of topics.

Keys, event times and properties are kept, and the order of messages of a topic with the same key:
they go through the same task, sorted as in the log. What a task publishes depends on nothing but
the messages and the number of tasks. A replay that failed can therefore be repeated under the same
name (``--once``), and publishes what is missing.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf

from geminga_runtime.clock import SystemClock
from pyspark_geminga.jobs import _session
from pyspark_geminga.jobs.compact import places

# A fixed number, not that of cores: a repeat under ``--once``, perhaps on another machine, must
# divide the rows alike.
TASKS = 8
# How often a task with a limit lets rows go.
PACES_A_SECOND = 10
# The folders of an archive, and where a message was before, which has no meaning in its new topic.
NOT_PUBLISHED = ("dt", "hour", "__messageId", "__publishTime")
DESCRIPTION = (
    "Publishes stored messages to a topic, or to topics of the same names in another namespace, "
    "with their keys, event times and properties. Messages with the same key keep their order."
)


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns the exit code."""
    parsed = _parse(arguments)
    # The options of the sink, each group over the one before: where messages come from, where they
    # go, how, and what the user says of it.
    sink = _session.cluster_options(parsed)
    if parsed.to_service_url:
        sink |= {"service.url": parsed.to_service_url}
        sink.pop("admin.url", None)  # that of the other cluster
    if parsed.to_admin_url:
        sink |= {"admin.url": parsed.to_admin_url}
    if parsed.to:
        sink |= {"topic": parsed.to}
    if parsed.once:
        # Tasks sort by message ids, and no two of these are equal: the sink need not sort.
        sink |= {"semantics": "dedup", "dedupKey": parsed.once, "orderWithinTask": "none"}
    # Last, so that users may override everything above.
    sink |= dict(parsed.to_option)
    with _session.job_session("replay", parsed) as spark:
        if parsed.archive:
            rows = spark.read.parquet(parsed.archive)
        else:
            options = _session.source_options(parsed, valueMode=parsed.value_mode)
            rows = _session.read_batch(spark, options)
        # Before the columns are cut down: the order is that of message ids, which are not
        # published.
        rows = in_order(rows, parsed.tasks)
        rows = as_messages(
            rows, namespace=parsed.to_namespace, has_text_keys=not parsed.binary_keys
        )
        # Tasks that run at once share the rate. With fewer cores than tasks it stays below.
        if parsed.rate:
            rows = limited(rows, parsed.rate / parsed.tasks)
        with _session.told_progress(spark, "replay"):
            rows.write.format("pulsar").mode("append").options(**sink).save()
    _session.say(f"everything is in {parsed.to or parsed.to_namespace}")
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _session.job_parser("replay", DESCRIPTION)
    _session.add_topics(parser, is_range=True, or_archive=True)
    parser.add_argument(
        "--value-mode",
        choices=("raw", "schema"),
        default="raw",
        help="for topics: payloads as they are (default), or columns by the topic's schema, which "
        "is registered in the target. An archive is published as it was stored",
    )
    target = parser.add_argument_group("where messages go")
    places_to_go = target.add_mutually_exclusive_group(required=True)
    places_to_go.add_argument("--to", metavar="TOPIC", help="all to one topic")
    places_to_go.add_argument(
        "--to-namespace", metavar="TENANT/NAMESPACE", help="each to the topic of its name there"
    )
    target.add_argument(
        "--to-service-url", metavar="URL", help="in another cluster (default: the same)"
    )
    target.add_argument("--to-admin-url", metavar="URL", help="its REST side")
    _session.add_pairs(
        target,
        "--to-option",
        "an option of format('pulsar') for writing, such as pulsar.producer.compressionType=ZSTD",
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--once",
        metavar="NAME",
        help="publish each message once, also if the job is repeated under this name with the same "
        "--tasks: needs topics that deduplicate",
    )
    how.add_argument(
        "--rate", type=float, metavar="N", help="at most so many messages a second, of all tasks"
    )
    how.add_argument(
        "--tasks",
        type=int,
        default=TASKS,
        metavar="N",
        help=f"into how many tasks topics and keys are divided (default: {TASKS})",
    )
    how.add_argument(
        "--binary-keys",
        action="store_true",
        help="keys are bytes and not text: consumers see them in base64",
    )
    return parser.parse_args(arguments)


def in_order(rows: DataFrame, tasks: int) -> DataFrame:
    """The rows in so many tasks: those with the same topic and key in one, in the log's order."""
    # PySpark takes the kind of function from its annotations, which its own types do not know.
    place = arrow_udf(places, "binary")(f.col("__messageId"))  # type: ignore[call-overload]
    # By the whole topic and not its partition: messages of a key may be in two partitions, where
    # some were added.
    parted = rows.repartition(tasks, _without_partition(f.col("__topic")), "__key")
    # A stable order by content: a repeat finds the same rows in the same tasks, as the hash of
    # topic and key does not depend on the run.
    return parted.sortWithinPartitions("__topic", place)


def as_messages(rows: DataFrame, *, namespace: str | None, has_text_keys: bool) -> DataFrame:
    """The columns that the sink writes; in another namespace topics keep their local names."""
    kept = [name for name in rows.columns if name not in NOT_PUBLISHED]
    messages = rows.select(*(f.col(f"`{name}`") for name in kept))
    if has_text_keys:
        messages = with_text_keys(messages)
    if namespace is None:
        # All go to the topic of the option ``topic``, which the sink has.
        return messages.drop("__topic")
    name = f.element_at(f.split(_without_partition(f.col("__topic")), "/"), -1)
    return messages.withColumn("__topic", f.concat(f.lit(f"persistent://{namespace}/"), name))


def with_text_keys(rows: DataFrame) -> DataFrame:
    """The rows with keys of type string, as nearly all producers have them.

    The source gives all keys as bytes, and bytes are stored in base64: as other keys, which go to
    other partitions. Spark fails for a key that is no UTF-8.
    """
    if dict(rows.dtypes).get("__key") != "binary":
        return rows
    return rows.withColumn("__key", f.validate_utf8(f.col("__key").cast("string")))


def _without_partition(topic: Column) -> Column:
    """The name of the whole topic: its target may have more partitions, or fewer."""
    return f.regexp_replace(topic, r"-partition-\d+$", "")


def limited(rows: DataFrame, rows_a_second: float) -> DataFrame:
    """The same rows, of which each task passes on so many a second."""

    # The clock is made in the task: what Spark pickles is the function alone.
    def pace(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return paced(batches, rows_a_second, SystemClock().monotonic, threading.Event().wait)

    # Arrow batches as they are: no row becomes an object of Python's.
    return rows.mapInArrow(pace, rows.schema)


def paced(
    batches: Iterator[pa.RecordBatch],
    rows_a_second: float,
    monotonic_s: Callable[[], float],
    wait: Callable[[float], object],
) -> Iterator[pa.RecordBatch]:
    """The rows of ``batches``, a few at a time and no earlier than their rate allows.

    A task that was delayed does not catch up: the topic would get a burst.
    """
    # Slow rates go row by row, less often than PACES_A_SECOND. A tenth of a second's rows at once:
    # a clock and a wait for each row would limit the rate itself.
    step = max(1, int(rows_a_second / PACES_A_SECOND))
    due_s = monotonic_s()
    for batch in batches:
        for start in range(0, batch.num_rows, step):
            some = batch.slice(start, step)
            now_s = monotonic_s()
            if due_s > now_s:
                wait(due_s - now_s)
            due_s = max(due_s, now_s) + some.num_rows / rows_a_second
            yield some


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
