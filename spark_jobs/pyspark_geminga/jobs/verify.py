"""Compares what is stored with what should be: a topic with another, with itself, or with Parquet.

It is the check of exactly-once: it reports which messages are missing, which are stored too often,
and which messages of a key changed their order. Messages are equal if their producers wrote the
same in all columns. Equal messages are numbered, so that two of them must be found twice.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.window import Window

from pyspark_geminga.jobs import _session
from pyspark_geminga.jobs.compact import places

# How messages are paired, by identity and by their number among equal ones:
#
#   expected   a1  a2  b1
#   found      a1      b1  b2     a2 is missing, b2 is too much
#
PARQUET = "parquet:"
# Columns that differ for the same message in another topic or in an archive.
NOT_COMPARED = ("__topic", "__messageId", "__publishTime", "dt", "hour")
# Columns that say where a message is: ``place`` sorts in the order of the log.
PLACED = ("key", "topic", "place")
DESCRIPTION = (
    "Compares the messages of two topics, or of a topic and an archive: which are missing, which "
    "are stored too often, and which messages of a key are in another order. With --sequence, "
    "also looks for gaps and repeats in numbers that messages carry. The exit code is 0 if nothing "
    "is wrong, and 1 if something is."
)


@dataclass(frozen=True, slots=True)
class SequenceFindings:
    """What is wrong with the numbers in messages."""

    missing: int  # between the lowest and the highest
    repeated: int
    out_of_order: int  # lower than the number before


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """How many messages there are, and what is wrong with them; ``None`` if not checked."""

    # Of the side that is checked; ``expected_rows`` are those of the other.
    rows: int
    repeated: int  # equal to a message before
    expected_rows: int | None = None
    missing: int | None = None
    surplus: int | None = None
    out_of_order: int | None = None  # behind a message of their key that they should be before
    # A few of the messages that are wrong come last, in ``examples``.
    sequence: SequenceFindings | None = None
    examples: list[Mapping[str, object]] = field(default_factory=list[Mapping[str, object]])

    @property
    def is_right(self) -> bool:
        """Is nothing wrong? Equal messages are wrong only where neither another side nor numbers
        tell whether a producer meant to send two of them."""
        wrong = [self.missing, self.surplus, self.out_of_order]
        if self.sequence is not None:
            wrong += asdict(self.sequence).values()
        elif self.expected_rows is None:
            wrong.append(self.repeated)
        return not any(wrong)


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns the exit code."""
    parsed = _parse(arguments)
    with _session.job_session("verify", parsed) as spark, _session.told_progress(spark, "verify"):
        # Lazy: nothing is read before ``compare`` counts.
        found = _side(spark, parsed, parsed.found, parsed.found_option)
        expected = None
        if parsed.expected:
            expected = _side(spark, parsed, parsed.expected, parsed.expected_option)
        findings = compare(found, expected, same_by=parsed.same_by, examples=parsed.examples)
        if parsed.sequence:
            sequence = check_sequence(found, parsed.sequence, by=parsed.sequence_by)
            findings = replace(findings, sequence=sequence)
    told = asdict(findings)
    # On standard output, and alone there: all other words go to standard error.
    print(json.dumps(told) if parsed.json else described(told))
    return 0 if findings.is_right else 1


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _session.job_parser("verify", DESCRIPTION)
    sides = parser.add_argument_group(
        "what is compared", f"a topic by its name, or {PARQUET}DIR for an archive"
    )
    sides.add_argument("--found", required=True, metavar="SIDE", help="what is checked")
    sides.add_argument("--expected", metavar="SIDE", help="what it should be")
    for side in ("found", "expected"):
        _session.add_pairs(
            sides,
            f"--{side}-option",
            "an option of its format('pulsar'), such as startingTime=2026-11-22",
        )
    rules = parser.add_argument_group("rules")
    rules.add_argument(
        "--same-by",
        action="append",
        metavar="SQL",
        help="messages are equal if this is equal, such as __messageProperties['id']; may be "
        "repeated (default: key, value, event time and properties)",
    )
    rules.add_argument(
        "--sequence",
        metavar="SQL",
        help="a number that rises by one from message to message, such as "
        "cast(cast(value as string) as bigint)",
    )
    rules.add_argument(
        "--sequence-by",
        default="__key",
        metavar="SQL",
        help="whose numbers they are (default: __key)",
    )
    output = parser.add_argument_group("result")
    output.add_argument("--json", action="store_true", help="for programs")
    output.add_argument(
        "--examples", type=int, default=10, metavar="N", help="at most so many (default: 10)"
    )
    return parser.parse_args(arguments)


def _side(
    spark: SparkSession,
    arguments: argparse.Namespace,
    side: str,
    options: Sequence[tuple[str, str]],
) -> DataFrame:
    """The messages of one side; payloads are bytes as they are."""
    if side.startswith(PARQUET):
        # An archive of ``jobs.archive``: its ``dt`` and ``hour`` are not compared.
        return spark.read.parquet(side.removeprefix(PARQUET))
    given = {"topic": side, "valueMode": "raw", "startingOffsets": "earliest"}
    # The source refuses a start by offset and by time; what a user gave counts.
    if any(name.lower() == "startingtime" for name, _ in options):
        del given["startingOffsets"]
    return _session.read_batch(spark, given | _session.cluster_options(arguments) | dict(options))


def compare(
    found: DataFrame,
    expected: DataFrame | None,
    *,
    same_by: Sequence[str] | None = None,
    examples: int = 10,
) -> Findings:
    """What is wrong with ``found``: rows of the source, or of an archive."""
    # Cached, since counts, pairs and examples are made of it: each would read the topic again.
    numbered = _numbered(found, same_by).cache()
    try:
        counts = numbered.agg(f.count("*"), f.count_if(f.col("occurrence") > 1)).first()
        assert counts is not None
        rows, repeated = counts
        if expected is None:
            again = _examples(numbered.where("occurrence > 1"), "repeated", examples)
            return Findings(rows=rows, repeated=repeated, examples=again)
        # Each message is paired with the one that it should be; one of the two may be missing.
        left = _numbered(expected, same_by).select(
            "identity", "occurrence", *(f.col(name).alias(f"expected_{name}") for name in PLACED)
        )
        right = numbered.select("identity", "occurrence", *PLACED)
        pairs = left.join(right, ["identity", "occurrence"], "full_outer").cache()
        try:
            return _judged(pairs, rows, repeated, examples)
        finally:
            pairs.unpersist()
    finally:
        numbered.unpersist()


def _numbered(rows: DataFrame, same_by: Sequence[str] | None) -> DataFrame:
    """The identity of each message, its number among equal ones, and where it is in the log."""
    if same_by:
        compared = [f.expr(each) for each in same_by]
    else:
        compared = []
        for name in sorted(set(rows.columns) - set(NOT_COMPARED)):
            column = f.col(f"`{name}`")
            if name == "__messageProperties":
                # The order of properties has no meaning, and none are as good as an empty map.
                column = f.array_sort(f.map_entries(f.coalesce(column, f.create_map())))
            compared.append(column.alias(name))
    identity = f.struct(*compared)
    # PySpark takes the kind of function from its annotations, which its own types do not know.
    place = arrow_udf(places, "binary")(f.col("__messageId"))  # type: ignore[call-overload]
    told = rows.select(
        # A hash instead of the columns: what is shuffled and cached does not grow with payloads.
        # JSON with nulls, so that an absent column and an empty one differ.
        f.sha2(f.to_json(identity, {"ignoreNullFields": "false"}), 256).alias("identity"),
        f.col("__key").alias("key"),
        f.col("__topic").alias("topic"),
        place.alias("place"),
    )
    # The n-th of equal messages on one side is paired with the n-th on the other: which of them is
    # which cannot be told, and need not be.
    equal = Window.partitionBy("identity").orderBy("topic", "place")
    return told.withColumn("occurrence", f.row_number().over(equal))


def _judged(pairs: DataFrame, rows: int, repeated: int, examples: int) -> Findings:
    # In a full outer join one side's columns are null where the other has no partner.
    is_missing, is_surplus = f.col("topic").isNull(), f.col("expected_topic").isNull()
    # Where the message of the same key is that should be before this one.
    key = Window.partitionBy("expected_key", "expected_topic").orderBy("expected_place")
    before = f.lag(f.struct("topic", "place")).over(key)
    # Only messages that both sides have, and that have a key: without one there is no order to
    # keep.
    both = pairs.where(~is_missing & ~is_surplus & f.col("key").isNotNull())
    # Messages in different topics (as after a partition was added) have no order.
    is_behind = (before["topic"] == f.col("topic")) & (before["place"] > f.col("place"))
    # A null in ``is_behind`` (the first of a key) is not true, and filtered out.
    disordered = both.withColumn("is_behind", is_behind).where("is_behind")
    counts = pairs.agg(
        f.count_if(~is_surplus), f.count_if(is_missing), f.count_if(is_surplus)
    ).first()
    assert counts is not None
    expected_rows, missing, surplus = counts
    out_of_order = disordered.count()
    # A missing message is shown where it was expected.
    lost = pairs.where(is_missing).select(
        *(f.col(f"expected_{name}").alias(name) for name in PLACED)
    )
    # Each kind gets what the kinds before it have left of the number of examples.
    found_wrong: list[Mapping[str, object]] = []
    for problem, concerned, count in (
        ("missing", lost, missing),
        ("surplus", pairs.where(is_surplus), surplus),
        ("out of order", disordered, out_of_order),
    ):
        if count:
            found_wrong += _examples(concerned, problem, examples - len(found_wrong))
    return Findings(
        rows=rows,
        repeated=repeated,
        expected_rows=expected_rows,
        missing=missing,
        surplus=surplus,
        out_of_order=out_of_order,
        examples=found_wrong,
    )


def _examples(rows: DataFrame, problem: str, count: int) -> list[Mapping[str, object]]:
    """A few messages, with their positions as ``ledger:entry:index``."""
    if count <= 0:
        return []
    # In the log's order, so that the same run prints the same ones.
    chosen = rows.orderBy("topic", "place").limit(count).collect()
    found: list[Mapping[str, object]] = []
    for row in chosen:
        place = bytes(row["place"])  # the layout of ``compact.PLACE``, with the index plus 1
        ledger, entry, index = (
            int.from_bytes(place[start:end], "big") for start, end in ((0, 8), (8, 16), (16, 20))
        )
        # Keys may be any bytes: what is no UTF-8 is shown as a replacement character.
        key = None if row["key"] is None else bytes(row["key"]).decode(errors="replace")
        found.append(
            {
                "problem": problem,
                "topic": row["topic"],
                "message": f"{ledger}:{entry}:{index - 1}",
                "key": key,
            }
        )
    return found


def check_sequence(rows: DataFrame, sequence: str, *, by: str = "__key") -> SequenceFindings:
    """What is wrong with the numbers that ``sequence`` takes out of each message."""
    place = arrow_udf(places, "binary")(f.col("__messageId"))  # type: ignore[call-overload]  # as above
    told = rows.select(
        f.expr(by).alias("by"),
        f.expr(sequence).cast("bigint").alias("number"),
        f.col("__topic").alias("topic"),
        place.alias("place"),
    )
    # Order is checked within a topic only, gaps and repeats over all topics that have numbers of
    # the same group. ``lag`` gives null before the first number of a group: a comparison with it is
    # not true.
    before = f.lag("number").over(Window.partitionBy("by", "topic").orderBy("place"))
    # A number that is null (the expression does not apply to the message) is in none of the counts.
    groups = (
        told.withColumn("is_lower", f.col("number") < before)
        .groupBy("by")
        .agg(
            (f.max("number") - f.min("number") + 1 - f.count_distinct("number")).alias("missing"),
            (f.count("number") - f.count_distinct("number")).alias("repeated"),
            f.count_if("is_lower").alias("out_of_order"),
        )
    )
    names = ("missing", "repeated", "out_of_order")
    sums = groups.agg(*(f.coalesce(f.sum(name), f.lit(0)) for name in names)).first()
    assert sums is not None
    return SequenceFindings(*map(int, sums))


def described(told: Mapping[str, object]) -> str:
    """The findings, a line each."""
    lines: list[str] = []
    for name, value in told.items():
        if isinstance(value, Mapping):
            lines += [f"sequence {part}: {count:,}" for part, count in value.items()]
        elif isinstance(value, int):
            lines.append(f"{name.replace('_', ' ')}: {value:,}")
    examples = told["examples"]
    assert isinstance(examples, list)
    lines += ["; ".join(f"{name} {value}" for name, value in each.items()) for each in examples]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
