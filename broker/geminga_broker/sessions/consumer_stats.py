"""CONSUMER_STATS: what a client is told of one of its own consumers."""

from __future__ import annotations

from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.topics.consuming.subscription_registry import TopicSubscription
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.commands import encode_command
from geminga_protocol.pulsar.messages.timestamps import iso_time


def encode_consumer_stats(
    request_id: int, consumer: Consumer, subscription: TopicSubscription
) -> bytes:
    """CONSUMER_STATS_RESPONSE; rates are per second."""
    rate_out, throughput_out, rate_redeliver, ack_rate = consumer.meter.rates
    kind = subscription.type
    stats = api.CommandConsumerStatsResponse(
        request_id=request_id,
        msgRateOut=rate_out,
        msgThroughputOut=throughput_out,
        msgRateRedeliver=rate_redeliver,
        consumerName=consumer.name,
        availablePermits=max(0, consumer.permits),
        unackedMessages=consumer.unacknowledged,
        blockedConsumerOnUnackedMsgs=consumer.is_blocked_on_unacknowledged,
        address=consumer.session.address,
        connectedSince=iso_time(consumer.connected_at_ms),
        type=kind.label if kind is not None else None,
        msgRateExpired=subscription.expiry_rate,
        msgBacklog=subscription.backlog_entries,
        messageAckRate=ack_rate,
    )
    return encode_command(
        api.BaseCommand(type=api.BaseCommand.CONSUMER_STATS_RESPONSE, consumerStatsResponse=stats)
    )
