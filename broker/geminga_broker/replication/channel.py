"""Sends entries to a topic of another cluster, in order, until each has its receipt.

To the remote broker it is a producer. Brokers that support it
(``supports_repl_dedup_by_lid_and_eid``) put the entry's position in this cluster into the receipt;
others put our sequence ids.

When the connection breaks, all that has no receipt is sent again in the same order. Once the
broker refuses an entry, the channel ends: were later entries confirmed while an earlier one is not
stored, the remote broker would take the earlier one for a repeat when it comes again.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga._channels.channel import Channel
from geminga._channels.producer_channel import ProducerChannel, ProducerChannelOptions
from geminga._channels.registry import Channels
from geminga.errors import refusal
from geminga_broker.managed_ledger.positions import Position
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.topics.topic_names import TopicName


@dataclass(slots=True)
class Outstanding:
    """An entry without a receipt yet."""

    position: Position
    # When it was sent (monotonic).
    sent_s: float
    # The position that is done with its receipt: its own or, where entries behind it need no
    # sending, that of the last of these.
    done_upto: Position


class ReplicationChannel(ProducerChannel[Outstanding]):
    """The producer of a replicator."""

    __slots__ = ("was_refused",)

    def __init__(
        self, channels: Channels, topic: TopicName, options: ProducerChannelOptions
    ) -> None:
        super().__init__(channels, topic, options)
        self.was_refused = False
        """Whether the broker has refused an entry."""

    @property
    def oldest(self) -> Outstanding | None:
        """The entry that has been without a receipt for the longest."""
        return next((each.context for each in self.pending.sends), None)

    def receipt(self, receipt: api.CommandSendReceipt) -> None:
        """Handle a receipt: an entry is stored, or was stored before."""
        if self._connection is None or not self._connection.tells_source_positions:
            super().receipt(receipt)
            return
        #     pending:  [ 7:3 │ 7:4 │ 7:5 ]     receipt 7:3  settles it
        #                                       receipt 7:4  means that 7:3 was lost: send all again
        #                                       receipt 7:2  is a second one, and is passed over
        #
        # Receipts come in the order of sending, so only the oldest entry can be meant.
        oldest = next(iter(self.pending.sends), None)
        if oldest is None:
            return
        position = (receipt.sequence_id, receipt.highest_sequence_id)
        if position == oldest.context.position:
            self._settle(oldest.sequence_id, receipt.message_id)
        elif position > oldest.context.position:
            # The oldest was lost on the way: the cursor must not pass it.
            self._send_all_again(f"{position} was confirmed before {oldest.context.position}")
        # Otherwise the entry was sent twice, over two connections, and this is its second receipt.

    async def close(self) -> None:
        """Close the producer at once: the next owner of the topic sends again what has no receipt.

        Waiting for receipts would hold up topics that move, and a second cancellation would end
        the waiting before the producer is closed: one that stays keeps the next one out.
        """
        # Past ``ProducerChannel.close``, which would wait for receipts.
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
        """Handle a refusal: end the channel, so that the replicator begins again at its cursor."""
        self.was_refused = True
        # First: entries behind the refused one must not be confirmed any more. ``end`` fails what
        # is pending, and so calls back the replicator.
        self.leave()
        self.end(refusal(error.error, error.message))
