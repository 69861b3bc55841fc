"""Sends entries to a topic of another cluster, in order, until each has its receipt.

To the remote broker it is a producer whose receipts tell the entry's position here, where the
broker knows how (``supports_repl_dedup_by_lid_and_eid``); others answer with our numbers.

When the connection breaks, all that has no receipt is sent again in the same order. Once the
broker refuses an entry, the channel is over: were later entries confirmed while an earlier one is
not stored, the remote broker would take that one for a repeat when it comes again.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga._channels.channel import Channel
from geminga._channels.producer_channel import ProducerChannel, ProducerChannelOptions
from geminga._channels.registry import Channels
from geminga.errors import refusal
from geminga_broker.managed_ledger.positions import Position
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.topic_names import TopicName


@dataclass(slots=True)
class Outstanding:
    """An entry on its way. When it has its receipt, all up to ``done_upto`` is done: what follows
    it there needed no sending. ``sent_s`` is the monotonic time at which it was sent."""

    position: Position
    sent_s: float
    done_upto: Position


class ReplicationChannel(ProducerChannel[Outstanding]):
    """A replicator's producer."""

    __slots__ = ("was_refused",)

    def __init__(
        self, channels: Channels, topic: TopicName, options: ProducerChannelOptions
    ) -> None:
        super().__init__(channels, topic, options)
        self.was_refused = False
        """Whether the broker has refused an entry."""

    @property
    def oldest(self) -> Outstanding | None:
        """The entry that has waited longest for its receipt."""
        return next((each.context for each in self._pending), None)

    def receipt(self, receipt: api.CommandSendReceipt) -> None:
        """An entry is stored, or was before."""
        if self._connection is None or not self._connection.tells_source_positions:
            super().receipt(receipt)
            return
        oldest = next(iter(self._pending), None)
        if oldest is None:
            return
        position = (receipt.sequence_id, receipt.highest_sequence_id)
        if position == oldest.context.position:
            self._settle(oldest.sequence_id, receipt.message_id)
        elif position > oldest.context.position:
            self._send_all_again(f"{position} was confirmed before {oldest.context.position}")
        # Else it was sent twice, over two connections, and is confirmed twice.

    async def close(self) -> None:
        """Leave the remote broker, at once: who reads the log next sends again what has no receipt.

        Waiting for receipts would hold up topics that move, and a second cancellation would end
        the waiting before the broker is left: a producer that stays keeps the next one out.
        """
        await Channel.close(self)

    async def store_schema(self, schema: api.Schema) -> bytes:
        """The version that the remote cluster has for ``schema``, which it stores if it is new.
        Raises ``ClientError``."""
        timeout_s = self._channels.options.connection.operation_timeout_s
        connection = await self._attached_connection(timeout_s)
        asked = api.CommandGetOrCreateSchema(request_id=0, topic=str(self.topic), schema=schema)
        answer = await connection.request(
            api.BaseCommand(type=api.BaseCommand.GET_OR_CREATE_SCHEMA, getOrCreateSchema=asked)
        )
        return answer.getOrCreateSchemaResponse.schema_version

    def send_error(self, error: api.CommandSendError) -> None:
        """An entry is not stored: begin again where the cursor stands."""
        self.was_refused = True
        self.leave()
        self.end(refusal(error.error, error.message))
