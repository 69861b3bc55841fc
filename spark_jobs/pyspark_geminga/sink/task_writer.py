"""Stores the rows of one attempt of a task: routes them to topics, cuts entries, awaits receipts.

With deduplication, an attempt repeats what the one before it did: the same rows in the same order,
under the producer's name of this query and task, with the sequence ids of this epoch. The broker
drops what it has. The attempt sends all rows, also those up to the last sequence id that the broker
reports: Apache Pulsar reports an id before its message is durable, so that skipped rows would be
lost if that broker fails. The last id only decides where an entry has to end (``cutting``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from random import Random

from geminga import (
    Client,
    EntryProducer,
    InvalidTopicName,
    MessageTooLarge,
    ProducerBusy,
    SchemaInfo,
)
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.backoff import Backoff
from pyspark_geminga.sink.cutting import (
    MESSAGE_OVERHEAD_BYTES,
    ORDINAL_BITS,
    ORDINALS,
    cut_entries,
    first_sequence_id,
)
from pyspark_geminga.sink.errors import EpochOutOfOrder, InvalidRow
from pyspark_geminga.sink.options import Cut, SinkOptions
from pyspark_geminga.sink.routing import TopicRoute
from pyspark_geminga.sink.rows import TOPIC, Rows, in_stored_order

# Topics and partitions of one task, each with a producer. A task that names more has, most likely,
# the wrong column in ``__topic``.
DESTINATIONS_MAX = 1000
# What a task may hold in memory to sort its rows: Spark's memory limits do not know of it.
SORTED_BYTES_MAX = 1 << 30
# How long to wait until a producer of the same name is closed: a broker notices after a minute at
# most that the machine of an earlier attempt is gone.
BUSY_TIMEOUT_S = 120.0
BUSY_FIRST_S, BUSY_LIMIT_S = 0.05, 1.0
# So many entries are sent before the event loop gets a turn, in which the connection writes them.
TURN_ENTRIES = 8


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes."""

    task: int  # the number of the Spark partition
    # With deduplication: the producer's name, under which topics keep the last sequence id.
    producer: str | None = None
    epoch: int = 0  # the number of the micro-batch


@dataclass(frozen=True, slots=True)
class Written:
    """What a task stored."""

    rows: int
    size_bytes: int
    repeated_rows: int  # those of ``rows`` that the topics had from an earlier attempt
    destinations: int  # topics and partitions


# The way of a row:
#
#   add -> [sorted in finish] -> TopicRoute -> Destination.add -> cut_entries -> producer.send
#   finish: the last entry of each destination -> flush, which waits for all receipts
@dataclass(eq=False, slots=True)
class TaskWriter:
    """Takes rows by ``add``; ``finish`` returns when all of them are stored. Always ``close`` it.

    ``partitions`` is how many the topic of the options has. ``check`` raises where a topic does
    not deduplicate. All methods raise the errors that keep rows from being stored.
    """

    _client: Client
    _options: SinkOptions
    _schema: SchemaInfo | None
    _identity: Identity
    _: KW_ONLY
    partitions: int
    # None: at least once is enough, which needs no deduplication.
    check: Callable[[str], Awaitable[None]] | None
    # Routes by the names in rows (None: the topic of the options), destinations by whole names:
    # rows may name one topic in several ways.
    _routes: dict[str | None, TopicRoute] = field(default_factory=dict[str | None, TopicRoute])
    _destinations: dict[str, Destination] = field(default_factory=lambda: dict[str, Destination]())
    # Rows that are sorted and sent at the end. Empty where rows are not sorted. Up to
    # SORTED_BYTES_MAX, counted in the field below.
    _unsorted: list[Rows] = field(default_factory=list[Rows])
    _unsorted_bytes: int = 0

    async def add(self, rows: Rows) -> None:
        """Send these rows, or keep them until ``finish`` sorts all."""
        if not self._options.is_sorted:
            await self._send(rows)
            return
        self._unsorted.append(rows)
        self._unsorted_bytes += rows.size_bytes
        if self._unsorted_bytes > SORTED_BYTES_MAX:
            raise InvalidRow(
                "value",
                f"is too much for orderWithinTask=value: a task sorts {SORTED_BYTES_MAX} bytes at "
                "most; use smaller micro-batches, more partitions, or orderWithinTask=none where "
                "rows come in the same order each time",
            )

    async def finish(self) -> Written:
        """Send what is left, and wait until everything is stored."""
        if self._unsorted:
            # Only now are all rows known: the place of a row in the order depends on all others.
            rows, self._unsorted = in_stored_order(self._unsorted), []
            await self._send(rows)
        destinations = self._destinations.values()
        await asyncio.gather(*[each.finish() for each in destinations])
        return Written(
            sum(each.rows for each in destinations),
            sum(each.size_bytes for each in destinations),
            sum(each.producer.repeated_messages for each in destinations),
            len(destinations),
        )

    async def close(self) -> None:
        """Leave the brokers, so that another attempt finds the name free."""
        await asyncio.gather(*[each.producer.close() for each in self._destinations.values()])

    async def _send(self, rows: Rows) -> None:
        if not len(rows):
            return
        topics = [None] if rows.topics is None else list(dict.fromkeys(rows.topics))
        for topic in topics:
            if topic not in self._routes:
                self._routes[topic] = await self._route(topic)
        # By destination, the numbers of its rows, or None for all of them: with one topic that has
        # no partitions, rows need not be routed one by one.
        places: dict[str, list[int] | None] = {}
        if len(topics) == 1 and (only := self._routes[topics[0]].only) is not None:
            places[only] = None
        else:
            numbers: dict[str, list[int]] = {}
            for at in range(len(rows)):
                route = self._routes[None if rows.topics is None else rows.topics[at]]
                name = route.destination(None if rows.keys is None else rows.keys[at])
                numbers.setdefault(name, []).append(at)
            places.update(numbers)
        missing = [name for name in places if name not in self._destinations]
        if len(self._destinations) + len(missing) > DESTINATIONS_MAX:
            raise InvalidRow(TOPIC, f"names more than {DESTINATIONS_MAX} topics in one task")
        # All of them before the first row goes out: a topic that is refused then stops the batch of
        # rows as a whole.
        await asyncio.gather(*[self._open(name) for name in missing])
        # One destination after the other: ``add`` waits where a producer has too much in flight.
        for name, some in places.items():
            taken = rows if some is None else rows.take(some)
            await self._destinations[name].add(taken.payloads, taken.attributes)

    async def _route(self, topic: str | None) -> TopicRoute:
        """How rows for ``topic`` are routed; ``None`` is the topic of the options."""
        options = self._options
        text = options.topic if topic is None else topic
        assert text is not None, "the layout of rows has seen to it"
        try:
            name = TopicName.parse(text)
        except InvalidTopicName as error:
            raise InvalidRow(TOPIC, f"names no topic: {error}") from error
        # The partitions of the options' topic were counted when the query was planned, and those of
        # topics in rows are counted now. A name of a partition is a topic without partitions.
        partitions = self.partitions
        if topic is not None:
            partitions = 0
            if name.partition_index < 0:
                partitions = await self._client.partitions(str(name))
        return TopicRoute(
            name,
            partitions,
            hashing=options.hashing,
            turn_rows=options.cut.rows_max,
            task=self._identity.task,
        )

    async def _open(self, name: str) -> None:
        options, identity = self._options, self._identity
        producer = await open_patiently(self._client, name, self._schema, options, identity)
        destination = Destination(producer, options.cut, identity)
        # From here on ``close`` closes the producer, also if a check below fails.
        self._destinations[name] = destination
        if identity.producer is not None:
            # Before anything is sent: the topic would drop the rows of an earlier epoch without an
            # error.
            destination.check_epoch()
            if self.check is not None:
                await self.check(name)


async def open_patiently(
    client: Client,
    topic: str,
    schema: SchemaInfo | None,
    options: SinkOptions,
    identity: Identity,
) -> EntryProducer:
    """Open the producer of a task; wait while an earlier attempt's producer of that name is open.

    Raises ``ProducerBusy`` if that one is not closed in time, or another ``ClientError``.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + BUSY_TIMEOUT_S
    backoff = Backoff(BUSY_FIRST_S, BUSY_LIMIT_S, Random())  # noqa: S311  # jitter, no secret
    while True:
        try:
            return await client.entry_producer(
                topic,
                name=identity.producer,
                schema=schema,
                compression=options.compression,
                send_timeout_s=options.send_timeout_s,
                # In messages, since that is what producers bound: as many as so many full entries
                # have.
                pending_messages_max=options.in_flight_max * options.cut.rows_max,
            )
        except ProducerBusy:
            # The broker chose a free name where none was given: then another producer has exclusive
            # access to the topic, and waiting is of no use.
            if identity.producer is None or loop.time() >= deadline_s:
                raise
        await asyncio.sleep(backoff.next_s())


class Destination:
    """One topic or partition: its producer, and the rows that are in no entry yet.

    ``rows`` and ``size_bytes`` count all that were added.
    """

    def __init__(self, producer: EntryProducer, cut: Cut, identity: Identity) -> None:
        self.producer = producer
        self._identity = identity
        # The broker says what it takes when the producer opens: an entry within both limits is not
        # refused for its size.
        self._cut = Cut(
            rows_max=cut.rows_max, bytes_max=min(cut.bytes_max, producer.message_bytes_max)
        )
        # Rows that are in no entry yet; sizes are those within an entry. The three lists have the
        # same length, less than one entry between two calls of ``add``.
        self._payloads: list[bytes] = []
        self._attributes: list[bytes] = []
        self._sizes: list[int] = []
        self._ordinal = 0  # of the first of these rows
        self.rows = self.size_bytes = 0
        self._first_sequence_id = first_sequence_id(identity.epoch)
        # The ordinal behind the last row of this epoch that the topic has; 0 or less for none.
        self._boundary = producer.known_sequence_id + 1 - self._first_sequence_id

    def check_epoch(self) -> None:
        """Raise ``EpochOutOfOrder`` where the topic has rows of a later epoch."""
        # -1 for a name that the topic does not know, which stays -1 when it is shifted.
        known_epoch = self.producer.known_sequence_id >> ORDINAL_BITS
        if known_epoch > self._identity.epoch:
            raise EpochOutOfOrder(
                self.producer.topic, self.producer.name, self._identity.epoch, known_epoch
            )

    async def add(self, payloads: Sequence[bytes], attributes: Sequence[bytes]) -> None:
        """Send the entries that are complete with these rows."""
        self._payloads += payloads
        self._attributes += attributes
        overhead = MESSAGE_OVERHEAD_BYTES
        sizes = [
            len(payload) + len(said) + overhead
            for payload, said in zip(payloads, attributes, strict=True)
        ]
        self._sizes += sizes
        self.rows += len(sizes)
        self.size_bytes += sum(sizes) - overhead * len(sizes)
        # The next row would carry over into the bits of the epoch.
        if self.rows > ORDINALS:
            raise InvalidRow("value", f"is one of more than {ORDINALS} in a task: use more tasks")
        # Of the topic's numbering, made an index among the rows that are in no entry yet.
        boundary = self._boundary - self._ordinal
        await self._send(cut_entries(self._sizes, self._cut, boundary))

    async def finish(self) -> None:
        """Send the last entry, and wait until all are stored."""
        if self._sizes:
            await self._send([len(self._sizes)])
        await self.producer.flush()

    async def _send(self, ends: Sequence[int]) -> None:
        start = 0
        for number, end in enumerate(ends, 1):
            # The sequence id is that of the entry's first row; the broker compares this one, and
            # the rows behind it count up.
            first = self._first_sequence_id + self._ordinal + start
            try:
                await self.producer.send(
                    self._payloads[start:end], self._attributes[start:end], first
                )
            except MessageTooLarge as error:
                raise InvalidRow(
                    "value",
                    f"is too large: {error.message_bytes} bytes, where the broker of "
                    f"{self.producer.topic} takes {error.message_bytes_max}",
                ) from error
            if self._sizes[start] > self._cut.bytes_max and self._identity.producer is not None:
                # A topic's own limit may be lower than its broker's, so this entry may be refused.
                # Nothing may be stored behind it before that is known: with a higher sequence id
                # stored, the topic would drop the repeat of this entry as stored already.
                await self.producer.flush()
            elif number % TURN_ENTRIES == 0:
                await asyncio.sleep(0)
            start = end
        # After all of them, at once: each deletion moves what is behind it.
        del self._payloads[:start], self._attributes[:start], self._sizes[:start]
        self._ordinal += start
        await asyncio.sleep(0)
