"""Geminga's client library for Pulsar clusters, on asyncio.

```python
async with geminga.connect("pulsar://localhost:6650") as client:
    async with client.producer("orders") as producer:
        await producer.send(b"one more")

    async with client.consumer("orders", "billing") as consumer:
        async for message in consumer:
            print(message.value)
            consumer.ack(message)
```

Read ``connect`` first, then ``Client``: it opens a ``Producer``, ``Consumer``, ``Reader`` or
``TableView``. Programs without an event loop use ``geminga.sync``, which has the same classes;
``geminga.arrow`` reads topics as Arrow tables. What is exported here is the library, its errors
included (``ClientError`` is their root); what its modules contain besides may change.

Besides classes and functions these are exported:

- ``EARLIEST``, ``LATEST``: the ids before the first and behind the last message of any topic.
- ``LOG_START``: the ``LogPosition`` before the first message of any topic.
- ``Router``: a function that chooses the partition of a message. It is called with a
  ``RoutedMessage`` and the number of partitions, and returns an index from 0.
- ``SendCallback``: a function that is called once for a message, with its id and ``None`` when it
  is stored, or with ``None`` and the ``ClientError`` for which it is not, as far as the client
  knows.
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
