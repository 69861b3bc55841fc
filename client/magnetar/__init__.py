"""Magnetar's client library for Pulsar clusters, on asyncio.

async with Client("pulsar://localhost:6650") as client:
    producer = await client.producer("orders")
    await producer.send(b"one more")
"""

from __future__ import annotations

from magnetar.client import Client, ClientOptions
from magnetar.connection import ConnectionOptions
from magnetar.consumer import Consumer
from magnetar.consumer_options import ConsumerOptions, InitialPosition, SubscriptionType
from magnetar.message_ids import EARLIEST, LATEST, MessageId
from magnetar.messages import Message
from magnetar.producer import AccessMode, Producer, ProducerOptions

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
