"""Where the results of an instance go, and what its code publishes besides.

Producers are opened when the first message goes to their topic. With EFFECTIVELY_ONCE the results
of each input partition have a producer of their own, whose name is made of the function and that
partition, and sequence ids made of the input's positions: a topic that deduplicates stores the
result of an input once, whichever instance sends it, and however often.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import geminga
from geminga_functions.errors import InstanceFailed
from geminga_functions.instance.inputs import properties_of
from geminga_functions.instance.spec import InstanceSpec
from geminga_protocol.functions.functions_pb2 import CompressionType

log = logging.getLogger(__name__)

# +---+-----------+----------+-------------+
# | 0 | ledger id | entry id | batch index |      the sequence id of the result of an input
# | 1 |    28     |    24    |     11      |      bits
# +---+-----------+----------+-------------+
ENTRY_BITS, BATCH_BITS = 24, 11
LEDGER_BITS = 63 - ENTRY_BITS - BATCH_BITS
assert LEDGER_BITS == 28
# Another instance that had the partition before closes its producer within IDLE_S.
NAME_RETRY_S = 0.25
NAME_TIMEOUT_S = 30.0
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


class Outputs:
    """The producers of one instance."""

    def __init__(
        self, spec: InstanceSpec, client: geminga.Client, schema: geminga.Schema[Any] | None
    ) -> None:
        self._spec = spec
        self._client = client
        self._schema = schema
        self._producers: dict[tuple[str, str], geminga.Producer[Any]] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}

    async def of_results(self, input_topic: str | None) -> geminga.Producer[Any]:
        """The producer of results; of those of one input partition, if that is given."""
        if input_topic is None:
            return await self._producer(self._spec.details.sink.topic, "", self._open_results)
        name = f"{self._spec.name.function}-{input_topic}"
        return await self._producer(self._spec.details.sink.topic, name, self._open_named)

    async def of(self, topic: str, compression: str) -> geminga.Producer[Any]:
        """The producer of what the user's code publishes to ``topic``."""

        async def open_(topic: str, _: str) -> geminga.Producer[Any]:
            options: geminga.ProducerOptions = {
                "compression": compression,  # type: ignore[typeddict-item]  # a wrong word is refused
                "properties": properties_of(self._spec.name),
            }
            return await self._client.producer(topic, **options)

        return await self._producer(topic, f" {compression}", open_)

    async def close(self) -> None:
        """Close all, after what they hold is stored."""
        await asyncio.gather(*[each.close() for each in self._producers.values()])

    async def _producer(
        self,
        topic: str,
        name: str,
        open_: Callable[[str, str], Any],
    ) -> geminga.Producer[Any]:
        key = topic, name
        if key in self._producers:
            return self._producers[key]
        # The lock is fair: messages that wait for the same producer keep their order.
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._producers:
                if len(self._producers) >= PRODUCERS_MAX:
                    oldest = next(iter(self._producers))
                    await self._producers.pop(oldest).close()
                self._producers[key] = await open_(topic, name)
            return self._producers[key]

    async def _open_results(self, topic: str, name: str) -> geminga.Producer[Any]:
        spec = self._spec.details.sink.producerSpec
        compression = CompressionType.Name(spec.compressionType).lower()
        options: geminga.ProducerOptions = {
            "name": name or None,
            "properties": properties_of(self._spec.name),
            "batching": geminga.Batching(by_key=spec.batchBuilder == "KEY_BASED"),
            # A result must not fail for a broker that is away: inputs wait for it meanwhile.
            "send_timeout_s": None,
            "compression": compression,  # type: ignore[typeddict-item]  # the names are the same
        }
        if spec.maxPendingMessages > 0:
            options["pending_messages_max"] = spec.maxPendingMessages
        try:
            return await self._client.producer(topic, schema=self._schema, **options)
        except geminga.MissingExtra:
            options["compression"] = "none"
            return await self._client.producer(topic, schema=self._schema, **options)

    async def _open_named(self, topic: str, name: str) -> geminga.Producer[Any]:
        deadline = asyncio.get_running_loop().time() + NAME_TIMEOUT_S
        while True:
            try:
                return await self._open_results(topic, name)
            except geminga.ProducerBusy:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(NAME_RETRY_S)
