"""Lanes, the topics that state is kept in: their names, and their writers.

The lane of an instance is named by the instance's number, that of an input partition by a digest of
the partition's name. REST writes the lane ``rest``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import geminga
from geminga_functions.errors import StateTooLarge
from geminga_functions.names import SLUG_CHARACTERS_MAX, FunctionName, digest_of, slug_of
from geminga_functions.state.table import REST_LANE

# The topics of the state of the function t/n/f:
#
#   persistent://public/functions/state-t-n-f-DIGEST-0          the lane of instance 0
#   persistent://public/functions/state-t-n-f-DIGEST-in-DIGEST  that of an input partition
#   persistent://public/functions/state-t-n-f-DIGEST-rest       REST's
#
# The lanes of input partitions.
PARTITION_PREFIX = "in-"
# The topics of all lanes: no other topic of the workers' begins like this.
LANES_PREFIX = "state-"


def lane_prefix(namespace: str, function: FunctionName) -> str:
    """The beginning of the topic names of a function's lanes; the name of a lane follows."""
    path = str(function)
    # The slug is for people, and may be that of several functions: the digest tells them apart.
    slug = slug_of(path)[:SLUG_CHARACTERS_MAX].strip("-")
    return f"persistent://{namespace}/{LANES_PREFIX}{slug}-{digest_of(path)}-"


def is_lane(topic: str) -> bool:
    """Whether a topic is a lane of any function."""
    return topic.rpartition("/")[2].startswith(LANES_PREFIX)


def lane_of_partition(topic: str) -> str:
    """The lane of an input partition."""
    return PARTITION_PREFIX + digest_of(topic)


async def lanes_of(
    client: geminga.Client, namespace: str, function: FunctionName
) -> dict[str, str]:
    """The lanes of a function that exist, and their topics. Raises ``ClientError``."""
    prefix = lane_prefix(namespace, function)
    topics = await client.topics(namespace)
    # The prefix ends with a digest and a dash: it is that of no other function.
    return {topic.removeprefix(prefix): topic for topic in topics if topic.startswith(prefix)}


@dataclass(slots=True, eq=False)
class LaneWriter:
    """Writes one lane.

    Opening a writer fences the one before it, which can store nothing more. Only REST's lane may
    have several writers, since every worker writes it.
    """

    # To be closed by the user of the writer; the lane stays as it is.
    producer: geminga.EntryProducer
    # Of the next record: the topic deduplicates by it. It only grows, and starts behind what the
    # topic knows of this producer's name.
    sequence_id: int
    # Held from reading what the lane has until records that depend on it are stored.
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    async def open(cls, client: geminga.Client, lane: str, topic: str) -> LaneWriter:
        """Become the writer of a lane, which need not exist. Raises ``ClientError``."""
        mode = geminga.AccessMode.EXCLUSIVE_WITH_FENCING
        # Every worker may write it at any time, and none may fence another.
        if lane == REST_LANE:
            mode = geminga.AccessMode.SHARED
        # No time-out: after one it would be unknown whether a commit is stored.
        producer = await client.entry_producer(topic, access_mode=mode, send_timeout_s=None)
        return cls(producer, producer.known_sequence_id + 1)

    async def write(self, records: Mapping[str, bytes]) -> tuple[int, int] | None:
        """Store records by their keys, as one entry: all of them or none.

        Returns, once it is stored, its (ledger id, entry id), or None if an earlier attempt had
        stored it. Raises ``StateTooLarge``, and ``ClientError``: ``ProducerFenced`` if the lane has
        another writer.
        """
        # One batch, which a broker stores as one entry.
        keys, payloads = list(records), list(records.values())
        attributes = geminga.encode_attributes(len(records), keys=keys)
        size = sum(map(len, payloads)) + sum(map(len, attributes))
        if size > self.producer.message_bytes_max:
            raise StateTooLarge(size, self.producer.message_bytes_max)
        await self.producer.send(payloads, attributes, self.sequence_id)
        # Before the flush: records that were sent use up their ids, whether or not they get stored.
        self.sequence_id += len(records)
        await self.producer.flush()
        return self.producer.last_position
