"""What can go wrong for a user of the client library.

GemingaError
└── ClientError
    ├── InvalidServiceUrl        the address given is none
    ├── NotConnected             no broker could be reached in time
    │   └── ConnectionLost       the connection broke before the answer came
    ├── TlsFailed                a connection cannot be secured, or is not to be trusted
    ├── CredentialsUnavailable   the client has nothing to show who it is
    ├── RequestTimedOut          the broker did not answer in time
    ├── TooManyRequests          more requests are open than are kept
    ├── RequestTooLarge          a request, with its schema, has more bytes than the broker takes
    ├── TooManyRedirects         each broker named another one as the owner
    ├── Closed                   the producer, consumer or client is closed
    ├── ProducerQueueFull        as many messages wait for their receipts as may
    ├── MessageTooLarge          more bytes than the broker takes
    ├── SendTimedOut             no receipt came in time; the message may yet be stored
    ├── EncryptionFailed         a public key cannot be used to encrypt messages
    ├── MissingExtra             a package is not installed that this feature needs
    ├── UnreadableMessage        a message that cannot be opened: damaged, or an unknown feature
    │   └── DecryptionFailed         none of the consumer's keys opens it
    ├── NotAcknowledgeable       this message id cannot be acknowledged in this way
    └── BrokerRefused            the broker answered with an error
        └── ...                  one class for each error that callers tell apart

A refusal's ``retry`` says whether the same request may succeed later; ``is_final`` whether a
producer or consumer that was attached before gives up for good when it is refused like that.
"""

from __future__ import annotations

from typing import ClassVar

from geminga_protocol.pulsar.api_pb2 import ServerError
from geminga_runtime.errors import GemingaError


class ClientError(GemingaError):
    """Something went wrong between the client library and a broker."""


class InvalidServiceUrl(ClientError):
    """A service URL is not of the form ``scheme://host:port[,host:port...]``."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url!r} is no service URL: {reason}")
        self.url = url


class NotConnected(ClientError):
    """No broker could be reached, or none that would talk to us."""

    retry: ClassVar[bool] = True


class ConnectionLost(NotConnected):
    """The connection broke; whether the request was carried out is not known."""


class TlsFailed(ClientError):
    """A connection cannot be secured: a certificate or a file is wrong; the text says what to do.

    Trying again does not help, so that opening a producer or consumer fails at once. Those that
    are open try again all the same: certificates are renewed.
    """


class CredentialsUnavailable(ClientError):
    """A method of authentication could not tell what to show a broker: a function for tokens
    raised, or an authorization server refused. Those that are open try again."""

    def __init__(self, method: str, reason: str) -> None:
        super().__init__(f"authentication {method!r} has no credentials to show: {reason}")
        self.method = method


class RequestTimedOut(ClientError):
    """The broker did not answer within the operation's time."""

    retry: ClassVar[bool] = True

    def __init__(self, request: str, timeout_s: float) -> None:
        super().__init__(f"no answer to {request} within {timeout_s:g} s")
        self.request = request
        self.timeout_s = timeout_s


class TooManyRequests(ClientError):
    """As many requests are open on this connection as are kept."""

    retry: ClassVar[bool] = True

    def __init__(self, requests_max: int) -> None:
        super().__init__(f"{requests_max} requests are already open on the connection")
        self.requests_max = requests_max


class RequestTooLarge(ClientError):
    """A request has more bytes than the broker takes: of those that users shape, a schema is what
    can be so large. It is not sent, since the broker would only close the connection."""

    def __init__(self, request: str, request_bytes: int, request_bytes_max: int) -> None:
        super().__init__(
            f"a request {request} of {request_bytes} bytes, where {request_bytes_max} may be: its "
            "schema or its properties have to be smaller"
        )
        self.request = request
        self.request_bytes = request_bytes
        self.request_bytes_max = request_bytes_max


class TooManyRedirects(ClientError):
    """Looking for a topic's owner, each broker named another one."""

    retry: ClassVar[bool] = True

    def __init__(self, topic: str, redirects_max: int) -> None:
        super().__init__(f"{redirects_max} brokers in a row knew the owner of {topic} elsewhere")
        self.topic = topic


class Closed(ClientError):
    """What is closed takes and gives nothing more."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed")
        self.what = what


class ProducerQueueFull(ClientError):
    """As many messages wait for their receipts as may: of the producer, or in bytes of the client.

    ``await producer.ready()`` between calls of ``send_nowait`` waits until there are fewer.
    """

    retry: ClassVar[bool] = True

    def __init__(self, pending_messages: int, pending_bytes: int) -> None:
        super().__init__(
            f"{pending_messages} messages of the producer, {pending_bytes} bytes of the client "
            "wait for receipts: await ready() before sending more"
        )
        self.pending_messages = pending_messages
        self.pending_bytes = pending_bytes


class MessageTooLarge(ClientError):
    """A message has more bytes than the broker takes."""

    def __init__(self, message_bytes: int, message_bytes_max: int) -> None:
        super().__init__(
            f"a message of {message_bytes} bytes, where {message_bytes_max} may be; "
            "chunking=True sends larger ones in chunks"
        )
        self.message_bytes = message_bytes
        self.message_bytes_max = message_bytes_max


class SendTimedOut(ClientError):
    """No receipt came in time. The message may be stored all the same, now or later.

    Without a ``sequence_id`` it is certain that it is not: it was not sent for want of room.
    """

    retry: ClassVar[bool] = True

    def __init__(self, sequence_id: int | None, timeout_s: float) -> None:
        what = "room for a message" if sequence_id is None else f"receipt for message {sequence_id}"
        super().__init__(f"no {what} within {timeout_s:g} s")
        self.sequence_id = sequence_id
        self.timeout_s = timeout_s


class EncryptionFailed(ClientError):
    """Messages cannot be encrypted for the owner of a key; nothing is sent unencrypted instead."""

    def __init__(self, key_name: str, reason: str) -> None:
        super().__init__(f"the public key {key_name!r} cannot be used: {reason}")
        self.key_name = key_name


class MissingExtra(ClientError):
    """A feature needs a package that is not installed with the bare client."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs more packages: pip install 'geminga[{extra}]'")
        self.extra = extra


class UnreadableMessage(ClientError):
    """A stored message cannot be opened: it is damaged, or uses a feature this client lacks."""


class DecryptionFailed(UnreadableMessage):
    """An encrypted message cannot be decrypted: the consumer has none of its keys."""


class NotAcknowledgeable(ClientError):
    """This message id cannot be acknowledged in this way; the text says why."""


class BrokerRefused(ClientError):
    """The broker answered with an error: ``server_error`` is its name in the protocol."""

    is_final: ClassVar[bool] = False

    def __init__(self, server_error: str, message: str) -> None:
        super().__init__(f"{server_error}: {message}")
        self.server_error = server_error
        self.message = message


class BrokerFailed(BrokerRefused):
    """The broker, or the storage behind it, failed in a way that may pass."""

    retry: ClassVar[bool] = True


class ServiceNotReady(BrokerRefused):
    """The topic is moving between brokers, or the broker is just starting."""

    retry: ClassVar[bool] = True


class BrokerBusy(BrokerRefused):
    """The broker has too many requests in hand."""

    retry: ClassVar[bool] = True


class NotAuthenticated(BrokerRefused):
    """The broker does not accept the client's credentials."""


class NotAuthorized(BrokerRefused):
    """The client's role may not do this."""


class TopicNotFound(BrokerRefused):
    """There is no such topic, and it is not made by asking for it."""

    is_final: ClassVar[bool] = True


class TopicTerminated(BrokerRefused):
    """The topic takes no more messages, for ever."""

    is_final: ClassVar[bool] = True


class TopicNameRefused(BrokerRefused):
    """The broker does not take this for a name of a topic."""


class SubscriptionNotFound(BrokerRefused):
    """There is no such subscription."""


class ConsumerBusy(BrokerRefused):
    """Another consumer has the subscription, exclusively or with another subscription type."""


class ConsumerNotFound(BrokerRefused):
    """The broker has just let go of the consumer, which comes back by itself."""

    retry: ClassVar[bool] = True


class ProducerBusy(BrokerRefused):
    """A producer of this name is there already, or the topic is taken exclusively."""


class ProducerFenced(BrokerRefused):
    """Another producer took the topic over exclusively; this one must stop."""

    is_final: ClassVar[bool] = True


class BacklogQuotaExceeded(BrokerRefused):
    """Consumers are too far behind for the topic to take more messages."""

    retry: ClassVar[bool] = True


class IncompatibleSchema(BrokerRefused):
    """The schema does not go with those the topic has."""


class NotAllowed(BrokerRefused):
    """The broker does not do this, for anyone."""


_REFUSALS: dict[str, type[BrokerRefused]] = {
    "UnknownError": BrokerFailed,
    "MetadataError": BrokerFailed,
    "PersistenceError": BrokerFailed,
    "ServiceNotReady": ServiceNotReady,
    "TooManyRequests": BrokerBusy,
    "AuthenticationError": NotAuthenticated,
    "AuthorizationError": NotAuthorized,
    "TopicNotFound": TopicNotFound,
    "TopicTerminatedError": TopicTerminated,
    "InvalidTopicName": TopicNameRefused,
    "SubscriptionNotFound": SubscriptionNotFound,
    "ConsumerBusy": ConsumerBusy,
    "ConsumerAssignError": ConsumerBusy,
    "ConsumerNotFound": ConsumerNotFound,
    "ProducerBusy": ProducerBusy,
    "ProducerFenced": ProducerFenced,
    "ProducerBlockedQuotaExceededError": BacklogQuotaExceeded,
    "ProducerBlockedQuotaExceededException": BacklogQuotaExceeded,
    "IncompatibleSchema": IncompatibleSchema,
    "NotAllowedError": NotAllowed,
}


def refusal(error: ServerError.ValueType, message: str) -> BrokerRefused:
    """The exception for an error that a broker answered with."""
    name = ServerError.Name(error)
    return _REFUSALS.get(name, BrokerRefused)(name, message)
