"""The options of consumers, readers and table views, with their defaults and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, TypedDict, get_args

from geminga._channels.consumer_channel import ConsumerChannelOptions, KeySharedPolicy
from geminga._transport.lookup import TopicsMode
from geminga.crypto.decryption import PrivateKeyReader
from geminga.producers.options import ProducerOptions
from geminga_protocol.pulsar.enums import InitialPosition, SubscriptionType

SubscriptionTypeName = Literal["exclusive", "shared", "failover", "key_shared"]
InitialPositionName = Literal["latest", "earliest"]
ConsumerCryptoFailureAction = Literal["fail", "discard", "consume"]

# Options whose values may be given by their names, in small or capital letters.
NAMED_VALUES: Mapping[str, Mapping[str, IntEnum]] = {
    "type": SubscriptionType.__members__,
    "initial_position": InitialPosition.__members__,
}


@dataclass(frozen=True, slots=True)
class DeadLetterPolicy:
    """What becomes of messages that are delivered again and again, and never acknowledged
    (``dead_letters`` of ``ConsumerOptions``): `DeadLetterPolicy(3)` delivers a message four times.

    - ``max_redeliver_count``: how often a message is delivered again. If it is refused, or not
      acknowledged in time, once more, the consumer publishes it to the dead-letter topic and
      acknowledges it.
    - ``dead_letter_topic``: by default ``<topic>-<subscription>-DLQ``, one for each partition of a
      partitioned topic.
    - ``initial_subscription``: a subscription that is created on the dead-letter topic first, so
      that dead letters are kept for it.
    - ``retry_letters``: whether ``Consumer.reconsume_later`` may be used. The consumer then also
      receives the retry-letter topic.
    - ``retry_letter_topic``: by default ``<topic>-<subscription>-RETRY``. With retry letters all
      topics of the consumer share this topic and the dead-letter topic; the names are made of the
      first topic in the order of the alphabet, and of a partitioned topic without its partitions.
    - ``dead_letter_producer``, ``retry_letter_producer``: options of the producers of letters; by
      default each letter leaves alone, a large one in chunks.

    Letters have the schema of their messages. A consumer of a pattern leaves out the dead-letter
    topics of its own subscription, or it would consume each dead letter again; upstream's clients
    consume them. Raises ``ValueError`` for a count below 1.
    """

    max_redeliver_count: int
    dead_letter_topic: str | None = None
    retry_letters: bool = False
    retry_letter_topic: str | None = None
    initial_subscription: str | None = None
    dead_letter_producer: ProducerOptions | None = None
    retry_letter_producer: ProducerOptions | None = None

    def __post_init__(self) -> None:
        if self.max_redeliver_count < 1:
            raise ValueError("max_redeliver_count must be at least 1")


# An option has its type and prose here, and its default in ``ConsumerSettings`` or the class under
# that. Those that readers and table views have stand in their classes, too. ``ConsumerSettings.of``
# keeps no list: names pass through it as they are.
class ConsumerOptions(TypedDict, total=False):
    """The keyword arguments of ``Client.consumer``.

    - ``type``: how the consumers of the subscription share its messages. ``"exclusive"``, the
      default: there is one consumer. ``"failover"``: one receives at a time, in each topic.
      ``"shared"``: each message goes to one of them. ``"key_shared"``: all messages of a key go to
      the same one.
    - ``name``: the consumer's name, random by default.
    - ``initial_position``: where a new subscription begins: ``"latest"``, the default, or
      ``"earliest"``.
    - ``durable``: ``False`` for a subscription that ends with the connection, and keeps no backlog
      without one. It begins at ``initial_position``, and on a new connection behind the message
      that was received last: messages that were received and not acknowledged do not come again.
      Upstream calls it ``SubscriptionMode.NonDurable``.
    - ``properties``, ``subscription_properties``: what brokers show of the consumer and, if it is
      new, of the subscription.
    - ``priority_level``: of the consumers of a Shared subscription those with a lower one are
      served first; 0 by default.
    - ``read_compacted``: whether to receive only the newest message of every key, of a compacted
      topic.
    - ``replicate_subscription_state``: whether acknowledgements are replicated to other clusters.
    - ``key_shared``: which consumer gets which keys of a Key_Shared subscription.
    - ``receiver_queue_size``: how many messages of all topics together are fetched ahead of
      ``receive``; 1000 by default, and at least one of each topic.
    - ``ack_group_s``, ``ack_group_max``: acknowledgements are sent to the broker together, after
      0.1 seconds or when there are 1000.
    - ``batch_index_acks``: whether messages of a batch are acknowledged one by one, where the
      broker can do that; by default the batch is, when all its messages are acknowledged.
    - ``ack_timeout_s``: a message that is not acknowledged so many seconds after it was received is
      delivered again; never by default.
    - ``nack_delay_s``, ``nack_multiplier``, ``nack_delay_max_s``: a refused message is delivered
      again after 60 seconds. With a multiplier the delay grows by this factor with each refusal,
      up to 600 seconds.
    - ``dead_letters``: what becomes of messages that are never acknowledged.
    - ``topics_mode``: which topics a pattern is about: ``"persistent"``, the default,
      ``"non-persistent"`` or ``"all"``.
    - ``topics_refresh_s``: how often the client asks for new partitions, and for new topics of a
      pattern; 60 seconds by default.
    - ``chunked_messages_max``, ``chunk_timeout_s``: the chunks of at most 10 messages are held
      until the others come, for at most 60 seconds.
    - ``decryption``: the private keys to read encrypted messages with.
    - ``crypto_failure_action``: what becomes of messages that cannot be decrypted. ``"fail"``, the
      default: they are delivered again after ``nack_delay_s``, perhaps to a consumer with the key.
      ``"discard"``: they are acknowledged and never received. ``"consume"``: they are received as
      they are stored, still encrypted and compressed, a batch as one message and each chunk as one;
      ``Message.encryption_context`` says how they were encrypted.
    - ``operation_timeout_s``: for the consumer's own requests, such as ``seek``; 30 seconds by
      default.
    """

    type: SubscriptionTypeName | SubscriptionType
    name: str | None
    initial_position: InitialPositionName | InitialPosition
    durable: bool
    properties: Mapping[str, str] | None
    subscription_properties: Mapping[str, str] | None
    priority_level: int
    read_compacted: bool
    replicate_subscription_state: bool
    key_shared: KeySharedPolicy | None
    receiver_queue_size: int
    ack_group_s: float
    ack_group_max: int
    batch_index_acks: bool
    ack_timeout_s: float | None
    nack_delay_s: float
    nack_multiplier: float
    nack_delay_max_s: float
    dead_letters: DeadLetterPolicy | None
    topics_mode: TopicsMode
    topics_refresh_s: float
    chunked_messages_max: int
    chunk_timeout_s: float
    decryption: PrivateKeyReader | None
    crypto_failure_action: ConsumerCryptoFailureAction
    operation_timeout_s: float


class TableViewOptions(TypedDict, total=False):
    """The keyword arguments of ``Client.table_view``. ``ConsumerOptions`` explains all of them.

    They are ``name``, ``properties``, ``receiver_queue_size``, ``topics_refresh_s``,
    ``chunked_messages_max``, ``chunk_timeout_s``, ``decryption`` and ``operation_timeout_s``.
    """

    name: str | None
    properties: Mapping[str, str] | None
    receiver_queue_size: int
    topics_refresh_s: float
    chunked_messages_max: int
    chunk_timeout_s: float
    decryption: PrivateKeyReader | None
    operation_timeout_s: float


class ReaderOptions(TableViewOptions, total=False):
    """The keyword arguments of ``Client.reader``. ``ConsumerOptions`` explains all but the last.

    They are ``name``, ``properties``, ``receiver_queue_size``, ``topics_refresh_s``,
    ``chunked_messages_max``, ``chunk_timeout_s``, ``decryption`` and ``operation_timeout_s``, as of
    a table view, ``read_compacted`` and ``crypto_failure_action``; and ``create_topic``: whether a
    topic that does not exist is created by being read, as its namespace allows. It is by default.
    """

    create_topic: bool
    read_compacted: bool
    crypto_failure_action: ConsumerCryptoFailureAction


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ConsumerChannelOptions):
    """``ConsumerOptions`` with the defaults of those that were not given.

    Raises ``ValueError`` for values that are out of range.
    """

    durable: bool = True
    batch_index_acks: bool = False
    # ``None``: never, as upstream's clients.
    ack_timeout_s: float | None = None
    # As upstream's clients: time for what made the message fail to pass.
    nack_delay_s: float = 60.0
    # 1.0: the same delay each time.
    nack_multiplier: float = 1.0
    nack_delay_max_s: float = 600.0
    dead_letters: DeadLetterPolicy | None = None
    topics_mode: TopicsMode = "persistent"
    # As upstream's clients: a new partition or topic is found within a minute.
    topics_refresh_s: float = 60.0
    # As upstream's clients. Each may hold as many bytes as its producer sent in chunks.
    chunked_messages_max: int = 10
    chunk_timeout_s: float = 60.0
    decryption: PrivateKeyReader | None = None
    crypto_failure_action: ConsumerCryptoFailureAction = "fail"

    def __post_init__(self) -> None:
        # Callers without types may write any word.
        if self.crypto_failure_action not in get_args(ConsumerCryptoFailureAction):
            raise ValueError(f"{self.crypto_failure_action!r} is no crypto_failure_action")
        at_least_one = {
            "receiver_queue_size": self.receiver_queue_size,
            "ack_group_max": self.ack_group_max,
            "chunked_messages_max": self.chunked_messages_max,
            "nack_multiplier": self.nack_multiplier,
        }
        # A multiplier below 1 would make the delays shorter with each refusal.
        for name, number in at_least_one.items():
            if number < 1:
                raise ValueError(f"{name} must be at least 1, not {number}")
        if self.ack_timeout_s is not None and self.ack_timeout_s <= 0:
            raise ValueError("ack_timeout_s must be None or more than 0")
        # Other types hand out entries in order, and brokers count no redeliveries of single ones.
        if self.dead_letters is not None and not self.type.tracks_entries:
            raise ValueError("dead letters need a shared or key_shared subscription")

    @classmethod
    def of(cls, options: ConsumerOptions | ReaderOptions | TableViewOptions) -> ConsumerSettings:
        """The settings for these keyword arguments. Raises ``ValueError`` or ``TypeError``."""
        named: dict[str, Any] = dict(options)
        # Users write words, SUBSCRIBE has numbers.
        for name, members in NAMED_VALUES.items():
            # Members of the enums are taken as they are.
            if isinstance(word := named.get(name), str):
                if word.upper() not in members:
                    raise ValueError(f"{word!r} is no {name}: {', '.join(members).lower()}")
                named[name] = members[word.upper()]
        # Raises ``TypeError`` for a name that is no option.
        return cls(**named)

    def nack_delay(self, redelivery_count: int) -> float:
        """After how many seconds a refused message is delivered again, by how often it was."""
        if self.nack_multiplier == 1.0:
            return self.nack_delay_s
        # Bounded before the power is taken: a count of thousands would overflow a float.
        factor = self.nack_multiplier ** min(redelivery_count, 64)
        return min(self.nack_delay_s * factor, max(self.nack_delay_s, self.nack_delay_max_s))
