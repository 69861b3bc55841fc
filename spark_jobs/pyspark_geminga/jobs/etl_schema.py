"""Reads messages by their schema, selects and checks, and writes them by the schema of the result.

Messages that cannot be read or do not pass go to a dead-letter topic, with properties that name the
reason and their position. There are two queries, one for each topic, since a query writes messages
of one schema: each reads the source for itself and has its own checkpoint, so that each is exactly
once without the other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.streaming.readwriter import DataStreamWriter

from geminga import MessageId
from geminga.arrow import CORRUPT
from pyspark_geminga.jobs import _session
from pyspark_geminga.jobs.replay import with_text_keys

# Columns that a result has from the message it is made of.
KEPT = ("__key", "__eventTime", "__messageProperties")
# The properties of a dead letter, in addition to those of the message.
REASON, TOPIC, MESSAGE_ID = "etl-reason", "etl-topic", "etl-message-id"
DESCRIPTION = (
    "Reads topics by their schema, keeps the messages and columns that are wanted, checks them, "
    "and publishes them in Avro or JSON under the schema of the result. Messages that cannot be "
    "read or do not pass go to a dead-letter topic with the reason."
)


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns the exit code."""
    parsed = _parse(arguments)
    with _session.job_session("etl_schema", parsed) as spark:
        # "permissive": a payload that cannot be decoded is a row with its bytes in ``__corrupt``.
        options = _session.source_options(parsed, badRecord="permissive")
        # One description of rows for two queries: Spark runs it once in each.
        rows = _session.read_stream(spark, options)
        # Before the rules, so that these see keys as text.
        if not parsed.binary_keys:
            rows = with_text_keys(rows)
        if parsed.where:
            # A message that cannot be read has no columns to filter by: it stays, as a dead letter.
            rows = rows.where(f.col(CORRUPT.name).isNotNull() | f.expr(parsed.where))
        problem = problem_of(parsed.valid)
        # ``problem`` is evaluated in both queries: its rules must give the same each time.
        good = selected(rows.where(problem.isNull()), parsed.select)
        bad = dead_letters(rows.withColumn("problem", problem).where("problem is not null"))
        sink = _session.cluster_options(parsed)
        if parsed.once:
            # Rows come straight from the source, which gives them in the same order each time.
            sink |= {"semantics": "dedup", "orderWithinTask": "none"}
        # One folder below it for each query: Spark refuses two queries with one checkpoint.
        place = parsed.checkpoint.rstrip("/")
        # Results get the schema of their columns, which the sink registers; dead letters none, as
        # their bytes are of any kind.
        good_writer = _writer(good, sink, topic=parsed.to, recordFormat=parsed.format)
        bad_writer = _writer(bad, sink, topic=parsed.dead_letter, valueMode="raw")
        writers = {f"{place}/good": good_writer, f"{place}/bad": bad_writer}
        # Both queries read all rows; the number of one is that of the job.
        rows_read, _ = _session.run_streams(writers, parsed)
    _session.say(f"{rows_read:,} messages were read; results are in {parsed.to}")
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _session.job_parser("etl_schema", DESCRIPTION)
    _session.add_topics(parser, is_range=False)
    _session.add_stream(parser)
    rules = parser.add_argument_group("what becomes of messages, in Spark's SQL")
    rules.add_argument("--where", metavar="SQL", help="others are left out")
    rules.add_argument(
        "--valid",
        action="append",
        default=[],
        metavar="SQL",
        help="others are dead letters; may be repeated, each is named as the reason",
    )
    rules.add_argument(
        "--select",
        action="append",
        metavar="SQL",
        help="a column of the result, such as 'price * 2 as twice'; may be repeated (default: all)",
    )
    target = parser.add_argument_group("where they go")
    target.add_argument("--to", required=True, metavar="TOPIC", help="the results")
    target.add_argument("--dead-letter", required=True, metavar="TOPIC", help="the others")
    target.add_argument(
        "--format",
        choices=("avro", "json", "auto"),
        default="avro",
        help="of the results (default: avro); auto makes a single column a simple value",
    )
    target.add_argument(
        "--binary-keys",
        action="store_true",
        help="keys are bytes and not text: consumers see them in base64",
    )
    target.add_argument(
        "--once",
        action="store_true",
        help="each message once, whatever fails: needs topics that deduplicate",
    )
    return parser.parse_args(arguments)


def problem_of(rules: Sequence[str]) -> Column:
    """The reason why a row is a dead letter; null for a row that is a result."""
    is_corrupt = f.col(CORRUPT.name).isNotNull()
    problem = f.when(is_corrupt, f.lit("the payload does not fit the schema"))
    # The first rule that is not met is the reason; later ones are not evaluated.
    for rule in rules:
        # A rule that gives null, as about a missing field, is not met.
        is_valid = f.coalesce(f.expr(rule), f.lit(False))  # noqa: FBT003  # a value, no switch
        problem = problem.when(~is_valid, f.lit(f"not {rule}"))
    return problem


def selected(rows: DataFrame, columns: Sequence[str] | None) -> DataFrame:
    """The columns of the result, and those that it has from its message."""
    names = [f"`{name}`" for name in rows.columns if not name.startswith("__")]
    # Key, event time and properties always come along: the result takes the place of its message,
    # in its partition and its order.
    return rows.selectExpr(*(columns or names), *KEPT)


def dead_letters(rows: DataFrame) -> DataFrame:
    """The dead letters of ``rows``, which have the reason in the column ``problem``.

    The value is the payload as it came if it could not be read, or else its columns as JSON.
    """
    # ``__corrupt`` is among the columns that are left out: it is the value itself then.
    columns = [name for name in rows.columns if not name.startswith("__") and name != "problem"]
    # Without null columns, as ``to_json`` leaves these out.
    as_json = f.to_json(f.struct(*(f.col(f"`{name}`") for name in columns)))
    # PySpark takes the kind of function from its annotations, which its own types do not know.
    message_id = arrow_udf(readable_ids, "string")(f.col("__messageId"))  # type: ignore[call-overload]
    said = f.create_map(
        f.lit(REASON),
        f.col("problem"),
        f.lit(TOPIC),
        f.col("__topic"),
        f.lit(MESSAGE_ID),
        message_id,
    )
    had = f.coalesce(f.col("__messageProperties"), f.create_map().cast("map<string,string>"))
    # A dead letter that is read again has such properties already: the new ones replace them.
    names = f.array(f.lit(REASON), f.lit(TOPIC), f.lit(MESSAGE_ID))
    others = f.map_filter(had, lambda name, _: ~f.array_contains(names, name))
    return rows.select(
        f.coalesce(f.col(CORRUPT.name), as_json.cast("binary")).alias("value"),
        "__key",
        "__eventTime",
        f.map_concat(others, said).alias("__messageProperties"),
    )


def readable_ids(message_ids: pa.Array) -> pa.Array:
    """Message ids as tools print them: ``ledger:entry:index``."""
    found = [MessageId.from_bytes(each) for each in message_ids.to_pylist()]
    return pa.array([f"{each.ledger_id}:{each.entry_id}:{each.batch_index}" for each in found])


def _writer(rows: DataFrame, options: Mapping[str, str], **more: str) -> DataStreamWriter:
    return rows.writeStream.format("pulsar").options(**(dict(options) | more))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
