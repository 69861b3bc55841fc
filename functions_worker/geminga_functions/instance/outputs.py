"""The producers of an instance: for its results, and for what its code publishes besides.

A producer is opened by the first message to its topic. With EFFECTIVELY_ONCE the results of each
input partition have a producer of their own. Its name is made of the function and the partition,
and its sequence ids of the positions of inputs: a topic that deduplicates then stores the result of
an input once, whichever instance sends it, and however often.
"""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass, field
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
# The broker compares sequence ids as signed 64-bit numbers (a Java long), so the first bit stays 0.
# 24 bits of entries are far more than the 50,000 after which brokers begin another ledger by
# default, and 11 bits are twice the 1,000 messages that clients put into a batch by default.
ENTRY_BITS, BATCH_BITS = 24, 11
LEDGER_BITS = 63 - ENTRY_BITS - BATCH_BITS
assert LEDGER_BITS == 28
# The producer of an input partition is closed after it has sent nothing for so long: the partition
# may have moved to another instance, which waits until the name of the producer is free.
IDLE_S = 3.0
# How often, and for how long, an instance tries to open a producer whose name is taken.
NAME_RETRY_S = 0.25
NAME_TIMEOUT_S = 30.0
assert NAME_TIMEOUT_S > 4 * IDLE_S
# Producers for what the code of one function publishes; with more, the oldest is closed.
PRODUCERS_MAX = 1000


def sequence_id_of(message_id: geminga.MessageId) -> int:
    """A number that grows with the position in a partition.

    Raises ``InstanceFailed`` for a position that does not fit: with a wrong number the topic could
    take a new result for one that is stored already.
    """
    ledger_id, entry_id = message_id.position
    batch_index = max(message_id.batch_index, 0)
    if ledger_id >> LEDGER_BITS or entry_id >> ENTRY_BITS or batch_index >> BATCH_BITS:
        raise InstanceFailed(f"the position {message_id} is too high for a sequence id")
    return ledger_id << (ENTRY_BITS + BATCH_BITS) | entry_id << BATCH_BITS | batch_index


@dataclass(slots=True)
class NumberedProducer:
    """The producer of the results of one input partition, which numbers them by their inputs."""

    producer: geminga.Producer[Any]
    # The last sequence id that the topic knew when the producer was opened: results up to it are
    # stored, and must not be sent again. The broker compares whole batches, and would refuse one
    # that holds both stored and new results.
    stored: int
    # When it was used last, in the loop's time.
    used_s: float


@dataclass(slots=True, eq=False)
class Outputs:
    """The producers of one instance."""

    spec: InstanceSpec
    client: geminga.Client
    # The schema and the encryption of results: set before the first result is sent.
    schema: geminga.Schema[Any] | None = field(default=None, init=False)
    encryption: geminga.Encryption | None = field(default=None, init=False)
    _results: geminga.Producer[Any] | None = field(default=None, init=False)
    # Of what the user's code publishes, by topic and compression.
    _producers: dict[tuple[str, str], geminga.Producer[Any]] = field(
        default_factory=dict, init=False
    )
    # Of results with EFFECTIVELY_ONCE, by input partition.
    _numbered: dict[str, NumberedProducer] = field(default_factory=dict, init=False)
    # Held while a producer is opened or closed. The keys are those of ``_producers``, (input
    # partition, "") for a numbered producer, and ("", "") for the one of results.
    _locks: dict[tuple[str, str], asyncio.Lock] = field(default_factory=dict, init=False)

    async def of_results(self) -> geminga.Producer[Any]:
        """The producer of results, which stays open until the instance ends."""
        async with self._locks.setdefault(("", ""), asyncio.Lock()):
            if self._results is None:
                self._results = await self._open(self.spec.details.sink.topic, {})
            return self._results

    async def of_partition(self, input_topic: str) -> NumberedProducer:
        """The producer of the results of one input partition, for EFFECTIVELY_ONCE.

        Raises ``ProducerBusy`` if another instance keeps it open for ``NAME_TIMEOUT_S``.
        """
        loop = asyncio.get_running_loop()
        async with self._locks.setdefault((input_topic, ""), asyncio.Lock()):
            numbered = self._numbered.get(input_topic)
            if numbered is None:
                # Results of an input partition go to one partition of the output, always the same:
                # another one would not know that they are stored. A CRC, not ``hash``, whose seed
                # differs in every process: another instance must choose the same partition.
                number = zlib.crc32(input_topic.encode())
                options: geminga.ProducerOptions = {
                    "name": f"{self.spec.name.function}-{input_topic}",
                    "router": lambda _, partitions: number % partitions,
                }
                # The broker accepts one producer of a name. The former owner of the partition
                # closes its own when it is fenced, or at the latest when ``close_idle`` runs after
                # IDLE_S without results; that of a crashed instance goes with its connection.
                deadline_s = loop.time() + NAME_TIMEOUT_S
                while numbered is None:
                    try:
                        producer = await self._open(self.spec.details.sink.topic, options)
                    except geminga.ProducerBusy:
                        if loop.time() > deadline_s:
                            raise
                        await asyncio.sleep(NAME_RETRY_S)
                    else:
                        numbered = NumberedProducer(
                            producer, producer.last_sequence_id, loop.time()
                        )
                self._numbered[input_topic] = numbered
            # Also for one that is open already: ``close_idle`` must not close a producer that is
            # about to send.
            numbered.used_s = loop.time()
            return numbered

    async def confirm(self, input_topic: str) -> None:
        """Wait until all sent results of an input partition are stored, or have failed."""
        numbered = self._numbered.get(input_topic)
        if numbered is not None:
            await numbered.producer.flush()

    async def release(self, input_topic: str) -> None:
        """Close the producer of the results of an input partition."""
        async with self._locks.setdefault((input_topic, ""), asyncio.Lock()):
            # Out of the dict first: while it closes, ``of_partition`` waits for the lock and then
            # opens another.
            numbered = self._numbered.pop(input_topic, None)
            if numbered is not None:
                await numbered.producer.close()

    async def close_idle(self) -> None:
        """Close the producers of input partitions that have sent nothing for ``IDLE_S``."""
        now_s = asyncio.get_running_loop().time()
        # A copy, since the waits below let other tasks open and release producers.
        for input_topic, numbered in list(self._numbered.items()):
            async with self._locks[input_topic, ""]:
                # While this waited for the lock, the producer may have been used, or replaced.
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
        # asyncio's locks are fair: messages that wait for the same producer keep their order.
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._producers:
                if len(self._producers) >= PRODUCERS_MAX:
                    # The one that was opened first, not the one used least recently: a dict keeps
                    # the order of insertion.
                    oldest = next(iter(self._producers))
                    await self._producers.pop(oldest).close()
                options: geminga.ProducerOptions = {
                    "compression": compression,  # type: ignore[typeddict-item]  # a wrong word is refused
                    "properties": properties_of(self.spec.name),
                }
                self._producers[key] = await self.client.producer(topic, **options)
            return self._producers[key]

    async def flush(self) -> None:
        """Wait until all that was sent is stored, or has failed."""
        await asyncio.gather(*[each.flush() for each in self._unnumbered()])

    async def close(self) -> None:
        """Close all producers; each first waits a while for the receipts of what it has sent."""
        numbered = [each.producer for each in self._numbered.values()]
        await asyncio.gather(*[each.close() for each in [*self._unnumbered(), *numbered]])

    def _unnumbered(self) -> list[geminga.Producer[Any]]:
        return [*self._producers.values(), *([self._results] if self._results else [])]

    async def _open(self, topic: str, more: geminga.ProducerOptions) -> geminga.Producer[Any]:
        """Open a producer of results, with ``more`` options than those of the function."""
        spec = self.spec.details.sink.producerSpec
        compression = CompressionType.Name(spec.compressionType).lower()
        options: geminga.ProducerOptions = {
            "properties": properties_of(self.spec.name),
            "batching": geminga.Batching(by_key=spec.batchBuilder == "KEY_BASED"),
            # No time-out: while the broker cannot be reached results wait, and inputs with them.
            "send_timeout_s": None,
            "compression": compression,  # type: ignore[typeddict-item]  # the names are the same
            "encryption": self.encryption,
            **more,
        }
        if spec.maxPendingMessages > 0:
            options["pending_messages_max"] = spec.maxPendingMessages
        try:
            return await self.client.producer(topic, schema=self.schema, **options)
        except geminga.MissingExtra:
            # The environment of the function may lack the compressor. Consumers read uncompressed
            # messages just as well.
            options["compression"] = "none"
            return await self.client.producer(topic, schema=self.schema, **options)
