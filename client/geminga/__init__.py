"""Geminga's client library for Pulsar clusters, on asyncio.

async with Client("pulsar://localhost:6650") as client:
    producer = await client.producer("orders")
    await producer.send(b"one more")
"""

from __future__ import annotations

from geminga._transport.connection import ConnectionOptions
from geminga.client import Client, ClientOptions
from geminga.consumer import Consumer
from geminga.consumer_options import ConsumerOptions
from geminga.message_ids import EARLIEST, LATEST, MessageId
from geminga.messages import Message
from geminga.producer import Producer, ProducerOptions
from geminga_protocol.pulsar.enums import AccessMode, InitialPosition, SubscriptionType

__all__ = [
    "EARLIEST",
    "LATEST",
    "AccessMode",
    "Client",
    "ClientOptions",
    "ConnectionOptions",
    "Consumer",
    "ConsumerOptions",
    "InitialPosition",
    "Message",
    "MessageId",
    "Producer",
    "ProducerOptions",
    "SubscriptionType",
]
