"""Geminga's client library for Pulsar clusters, on asyncio.

async with geminga.connect("pulsar://localhost:6650") as client:
    async with client.producer("orders") as producer:
        await producer.send(b"one more")

What is exported here is the library, its errors included (``geminga.errors`` draws their tree);
what its modules contain besides may change. Besides classes and functions these are:

- ``EARLIEST``, ``LATEST``: the ids before the first and behind the last message of any topic.
- ``LOG_START``: the ``LogPosition`` before every message that there may be.
- ``Router``: a function that chooses the partition of a ``RoutedMessage``, given how many there
  are: an index from 0.
- ``SendCallback``: a function that is told the id of a stored message and ``None``, or ``None`` and
  the ``ClientError`` for which it is not stored as far as the client knows. It is called once.
- ``SubscriptionTypeName``, ``InitialPositionName``, ``ConsumerCryptoFailureAction``,
  ``TopicsMode``: the words that ``ConsumerOptions`` takes.

Times are in seconds (names that end in ``_s``) or milliseconds since 1970-01-01 UTC (``_ms``),
sizes in bytes (``_bytes``, ``bytes_max``).
"""

from __future__ import annotations

from geminga._channels.consumer_channel import KeySharedPolicy
from geminga._transport.lookup import TopicsMode
from geminga.authentication import (
    Authentication,
    AuthenticationExchange,
    Basic,
    MutualTls,
    OAuth2,
    Token,
)
from geminga.client import Client, connect
from geminga.consumers.consumer import Consumer
from geminga.consumers.entry_reader import EntryReader, RawEntry
from geminga.consumers.options import (
    ConsumerCryptoFailureAction,
    ConsumerOptions,
    DeadLetterPolicy,
    InitialPositionName,
    ReaderOptions,
    SubscriptionTypeName,
    TableViewOptions,
)
from geminga.consumers.reader import Reader
from geminga.consumers.table_view import TableView
from geminga.crypto.context import EncryptionContext, EncryptionKey
from geminga.crypto.decryption import PrivateKeyReader, PrivateKeys
from geminga.crypto.encryption import Encryption, PublicKey, PublicKeyReader, PublicKeys
from geminga.errors import (
    BacklogQuotaExceeded,
    BrokerBusy,
    BrokerFailed,
    BrokerRefused,
    ClientError,
    Closed,
    ConnectionLost,
    ConsumerBusy,
    ConsumerNotFound,
    CredentialsUnavailable,
    DecryptionFailed,
    EncryptionFailed,
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
    RequestTooLarge,
    SendTimedOut,
    ServiceNotReady,
    SubscriptionNotFound,
    TlsFailed,
    TooManyRedirects,
    TooManyRequests,
    TopicNameRefused,
    TopicNotFound,
    TopicTerminated,
    UnreadableMessage,
)
from geminga.lifecycle import Opening
from geminga.message_ids import EARLIEST, LATEST, LOG_START, LogPosition, MessageId
from geminga.messages import Message
from geminga.producers.entry_producer import EntryProducer
from geminga.producers.options import EntryProducerOptions, MessageOptions, ProducerOptions
from geminga.producers.outgoing.attributes import encode_attributes
from geminga.producers.outgoing.batches import Batching, SendCallback
from geminga.producers.outgoing.routing import RoutedMessage, Router
from geminga.producers.producer import Producer
from geminga.schemas import (
    AutoConsumeSchema,
    AutoProduceSchema,
    AvroSchema,
    AvroType,
    BoolSchema,
    BytesSchema,
    DateSchema,
    DoubleSchema,
    FloatSchema,
    InstantSchema,
    Int8Schema,
    Int16Schema,
    Int32Schema,
    Int64Schema,
    JsonSchema,
    KeyValueEncoding,
    KeyValueSchema,
    LocalDateSchema,
    LocalDateTimeSchema,
    LocalTimeSchema,
    ProtobufNativeSchema,
    ProtobufSchema,
    Schema,
    SchemaInfo,
    StringSchema,
    TimeSchema,
    TimestampSchema,
    schema_of,
)
from geminga.tls import Tls
from geminga_protocol.pulsar.enums import AccessMode, InitialPosition, SchemaType, SubscriptionType
from geminga_protocol.pulsar.errors import InvalidTopicName
from geminga_runtime.errors import GemingaError

__all__ = [
    "EARLIEST",
    "LATEST",
    "LOG_START",
    "AccessMode",
    "Authentication",
    "AuthenticationExchange",
    "AutoConsumeSchema",
    "AutoProduceSchema",
    "AvroSchema",
    "AvroType",
    "BacklogQuotaExceeded",
    "Basic",
    "Batching",
    "BoolSchema",
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
    "ConsumerCryptoFailureAction",
    "ConsumerNotFound",
    "ConsumerOptions",
    "CredentialsUnavailable",
    "DateSchema",
    "DeadLetterPolicy",
    "DecryptionFailed",
    "DoubleSchema",
    "Encryption",
    "EncryptionContext",
    "EncryptionFailed",
    "EncryptionKey",
    "EntryProducer",
    "EntryProducerOptions",
    "EntryReader",
    "FloatSchema",
    "GemingaError",
    "IncompatibleSchema",
    "InitialPosition",
    "InitialPositionName",
    "InstantSchema",
    "Int8Schema",
    "Int16Schema",
    "Int32Schema",
    "Int64Schema",
    "InvalidServiceUrl",
    "InvalidTopicName",
    "JsonSchema",
    "KeySharedPolicy",
    "KeyValueEncoding",
    "KeyValueSchema",
    "LocalDateSchema",
    "LocalDateTimeSchema",
    "LocalTimeSchema",
    "LogPosition",
    "Message",
    "MessageId",
    "MessageOptions",
    "MessageTooLarge",
    "MissingExtra",
    "MutualTls",
    "NotAcknowledgeable",
    "NotAllowed",
    "NotAuthenticated",
    "NotAuthorized",
    "NotConnected",
    "OAuth2",
    "Opening",
    "PrivateKeyReader",
    "PrivateKeys",
    "Producer",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerOptions",
    "ProducerQueueFull",
    "ProtobufNativeSchema",
    "ProtobufSchema",
    "PublicKey",
    "PublicKeyReader",
    "PublicKeys",
    "RawEntry",
    "Reader",
    "ReaderOptions",
    "RequestTimedOut",
    "RequestTooLarge",
    "RoutedMessage",
    "Router",
    "Schema",
    "SchemaInfo",
    "SchemaType",
    "SendCallback",
    "SendTimedOut",
    "ServiceNotReady",
    "StringSchema",
    "SubscriptionNotFound",
    "SubscriptionType",
    "SubscriptionTypeName",
    "TableView",
    "TableViewOptions",
    "TimeSchema",
    "TimestampSchema",
    "Tls",
    "TlsFailed",
    "Token",
    "TooManyRedirects",
    "TooManyRequests",
    "TopicNameRefused",
    "TopicNotFound",
    "TopicTerminated",
    "TopicsMode",
    "UnreadableMessage",
    "connect",
    "encode_attributes",
    "schema_of",
]
