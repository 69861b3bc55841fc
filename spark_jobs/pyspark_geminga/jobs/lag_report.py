"""How far queries and subscriptions are behind their topics, for people, programs and alerts.

It needs no Spark session: it reads the checkpoints' files and asks the brokers, so that cron can
run it each minute. Brokers count entries, which are batches of messages where producers batch.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.errors import GemingaError
from pyspark_geminga.access import Access
from pyspark_geminga.errors import ConnectorError
from pyspark_geminga.jobs import _session
from pyspark_geminga.log_layout import LogLayout, total_bytes, total_entries
from pyspark_geminga.rest import AdminClient
from pyspark_geminga.source.checkpoints import committed_offsets
from pyspark_geminga.source.decisions.offsets import Place

DESCRIPTION = (
    "Reports how far streaming queries (by their checkpoints) and subscriptions are behind their "
    "topics. Exit codes: 0 nothing is too far behind, 1 something is, or was deleted before it was "
    "read, 2 the command line is wrong, 3 the lag could not be determined."
)
# Exit codes; 2 is argparse's.
TOO_FAR, UNKNOWN = 1, 3
# Of the table. JSON and Prometheus have the names of the fields of ``Lag``.
COLUMNS = ("reader", "topic", "entries", "bytes", "state")
# Of the values of labels in Prometheus' text format.
ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Lag:
    """How far one reader is behind one topic or partition."""

    reader: str  # a checkpoint, or the name of a subscription
    topic: str
    entries: int
    bytes: int | None  # brokers do not tell them for subscriptions
    is_lost: bool = False  # the next entry was deleted unread, or the whole topic


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns the exit code."""
    parsed = _parse(arguments)
    try:
        with closing(AdminClient(Access.of(_session.cluster_options(parsed)))) as admin:
            lags = asyncio.run(_lags(parsed, admin))
    except (GemingaError, OSError) as error:
        _session.say(f"lag_report: {error}")
        # No traceback: programs look at the exit code, and the line above is for people.
        return UNKNOWN
    print("\n".join(FORMATS[parsed.format](lags)))
    # Said on standard error, whatever the format: standard output is for programs.
    late = [lag for lag in lags if lag.is_lost or lag.entries > parsed.max_entries]
    for lag in late:
        what = "lost entries" if lag.is_lost else f"is {lag.entries:,} entries behind"
        _session.say(f"lag_report: {lag.reader} {what} in {lag.topic}")
    return TOO_FAR if late else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _session.job_parser("lag_report", DESCRIPTION, has_session=False)
    readers = parser.add_argument_group("whose lag")
    readers.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="the checkpoint of a query, on this machine; may be repeated",
    )
    readers.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="a topic or partition whose subscriptions are reported; may be repeated",
    )
    readers.add_argument(
        "--subscription", metavar="NAME", help="this subscription alone (default: all)"
    )
    parser.add_argument(
        "--format",
        choices=tuple(FORMATS),
        default="table",
        help="prometheus is the text that a node exporter's textfile collector takes",
    )
    parser.add_argument(
        "--max-entries",
        type=int,
        default=sys.maxsize,
        metavar="N",
        help="how many entries a reader may be behind (default: any number)",
    )
    parsed = parser.parse_args(arguments)
    if not parsed.checkpoint and not parsed.topic:
        parser.error("--checkpoint or --topic is required")
    if not parsed.admin_url:
        parser.error("--admin-url is required: only the REST side tells what topics store")
    return parsed


async def _lags(parsed: argparse.Namespace, admin: AdminClient) -> list[Lag]:
    # One request after the other: the report must not load the brokers that it is about.
    found: list[Lag] = []
    for checkpoint in parsed.checkpoint:
        # A mistyped path must not look like a query without lag. One that has not committed a batch
        # yet has offsets, and no lag that could be measured.
        if not (checkpoint / "offsets").is_dir():
            raise FileNotFoundError(f"{checkpoint} is no checkpoint of a query: it has no offsets")
        # Of the last batch that is done: one that runs now may be repeated, and counts as unread.
        for offset in committed_offsets(checkpoint) or []:
            for topic, place in sorted(offset.places.items()):
                # Offsets name partitions, each a topic by itself.
                layout = (await admin.layouts(topic, 0))[topic]
                found.append(lag_of(str(checkpoint), topic, place, layout))
    for given in parsed.topic:
        # A partitioned topic is asked for as one; brokers sum its partitions up.
        backlogs = await admin.backlogs(str(TopicName.parse(given)))
        if backlogs is None:
            raise ConnectorError(f"there is no topic {given}")
        found += [
            Lag(name, given, backlog, None)
            for name, backlog in sorted(backlogs.items())
            if parsed.subscription in {None, name}
        ]
    return found


def lag_of(reader: str, topic: str, place: Place, layout: LogLayout | None) -> Lag:
    """The lag of a query that goes on at ``place``; ``layout`` is ``None`` for a deleted topic."""
    if layout is None:
        # How much was lost cannot be told any more.
        return Lag(reader, topic, 0, 0, is_lost=True)
    # Without reading: entries and bytes come from the statistics of the topic's ledgers, so that
    # the bytes are a ledger's mean where a query is inside it.
    left = layout.between(place.position, layout.end)
    is_lost = layout.is_lost(place.position)
    return Lag(reader, topic, total_entries(left), total_bytes(left), is_lost=is_lost)


def _table(lags: Sequence[Lag]) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [COLUMNS]
    for lag in lags:
        size = "" if lag.bytes is None else f"{lag.bytes:,}"
        state = "entries were lost" if lag.is_lost else "behind" if lag.entries else "up to date"
        rows.append((lag.reader, lag.topic, f"{lag.entries:,}", size, state))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(
            row, widths, (str.ljust, str.ljust, str.rjust, str.rjust, str.ljust), strict=True
        )
        yield "  ".join(align(cell, width) for cell, width, align in cells).rstrip()


def _prometheus(lags: Sequence[Lag]) -> Iterator[str]:
    metrics = (
        ("entries", "Entries that the reader has not processed.", lambda lag: lag.entries),
        ("bytes", "Bytes of these entries.", lambda lag: lag.bytes),
        (
            "is_lost",
            "1 if entries were deleted before they were read.",
            lambda lag: int(lag.is_lost),
        ),
    )
    for name, words, value_of in metrics:
        metric = f"geminga_spark_lag_{name}"
        # One family of samples after the other: the text format allows no others in between.
        yield f"# HELP {metric} {words}"
        yield f"# TYPE {metric} gauge"
        for lag in lags:
            value = value_of(lag)
            if value is not None:  # no sample: 0 would claim that there is no backlog
                reader, topic = lag.reader.translate(ESCAPES), lag.topic.translate(ESCAPES)
                labels = f'reader="{reader}",topic="{topic}"'
                yield f"{metric}{{{labels}}} {value}"


FORMATS: dict[str, Callable[[Sequence[Lag]], Iterable[str]]] = {
    "table": _table,
    "json": lambda lags: [json.dumps([asdict(lag) for lag in lags], indent=2)],
    "prometheus": _prometheus,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
