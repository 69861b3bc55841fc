"""Geminga's client library for Pulsar clusters, on asyncio.

async with geminga.connect("pulsar://localhost:6650") as client:
    async with client.producer("orders") as producer:
        await producer.send(b"one more")

What is exported here is the library, its errors included (``geminga.errors`` draws their tree);
what its modules contain besides may change.
"""

from __future__ import annotations

from geminga._channels.consumer_channel import KeySharedPolicy
from geminga._transport.lookup import TopicsMode
from geminga.client import Client, connect
from geminga.consumers.consumer import Consumer
from geminga.consumers.options import (
    ConsumerOptions,
    DeadLetterPolicy,
    InitialPositionName,
    ReaderOptions,
    SubscriptionTypeName,
    TableViewOptions,
)
from geminga.consumers.reader import Reader
from geminga.consumers.table_view import TableView
from geminga.errors import (
    BacklogQuotaExceeded,
    BrokerBusy,
    BrokerFailed,
    BrokerRefused,
    ClientError,
    Closed,
    ConnectionLost,
    ConsumerBusy,
    IncompatibleSchema,
    InvalidServiceUrl,
    MessageTooLarge,
    MissingExtra,
    NotAcknowledgeable,
    NotAllowed,
    NotAuthenticated,
    NotAuthorized,
    NotConnected,
    ProducerBusy,
    ProducerFenced,
    ProducerQueueFull,
    RequestTimedOut,
    SendTimedOut,
    ServiceNotReady,
    SubscriptionNotFound,
    TooManyRedirects,
    TooManyRequests,
    TopicNameRefused,
    TopicNotFound,
    TopicTerminated,
    UnreadableMessage,
)
from geminga.messages import EARLIEST, LATEST, Message, MessageId
from geminga.opening import Opening
from geminga.producers.batches import Batching, SendCallback
from geminga.producers.options import MessageOptions, ProducerOptions
from geminga.producers.producer import Producer
from geminga.producers.routing import RoutedMessage, Router
from geminga.schemas.schema import BytesSchema, Schema, SchemaInfo
from geminga_protocol.pulsar.enums import AccessMode, InitialPosition, SubscriptionType
from geminga_protocol.pulsar.errors import InvalidTopicName
from geminga_runtime.errors import GemingaError

__all__ = [
    "EARLIEST",
    "LATEST",
    "AccessMode",
    "BacklogQuotaExceeded",
    "Batching",
    "BrokerBusy",
    "BrokerFailed",
    "BrokerRefused",
    "BytesSchema",
    "Client",
    "ClientError",
    "Closed",
    "ConnectionLost",
    "Consumer",
    "ConsumerBusy",
    "ConsumerOptions",
    "DeadLetterPolicy",
    "GemingaError",
    "IncompatibleSchema",
    "InitialPosition",
    "InitialPositionName",
    "InvalidServiceUrl",
    "InvalidTopicName",
    "KeySharedPolicy",
    "Message",
    "MessageId",
    "MessageOptions",
    "MessageTooLarge",
    "MissingExtra",
    "NotAcknowledgeable",
    "NotAllowed",
    "NotAuthenticated",
    "NotAuthorized",
    "NotConnected",
    "Opening",
    "Producer",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerOptions",
    "ProducerQueueFull",
    "Reader",
    "ReaderOptions",
    "RequestTimedOut",
    "RoutedMessage",
    "Router",
    "Schema",
    "SchemaInfo",
    "SendCallback",
    "SendTimedOut",
    "ServiceNotReady",
    "SubscriptionNotFound",
    "SubscriptionType",
    "SubscriptionTypeName",
    "TableView",
    "TableViewOptions",
    "TooManyRedirects",
    "TooManyRequests",
    "TopicNameRefused",
    "TopicNotFound",
    "TopicTerminated",
    "TopicsMode",
    "UnreadableMessage",
    "connect",
]
