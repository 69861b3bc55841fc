"""The topics that state is kept in: their names, and how one is written.

The lane of an instance has its number as its name, that of an input partition the digest of the
partition's name, and ``rest`` is the one that REST writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import geminga
from geminga_functions.errors import StateTooLarge
from geminga_functions.names import SLUG_CHARACTERS_MAX, FunctionName, digest_of, slug_of
from geminga_functions.state.table import REST_LANE

PARTITION_PREFIX = "in-"
# Names of the workers' other topics begin otherwise.
LANES_PREFIX = "state-"


def lane_prefix(namespace: str, function: FunctionName) -> str:
    """What the names of all lanes of a function begin with."""
    path = str(function)
    slug = slug_of(path)[:SLUG_CHARACTERS_MAX].strip("-")
    return f"persistent://{namespace}/{LANES_PREFIX}{slug}-{digest_of(path)}-"


def is_lane(topic: str) -> bool:
    """Whether a topic of that name is a lane of some function's state."""
    return topic.rpartition("/")[2].startswith(LANES_PREFIX)


def lane_of_partition(topic: str) -> str:
    """The lane of an input partition."""
    return PARTITION_PREFIX + digest_of(topic)


async def lanes_of(
    client: geminga.Client, namespace: str, function: FunctionName
) -> dict[str, str]:
    """The lanes of a function that there are, and their topics. Raises ``ClientError``."""
    prefix = lane_prefix(namespace, function)
    topics = await client.topics(namespace)
    return {topic.removeprefix(prefix): topic for topic in topics if topic.startswith(prefix)}


class LaneWriter:
    """Writes one lane. Opening it ends the writer before it, which stores nothing more from then
    on: but for REST's lane, which every worker writes."""

    def __init__(self, producer: geminga.EntryProducer) -> None:
        # Held by what makes records from what the lane has, until the lane has them.
        self.turn = asyncio.Lock()
        self._producer = producer
        self._sequence_id = producer.known_sequence_id + 1

    @classmethod
    async def open(cls, client: geminga.Client, lane: str, topic: str) -> LaneWriter:
        """Take the lane. Raises ``ClientError``."""
        mode = geminga.AccessMode.EXCLUSIVE_WITH_FENCING
        if lane == REST_LANE:
            mode = geminga.AccessMode.SHARED
        return cls(await client.entry_producer(topic, access_mode=mode, send_timeout_s=None))

    async def write(self, records: Mapping[str, bytes]) -> tuple[int, int] | None:
        """Store records by their keys, all or none: they are one entry. Returns, when it is stored,
        its (ledger id, entry id), or None where an earlier attempt had stored it.

        Raises ``StateTooLarge``, and ``ClientError``: ``ProducerFenced`` where the lane has another
        writer.
        """
        keys, payloads = list(records), list(records.values())
        attributes = geminga.encode_attributes(len(records), keys=keys)
        size = sum(map(len, payloads)) + sum(map(len, attributes))
        if size > self._producer.message_bytes_max:
            raise StateTooLarge(size, self._producer.message_bytes_max)
        await self._producer.send(payloads, attributes, self._sequence_id)
        self._sequence_id += len(records)
        await self._producer.flush()
        return self._producer.last_position

    async def close(self) -> None:
        """Give the lane back."""
        await self._producer.close()
