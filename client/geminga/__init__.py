"""Geminga's client library for Pulsar clusters, on asyncio.

async with Client("pulsar://localhost:6650") as client:
    producer = await client.producer("orders")
    await producer.send(b"one more")

What is imported from here is the library; what its modules contain besides may change.
"""

from __future__ import annotations

from geminga._channels.channel import ClientOptions
from geminga._transport.connection import ConnectionOptions
from geminga.client import Client
from geminga.consumer import Consumer, ConsumerOptions
from geminga.messages import EARLIEST, LATEST, Message, MessageId
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
