"""The errors that users of the client library see.

GemingaError
└── ClientError
    ├── InvalidServiceUrl        the URL given to ``connect`` is no service URL
    ├── NotConnected             no broker could be reached in time
    │   └── ConnectionLost       the connection broke before the answer came
    ├── TlsFailed                a connection cannot be secured, or is not to be trusted
    ├── CredentialsUnavailable   the method of authentication has no credentials
    ├── RequestTimedOut          the broker did not answer in time
    ├── TooManyRequests          as many requests are open on the connection as may be
    ├── RequestTooLarge          a request, with its schema, has more bytes than the broker takes
    ├── TooManyRedirects         each broker named another one as the owner
    ├── Closed                   the producer, consumer or client is closed
    ├── ProducerQueueFull        as many messages wait for their receipts as may
    ├── MessageTooLarge          a message has more bytes than the broker takes
    ├── SendTimedOut             no receipt came in time; the message may yet be stored
    ├── EncryptionFailed         a public key cannot be used to encrypt messages
    ├── MissingExtra             a package is not installed that this feature needs
    ├── UnreadableMessage        a message is damaged, or uses a feature this client lacks
    │   └── DecryptionFailed         none of the consumer's keys decrypts it
    ├── NotAcknowledgeable       this message id cannot be acknowledged in this way
    └── BrokerRefused            the broker answered with an error
        └── ...                  one class for each error that callers tell apart

``retry`` of an error's class says whether the same request may succeed later. ``is_final`` of a
refusal says whether a producer or consumer that was attached before ends with it; it attaches again
after any other.
"""

from __future__ import annotations

from typing import ClassVar

from geminga_protocol.pulsar.api_pb2 import ServerError
from geminga_runtime.errors import GemingaError

# ---- what went wrong on this side, or on the way


# ``retry`` is asked where a caller waits: an opening, a lookup, a schema. ``is_final`` is asked of
# what was open before, which outlasts more: it goes on after errors that an operator may mend (a
# revoked permission, a certificate), and ends after those that no attempt can change.
class ClientError(GemingaError):
    """Something went wrong between the client library and a broker."""


class InvalidServiceUrl(ClientError):
    """A service URL is not of the form ``scheme://host:port[,host:port...]``; ``url`` is it."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url!r} is no service URL: {reason}")
        self.url = url


class NotConnected(ClientError):
    """No broker could be reached, or none that accepted the connection."""

    # A broker that was killed is back within seconds, and its topics move meanwhile.
    retry: ClassVar[bool] = True


class ConnectionLost(NotConnected):
    """The connection broke; whether the request was carried out is not known."""


class TlsFailed(ClientError):
    """A connection cannot be secured: a certificate or a file is wrong. The text says what to do.

    Opening a producer or consumer fails at once, since trying again does not help. Those that are
    open try again all the same: a certificate may be renewed.
    """


class CredentialsUnavailable(ClientError):
    """The method of authentication has no credentials: a function for tokens raised, or an
    authorization server refused.

    Opening a producer or consumer fails at once; those that are open try again. ``method`` is the
    name of the method.
    """

    def __init__(self, method: str, reason: str) -> None:
        super().__init__(f"authentication {method!r} has no credentials to show: {reason}")
        self.method = method


class RequestTimedOut(ClientError):
    """The broker did not answer ``request`` within ``timeout_s`` seconds."""

    retry: ClassVar[bool] = True

    def __init__(self, request: str, timeout_s: float) -> None:
        super().__init__(f"no answer to {request} within {timeout_s:g} s")
        self.request = request
        self.timeout_s = timeout_s


class TooManyRequests(ClientError):
    """As many requests are open on the connection as may be: ``requests_max``."""

    retry: ClassVar[bool] = True

    def __init__(self, requests_max: int) -> None:
        super().__init__(f"{requests_max} requests are already open on the connection")
        self.requests_max = requests_max


class RequestTooLarge(ClientError):
    """A request has more bytes than the broker takes, mostly for its schema or properties.

    It is not sent, since the broker would only close the connection.
    """

    def __init__(self, request: str, request_bytes: int, request_bytes_max: int) -> None:
        super().__init__(
            f"a request {request} of {request_bytes} bytes, where {request_bytes_max} may be: its "
            "schema or its properties have to be smaller"
        )
        self.request = request
        self.request_bytes = request_bytes
        self.request_bytes_max = request_bytes_max


class TooManyRedirects(ClientError):
    """In a lookup of a topic's owner each broker named another one, too many times in a row."""

    # Brokers learn one after the other that a topic has moved.
    retry: ClassVar[bool] = True

    def __init__(self, topic: str, redirects_max: int) -> None:
        super().__init__(f"{redirects_max} brokers in a row knew the owner of {topic} elsewhere")
        self.topic = topic


# Raised to the callers of what was closed; what ended by itself raises the error that ended it.
class Closed(ClientError):
    """The client, producer or consumer is closed; ``what`` names it."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed")
        self.what = what


class ProducerQueueFull(ClientError):
    """As many messages wait for their receipts as may: ``pending_messages_max`` of the producer, or
    ``memory_limit_bytes`` of the client.

    ``await producer.ready()`` between calls of ``send_nowait`` avoids it.
    """

    # Each receipt makes room.
    retry: ClassVar[bool] = True

    def __init__(self, pending_messages: int, pending_bytes: int) -> None:
        super().__init__(
            f"{pending_messages} messages of the producer, {pending_bytes} bytes of the client "
            "wait for receipts: await ready() before sending more"
        )
        self.pending_messages = pending_messages
        self.pending_bytes = pending_bytes


class MessageTooLarge(ClientError):
    """A message has more bytes than the broker takes, and chunking is off or of no help."""

    def __init__(self, message_bytes: int, message_bytes_max: int) -> None:
        super().__init__(
            f"a message of {message_bytes} bytes, where {message_bytes_max} may be; "
            "chunking=True sends larger ones in chunks"
        )
        self.message_bytes = message_bytes
        self.message_bytes_max = message_bytes_max


class SendTimedOut(ClientError):
    """No receipt came within ``timeout_s``. The message may be stored all the same, now or later.

    Where ``sequence_id`` is ``None`` it is certain that it is not stored: it waited all the time
    for other messages to be settled, and was not sent.
    """

    # A message that is sent again may be stored twice, unless the topic deduplicates.
    retry: ClassVar[bool] = True

    def __init__(self, sequence_id: int | None, timeout_s: float) -> None:
        what = "room for a message" if sequence_id is None else f"receipt for message {sequence_id}"
        super().__init__(f"no {what} within {timeout_s:g} s")
        self.sequence_id = sequence_id
        self.timeout_s = timeout_s


class EncryptionFailed(ClientError):
    """Messages cannot be encrypted for the owner of the key ``key_name``; none is sent unencrypted
    instead."""

    def __init__(self, key_name: str, reason: str) -> None:
        super().__init__(f"the public key {key_name!r} cannot be used: {reason}")
        self.key_name = key_name


class MissingExtra(ClientError):
    """A feature needs packages that are not installed: ``pip install 'geminga[<extra>]'``."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs more packages: pip install 'geminga[{extra}]'")
        self.extra = extra


class UnreadableMessage(ClientError):
    """A stored message cannot be opened: it is damaged, or uses a feature this client lacks."""


class DecryptionFailed(UnreadableMessage):
    """An encrypted message cannot be decrypted: the consumer has none of its keys."""


class NotAcknowledgeable(ClientError):
    """This message id cannot be acknowledged in this way; the text says why."""


# ---- what a broker answered


class BrokerRefused(ClientError):
    """The broker answered with an error.

    ``server_error`` is its name in the protocol (``ServerError``, PulsarApi.proto), ``message``
    the broker's text. Errors without a class of their own are raised as this one.
    """

    # Does a producer or consumer that was attached before end when it is refused like this?
    is_final: ClassVar[bool] = False

    def __init__(self, server_error: str, message: str) -> None:
        super().__init__(f"{server_error}: {message}")
        self.server_error = server_error
        self.message = message


class BrokerFailed(BrokerRefused):
    """The broker, or the storage behind it, failed in a way that may pass."""

    retry: ClassVar[bool] = True


class ServiceNotReady(BrokerRefused):
    """The topic is moving between brokers, or the broker is starting."""

    retry: ClassVar[bool] = True


class BrokerBusy(BrokerRefused):
    """The broker has too many requests open."""

    retry: ClassVar[bool] = True


class NotAuthenticated(BrokerRefused):
    """The broker does not accept the client's credentials."""


class NotAuthorized(BrokerRefused):
    """The client's role may not do this."""

    # Not final: what is open outlasts a permission that is revoked and given back.


# Final: attaching makes a topic where its namespace allows that. So this answer means that the
# topic was deleted, and that clients may not make it anew.
class TopicNotFound(BrokerRefused):
    """The topic does not exist, and this request does not create it."""

    is_final: ClassVar[bool] = True


class TopicTerminated(BrokerRefused):
    """The topic is terminated: it takes no more messages."""

    is_final: ClassVar[bool] = True


class TopicNameRefused(BrokerRefused):
    """The broker does not accept the name of the topic."""


class SubscriptionNotFound(BrokerRefused):
    """The subscription does not exist."""


# Not final, and neither is ``ProducerBusy``: after a connection broke, the broker may still have
# the consumer of the old one, until it notices that the connection is gone.
class ConsumerBusy(BrokerRefused):
    """Another consumer has the subscription, exclusively or with another subscription type."""


class ConsumerNotFound(BrokerRefused):
    """The broker has just closed the consumer, which attaches again by itself."""

    retry: ClassVar[bool] = True


class ProducerBusy(BrokerRefused):
    """Another producer has this name, or has exclusive access to the topic."""


class ProducerFenced(BrokerRefused):
    """Another producer took over exclusive access to the topic; this one must stop."""

    # Two producers that both tried again would take the topic from each other without end.
    is_final: ClassVar[bool] = True


class BacklogQuotaExceeded(BrokerRefused):
    """Consumers are too far behind for the topic to take more messages."""

    # They may catch up, and brokers check quotas from time to time.
    retry: ClassVar[bool] = True


class IncompatibleSchema(BrokerRefused):
    """The schema is not compatible with those of the topic."""


class NotAllowed(BrokerRefused):
    """The broker does not allow this to any client."""


# By the names of ``ServerError``: names that a newer protocol adds become ``BrokerRefused``.
_REFUSALS: dict[str, type[BrokerRefused]] = {
    # Storage or metadata failed: another attempt, or another broker, may succeed.
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
    # Brokers answer so where ranges of a sticky consumer overlap with those of another one.
    "ConsumerAssignError": ConsumerBusy,
    "ConsumerNotFound": ConsumerNotFound,
    "ProducerBusy": ProducerBusy,
    "ProducerFenced": ProducerFenced,
    "ProducerBlockedQuotaExceededError": BacklogQuotaExceeded,
    # The policy of the quota decides which of the two is sent: a producer is held up, or fails.
    "ProducerBlockedQuotaExceededException": BacklogQuotaExceeded,
    "IncompatibleSchema": IncompatibleSchema,
    "NotAllowedError": NotAllowed,
}


def refusal(error: ServerError.ValueType, message: str) -> BrokerRefused:
    """The exception for an error that a broker answered with."""
    name = ServerError.Name(error)
    return _REFUSALS.get(name, BrokerRefused)(name, message)
