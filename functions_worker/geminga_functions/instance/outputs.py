"""Where the results of an instance go, and what its code publishes besides.

Producers are opened when the first message goes to their topic. With EFFECTIVELY_ONCE the results
of each input partition have a producer of their own, whose name is made of the function and that
partition, and sequence ids made of the input's positions: a topic that deduplicates stores the
result of an input once, whichever instance sends it, and however often.
"""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass
from typing import Any

import geminga
from geminga_functions.errors import InstanceFailed
from geminga_functions.instance.inputs import properties_of
from geminga_functions.instance.spec import InstanceSpec
from geminga_protocol.functions.functions_pb2 import CompressionType

# +---+-----------+----------+-------------+
# | 0 | ledger id | entry id | batch index |      the sequence id of the result of an input
# | 1 |    28     |    24    |     11      |      bits
# +---+-----------+----------+-------------+
ENTRY_BITS, BATCH_BITS = 24, 11
LEDGER_BITS = 63 - ENTRY_BITS - BATCH_BITS
assert LEDGER_BITS == 28
# A partition's producer that has sent nothing for so long closes: the partition may be another
# instance's by now, which needs the producer's name, and waits for it.
IDLE_S = 3.0
NAME_RETRY_S = 0.25
NAME_TIMEOUT_S = 30.0
assert NAME_TIMEOUT_S > 4 * IDLE_S
# Topics that the code of one function publishes to; with more, the one not used for longest closes.
PRODUCERS_MAX = 1000


def sequence_id_of(message_id: geminga.MessageId) -> int:
    """A number that grows along the positions of a partition.

    Raises ``InstanceFailed`` for a position that does not fit: a result that was not numbered
    right could be taken for one that is stored already.
    """
    ledger_id, entry_id = message_id.position
    batch_index = max(message_id.batch_index, 0)
    if ledger_id >> LEDGER_BITS or entry_id >> ENTRY_BITS or batch_index >> BATCH_BITS:
        raise InstanceFailed(f"the position {message_id} is too high for a sequence id")
    return ledger_id << (ENTRY_BITS + BATCH_BITS) | entry_id << BATCH_BITS | batch_index


@dataclass(slots=True)
class Numbered:
    """The producer of the results of one input partition. ``stored`` is the last sequence id that
    the topic knew when it was opened: results up to it are stored already.

    They are not sent again: a batch of stored and new results would be refused, since the broker
    compares batches as a whole.
    """

    producer: geminga.Producer[Any]
    stored: int
    used_s: float


class Outputs:
    """The producers of one instance."""

    def __init__(self, spec: InstanceSpec, client: geminga.Client) -> None:
        self._spec = spec
        self._client = client
        self.schema: geminga.Schema[Any] | None = None  # of results
        self.encryption: geminga.Encryption | None = None  # of results
        self._results: geminga.Producer[Any] | None = None
        self._producers: dict[tuple[str, str], geminga.Producer[Any]] = {}
        self._numbered: dict[str, Numbered] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}

    async def of_results(self) -> geminga.Producer[Any]:
        """The producer of results, which stays open as long as the instance."""
        async with self._locks.setdefault(("", ""), asyncio.Lock()):
            if self._results is None:
                self._results = await self._open(self._spec.details.sink.topic, {})
            return self._results

    async def of_partition(self, input_topic: str) -> Numbered:
        """The producer of the results of one input partition, for EFFECTIVELY_ONCE."""
        loop = asyncio.get_running_loop()
        async with self._locks.setdefault((input_topic, ""), asyncio.Lock()):
            numbered = self._numbered.get(input_topic)
            if numbered is None:
                producer = await self._open_named(input_topic)
                numbered = Numbered(producer, producer.last_sequence_id, loop.time())
                self._numbered[input_topic] = numbered
            numbered.used_s = loop.time()
            return numbered

    async def confirm(self, input_topic: str) -> None:
        """Wait until the results of an input partition that were sent are stored or failed."""
        numbered = self._numbered.get(input_topic)
        if numbered is not None:
            await numbered.producer.flush()

    async def release(self, input_topic: str) -> None:
        """Close the producer of the results of an input partition."""
        async with self._locks.setdefault((input_topic, ""), asyncio.Lock()):
            numbered = self._numbered.pop(input_topic, None)
            if numbered is not None:
                await numbered.producer.close()

    async def close_idle(self) -> None:
        """Close the producers of input partitions that nothing came from for a while."""
        now_s = asyncio.get_running_loop().time()
        for input_topic, numbered in list(self._numbered.items()):
            async with self._locks[input_topic, ""]:
                is_idle = now_s - numbered.used_s > IDLE_S
                is_current = self._numbered.get(input_topic) is numbered
                if is_current and is_idle and not numbered.producer.pending_messages:
                    del self._numbered[input_topic]
                    await numbered.producer.close()

    async def of(self, topic: str, compression: str) -> geminga.Producer[Any]:
        """The producer of what the user's code publishes to ``topic``."""
        key = topic, compression
        if key in self._producers:
            return self._producers[key]
        # The lock is fair: messages that wait for the same producer keep their order.
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._producers:
                if len(self._producers) >= PRODUCERS_MAX:
                    oldest = next(iter(self._producers))
                    await self._producers.pop(oldest).close()
                options: geminga.ProducerOptions = {
                    "compression": compression,  # type: ignore[typeddict-item]  # a wrong word is refused
                    "properties": properties_of(self._spec.name),
                }
                self._producers[key] = await self._client.producer(topic, **options)
            return self._producers[key]

    async def flush(self) -> None:
        """Wait until all that was sent is stored, or has failed."""
        await asyncio.gather(*[each.flush() for each in self._opened()])

    async def close(self) -> None:
        """Close all, after what they hold is stored."""
        numbered = [each.producer for each in self._numbered.values()]
        await asyncio.gather(*[each.close() for each in [*self._opened(), *numbered]])

    def _opened(self) -> list[geminga.Producer[Any]]:
        return [*self._producers.values(), *([self._results] if self._results else [])]

    async def _open_named(self, input_topic: str) -> geminga.Producer[Any]:
        """Results of an input partition go to one partition of the output, always the same: another
        one would not know that they are stored."""
        number = zlib.crc32(input_topic.encode())
        options: geminga.ProducerOptions = {
            "name": f"{self._spec.name.function}-{input_topic}",
            "router": lambda _, partitions: number % partitions,
        }
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + NAME_TIMEOUT_S
        while True:
            try:
                return await self._open(self._spec.details.sink.topic, options)
            except geminga.ProducerBusy:
                if loop.time() > deadline_s:
                    raise
                await asyncio.sleep(NAME_RETRY_S)

    async def _open(self, topic: str, more: geminga.ProducerOptions) -> geminga.Producer[Any]:
        spec = self._spec.details.sink.producerSpec
        compression = CompressionType.Name(spec.compressionType).lower()
        options: geminga.ProducerOptions = {
            "properties": properties_of(self._spec.name),
            "batching": geminga.Batching(by_key=spec.batchBuilder == "KEY_BASED"),
            # A result must not fail for a broker that is away: inputs wait for it meanwhile.
            "send_timeout_s": None,
            "compression": compression,  # type: ignore[typeddict-item]  # the names are the same
            "encryption": self.encryption,
            **more,
        }
        if spec.maxPendingMessages > 0:
            options["pending_messages_max"] = spec.maxPendingMessages
        try:
            return await self._client.producer(topic, schema=self.schema, **options)
        except geminga.MissingExtra:
            # The environment of the function may have no compressor; any consumer reads this too.
            options["compression"] = "none"
            return await self._client.producer(topic, schema=self.schema, **options)
