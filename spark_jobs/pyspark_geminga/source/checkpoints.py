"""Spark's checkpoints, as far as they concern this source: up to where a query has processed.

A query acknowledges a batch on its subscription when it plans the next one. The last batch of a run
with ``Trigger.AvailableNow`` is therefore acknowledged by the next run that finds new messages.
``commit_from_checkpoint`` acknowledges it at once, where backlogs are monitored, or topics trimmed
by them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from geminga import LogPosition, MessageId
from pyspark_geminga._pool import task_client
from pyspark_geminga.errors import InvalidOffset, InvalidOption
from pyspark_geminga.source.decisions.offsets import SourceOffset
from pyspark_geminga.source.decisions.options import SourceOptions


def commit_from_checkpoint(
    checkpoint: str | Path, options: Mapping[str, str]
) -> dict[str, LogPosition]:
    """Acknowledge, for the query's subscription, everything before the last batch that is done.

    ``checkpoint`` is a directory on this machine, ``options`` are the stream's. The query must not
    be running: its subscription has one consumer. Returns the positions by topic; none if no batch
    is done yet. Raises ``InvalidOption``, ``InvalidOffset`` or ``ClientError``.
    """
    source = SourceOptions.of(options, is_streaming=True)
    if source.subscription is None:
        raise InvalidOption(
            "predefinedSubscription", "is wanted: a query without one acknowledges nothing"
        )
    offset = committed_offset(Path(checkpoint), source)
    if offset is None:
        return {}
    # Topics that the options no longer name stay as they are: the query may read them again. A
    # negative ledger is the start of the log, before which nothing can be acknowledged.
    ends = {
        topic: place.position
        for topic, place in offset.places.items()
        if source.topics.covers(topic) and place.position.ledger_id >= 0
    }
    loop = task_client(source.access)
    subscription = source.subscription

    async def acknowledge() -> None:
        for topic, end in ends.items():
            # Earliest, where the broker has no such subscription: a new one at the end would make
            # the rest of the backlog disappear.
            async with loop.client.consumer(
                topic, subscription, initial_position="earliest", receiver_queue_size=1
            ) as consumer:
                # One topic after the other, each confirmed: after an error the topics before it are
                # acknowledged, which is true of them.
                await consumer.ack_confirmed(last_before(end), cumulative=True)

    loop.run(acknowledge())
    return ends


def committed_offset(checkpoint: Path, options: SourceOptions) -> SourceOffset | None:
    """The end of the last batch that is done, of the source that reads the options' topics."""
    offsets = committed_offsets(checkpoint)
    if offsets is None:
        return None
    # A query may have several sources of this kind; the topics tell which one is meant.
    for offset in offsets:
        if any(options.topics.covers(topic) for topic in offset.places):
            return offset
    raise InvalidOffset(f"no source in {checkpoint} reads the topics of the options")


def committed_offsets(checkpoint: Path) -> list[SourceOffset] | None:
    """The ends of the last batch that is done, of all sources of this kind; ``None`` if none is.

    A batch is done when ``commits`` has a file of its number. ``offsets`` has a file for each batch
    that was planned: a version, a line about the query, then a line for each source.
    """
    commits = checkpoint / "commits"
    # Spark writes checksums (``.7.crc``) and temporary files beside them.
    done = (int(each.name) for each in commits.glob("*") if each.name.isdigit())
    # By number: as texts, 10 would come before 9.
    last = max(done, default=None)
    if last is None:
        return None
    found: list[SourceOffset] = []
    # ``offsets`` may have a later file: of a batch that was planned and has not been processed.
    lines = (checkpoint / "offsets" / str(last)).read_text(encoding="utf-8").splitlines()
    # A source of another kind may have an offset that is no JSON at all ("-" for none).
    for line in lines[2:]:
        try:
            found.append(SourceOffset.from_json(json.loads(line[line.find("{") :])))
        except (ValueError, InvalidOffset):
            continue
    return found


def last_before(end: LogPosition) -> MessageId:
    """The id that a cumulative acknowledgement of everything before ``end`` names.

    It is the entry before, whether that exists or not: -1 is before the first entry of the ledger.
    """
    # Within a batch of messages the entry as a whole stays unacknowledged: a part of it is still to
    # be read.
    return MessageId(end.ledger_id, end.entry_id - 1)
