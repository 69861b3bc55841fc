"""What a planner knows of the cluster: which topics a query reads, and what their logs hold.

With ``admin.url`` logs are known by their ledgers (``rest.py``); without it only by their ends.
Topics are partitions' whole names from here on.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple, TypeVar

from geminga import (
    LATEST,
    LOG_START,
    Client,
    ClientError,
    ConsumerBusy,
    LogPosition,
    MessageId,
    NotAllowed,
    NotAuthorized,
    Reader,
    TopicNotFound,
)
from geminga_protocol.pulsar.topics.topic_names import TopicName
from pyspark_geminga.errors import AdminRefused, ConnectorError
from pyspark_geminga.log_layout import LogLayout
from pyspark_geminga.rest import AdminClient
from pyspark_geminga.source.decisions.admission import CountedEntry
from pyspark_geminga.source.decisions.options import ByTopic, Edge, SourceOptions

log = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")

# How often a running query looks for new partitions, and new topics of its pattern.
TOPICS_REFRESH_S = 5.0
# Requests to brokers that go side by side: of a topic with a thousand partitions.
REQUESTS_MAX = 32
# Entries of a topic that are counted at once; a stream counts as many again ahead. An entry of one
# message takes 250 bytes of memory here, which makes 5 MB.
COUNTED_ENTRIES_MAX = 20_000
RETRY_FIRST_S = 0.1
RETRY_LIMIT_S = 2.0
SERVER_ERRORS = 500  # and above: of HTTP
# The layout of a topic that does not answer. Its end is the start of a log, so that nothing of it
# is read until the next snapshot.
UNKNOWN = LogLayout((), LOG_START)


# What the two kinds of access tell:
#
#                      with ``admin.url``               without
#   what is stored     ledgers, entries and bytes       the end of the log
#   how it is split    by bytes                         one part for each partition
#   what was deleted   by the ledgers that are left     by the first entry that still comes
@dataclass(frozen=True, slots=True)
class Snapshot:
    """The logs by topic; ``asked_s`` is when the view began to ask, so that what was published
    before it is in them."""

    layouts: Mapping[str, LogLayout]
    asked_s: float


class Begin(NamedTuple):
    """Where reading a range begins: at its ``first`` entry, ``None`` where nothing comes.
    ``is_lost``: entries before that one, but within the range, may have been deleted."""

    first: LogPosition | None
    is_lost: bool


class BrokerView:
    """Asks brokers for a planner, on the event loop of its client."""

    def __init__(
        self,
        client: Client,
        options: SourceOptions,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._options = options
        self._monotonic_s = monotonic_s
        self._admin = AdminClient(options.access) if options.access.admin_url else None
        # By topic, the number of partitions when it was looked up last; 0 for a topic without.
        self._partitions: dict[str, int] = {}
        # When topics are looked up again; None until the first time.
        self._refresh_at_s: float | None = None
        self._has_transactions: bool | None = None  # of the cluster; None until it was asked
        # A reader for each topic, which tells up to where the topic can be read. They are needed
        # without a REST side, and with transactions: the REST side reports what is stored, also of
        # open transactions, and a query that went on behind these messages would miss them when
        # they are committed.
        self._readers: dict[str, Reader[bytes]] = {}
        self._slots = asyncio.Semaphore(REQUESTS_MAX)  # requests to brokers, all together

    @property
    def requests_each_time(self) -> int:
        """About how many requests a snapshot costs."""
        if self._admin is not None:
            # The REST side tells of all partitions of a topic at once, if one broker serves them.
            return max(1, len(self._partitions))
        return max(1, sum(max(1, count) for count in self._partitions.values()))

    async def snapshot(self) -> Snapshot:
        """The logs now. Raises ``ConnectorError``, ``ClientError`` or ``OSError``."""
        # Before the first request: what is published while the brokers answer may be missing.
        asked_s = self._monotonic_s()
        # Topics are looked up seldom, their logs each time: a new partition may come a few seconds
        # late, and is then read from its first message.
        if self._refresh_at_s is None or asked_s >= self._refresh_at_s:
            await self._find_topics()
            self._refresh_at_s = asked_s + TOPICS_REFRESH_S
        if self._admin is not None and self._has_transactions is None:
            self._has_transactions = await self._admin.has_transactions()
        layouts: dict[str, LogLayout] = {}
        # All topics at once; ``_slots`` and the REST client bound what is under way.
        found = await asyncio.gather(
            *[self._layouts(topic, count) for topic, count in self._partitions.items()]
        )
        for by_name in found:
            if None in by_name.values():
                # The topic may be deleted, or is just being moved to another broker: the next
                # snapshot looks topics up again, and finds out.
                self._refresh_at_s = 0.0
            layouts |= {name: layout or UNKNOWN for name, layout in by_name.items()}
        return Snapshot(layouts, asked_s)

    async def topics(self) -> list[str]:
        """The topics as users name them, partitioned or not."""
        await self._find_topics()
        return list(self._partitions)

    async def position_at(self, topic: str, time_ms: int) -> LogPosition:
        """The first message that was published at that time or later, or the end of the topic."""
        # The reader seeks to the time; where its first message is, only reading it tells.
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
        async with self._client.reader(topic, moment, receiver_queue_size=1) as reader:
            if not await reader.has_message_available():
                return _behind((await reader.last_message_ids())[topic])
            # The broker has said that there is a message, so that it comes unless the broker fails.
            async with asyncio.timeout(self._options.poll_timeout_s):
                message = await reader.read()
            return LogPosition(*message.position)

    async def begin(self, topic: str, start: LogPosition, end: LogPosition) -> Begin:
        """What is left from ``start`` to ``end``, of a log whose ledgers are not known.

        Logs are deleted from the front, and by whole ledgers: as long as the ledger of ``start``
        has any entry, nothing behind it was deleted. The order of the two requests matters: a
        ledger that still exists at the second one also existed when the first entry was read. A
        ledger that is gone may have been read to its end before; only the REST side could tell.
        """
        first = await self._first_entry(topic, start, end)
        if first is None or first.ledger_id == start.ledger_id:
            return Begin(first, is_lost=False)
        oldest = await self._first_entry(topic, LogPosition(start.ledger_id, 0), end)
        return Begin(first, is_lost=oldest is None or oldest.ledger_id != start.ledger_id)

    async def _first_entry(
        self, topic: str, start: LogPosition, end: LogPosition
    ) -> LogPosition | None:
        timeout_s = self._options.poll_timeout_s
        async with self._client.entries(
            topic, start, end, read_ahead_messages=1, timeout_s=timeout_s
        ) as entries:
            await entries.read(1)
            return entries.first_position

    async def counted(
        self, topic: str, start: LogPosition, end: LogPosition, rows_max: int
    ) -> list[CountedEntry]:
        """The first entries of a range, of about ``rows_max`` rows; empty at its end.

        The reader is closed before this returns: the batch may take long, and a reader that
        reconnects to a topic that was deleted meanwhile would create it again.
        """
        counted: list[CountedEntry] = []
        if start >= end:
            return counted
        timeout_s = self._options.poll_timeout_s
        # No more than is asked for: what a closed reader has read ahead was sent in vain.
        at_once = min(rows_max, 1000)
        opening = partial(
            self._client.entries,
            topic,
            start,
            end,
            read_ahead_messages=at_once,
            timeout_s=timeout_s,
        )
        rows = 0
        # Only the opening is tried again: once entries come, the reader reconnects by itself.
        async with await patiently(opening, timeout_s) as reader:
            while rows < rows_max and len(counted) < COUNTED_ENTRIES_MAX:
                found = await reader.read(at_once)
                if not found:
                    break
                for entry in found:
                    metadata = entry.metadata
                    # A message in chunks is one row, which comes with its last chunk.
                    is_part = metadata is not None and (
                        metadata.chunk_id < metadata.num_chunks_from_msg - 1
                    )
                    count = 0 if is_part else entry.message_count
                    rows += count
                    counted.append(CountedEntry(count, entry.next_position))
        return counted

    async def resolve(
        self, wanted: ByTopic, default: Edge, topic: str, layout: LogLayout
    ) -> LogPosition:
        """The position that the options ask for in ``topic``."""
        # The most specific name wins: the partition, the topic whose partition it is, all topics.
        for name in (topic, str(TopicName.parse(topic).base), ""):
            if name in wanted:
                place = wanted[name]
                break
        else:
            place = default
        if isinstance(place, LogPosition):
            # A position behind the end would skip what is published until the log gets there.
            return LOG_START if place.ledger_id < 0 else min(place, layout.end)
        if isinstance(place, int):
            return await self.position_at(topic, place)
        return layout.first if place == "earliest" else layout.end

    # ---- which topics

    async def _find_topics(self) -> None:
        topics = self._options.topics
        is_first = self._refresh_at_s is None
        if topics.pattern is not None:
            pattern = re.compile(topics.pattern)
            bases, _ = await self._listed(topics.namespace)
            names = tuple(sorted(name for name in bases if pattern.fullmatch(name)))
        else:
            names = topics.names
            # Only lists of namespaces tell what exists: any other request about a topic may create
            # it. For a role that may not see lists, all names that it gave count as existing.
            namespaces = sorted({str(TopicName.parse(name).namespace) for name in names})
            with suppress(NotAuthorized, NotAllowed):
                lists = await asyncio.gather(*[self._listed(each) for each in namespaces])
                known = {name for bases, whole in lists for name in (*bases, *whole)}
                names = tuple(name for name in names if name in known)
            absent = [name for name in topics.names if name not in names]
            if absent and is_first and not self._options.waits_for_topic:
                raise ConnectorError(
                    f"there is no topic {', '.join(absent)}: create it first, or set "
                    "waitingForNonExistedTopic=true; a query that read it before it was deleted "
                    "goes on with failOnDataLoss=false as well"
                )

        async def count(topic: str) -> int:
            async with self._slots:
                return await self._client.partitions(topic)

        counts = await asyncio.gather(*[count(name) for name in names])
        # Replaced as a whole: a topic that was deleted since is in it no more.
        self._partitions = dict(zip(names, counts, strict=True))

    async def _listed(self, namespace: str) -> tuple[set[str], list[str]]:
        """The topics of a namespace: as users name them, and as brokers list them, by partition."""
        whole = await self._client.topics(namespace)
        return {str(TopicName.parse(name).base) for name in whole}, whole

    # ---- their logs

    async def _layouts(self, topic: str, partitions: int) -> dict[str, LogLayout | None]:
        """The layouts of a topic's partitions, by whole name; ``None`` for those that are gone."""
        if self._admin is not None:
            layouts = await self._admin.layouts(topic, partitions)
            if self._has_transactions:
                # A layout ends where open transactions begin, which readers know.
                known = {each: layout for each, layout in layouts.items() if layout is not None}
                ends = await asyncio.gather(*[self._end(each) for each in known])
                for (each, layout), end in zip(known.items(), ends, strict=True):
                    # The layout was asked first: an end of the log that came later may lie behind
                    # it, and is no limit.
                    if end is not None and end < layout.end:
                        layouts[each] = replace(layout, end=end)
            return layouts
        name = TopicName.parse(topic)
        names = [str(name.partition(each)) for each in range(partitions)] or [topic]
        ends = await asyncio.gather(*[self._end(each) for each in names])
        return {
            each: None if end is None else LogLayout((), end)
            for each, end in zip(names, ends, strict=True)
        }

    async def _end(self, topic: str) -> LogPosition | None:
        """Where the topic ends, ``None`` if it is gone."""
        async with self._slots:
            reader = self._readers.get(topic)
            try:
                if reader is None:
                    # Nothing is read from it: with a queue of one, the broker sends one message.
                    reader = await self._client.reader(topic, LATEST, receiver_queue_size=1)
                    self._readers[topic] = reader
                return _behind((await reader.last_message_ids())[topic])
            except TopicNotFound:
                self._readers.pop(topic, None)
                return None


def _behind(last: MessageId) -> LogPosition:
    """Where the next message will be; the start of a topic that has none."""
    return LOG_START if last.entry_id < 0 else LogPosition(last.ledger_id, last.entry_id + 1)


async def patiently(ask: Callable[[], Awaitable[AnswerT]], timeout_s: float) -> AnswerT:
    """Call ``ask`` again after failures that may pass, until ``timeout_s`` is over.

    A broker that restarts, or a topic that moves, is away for seconds: no query has to fail then.
    """
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + timeout_s
    pause_s = RETRY_FIRST_S
    while True:
        try:
            return await ask()
        except (OSError, ClientError, AdminRefused) as error:
            if isinstance(error, AdminRefused):
                may_pass = error.status >= SERVER_ERRORS
            else:
                # The consumer of this query's earlier run, on a machine that is gone, may still
                # hold the subscription: the broker notices that after a while.
                may_pass = isinstance(error, (OSError, ConsumerBusy)) or error.retry
            # The last error is raised at once where the next attempt would come too late.
            if not may_pass or loop.time() + pause_s > give_up_s:
                raise
            log.info("planning waits for the cluster", extra={"error": str(error)})
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, RETRY_LIMIT_S)
