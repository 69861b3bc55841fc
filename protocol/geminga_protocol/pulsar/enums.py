"""Choices that commands carry as numbers: how a subscription and a topic are shared.

Values are those of PulsarApi.proto, labels the names that stand there; statistics, policies and
error messages name a choice by its label.
"""

from __future__ import annotations

from enum import IntEnum


class SubscriptionType(IntEnum):
    """CommandSubscribe.SubType: how the consumers of a subscription share its messages."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3

    @property
    def label(self) -> str:
        """``Exclusive``, ``Shared``, ``Failover`` or ``Key_Shared``."""
        return _SUBSCRIPTION_TYPES[self]

    @property
    def tracks_entries(self) -> bool:
        """Whether several consumers share the messages, so that what each holds is kept entry by
        entry."""
        return self is SubscriptionType.SHARED or self is SubscriptionType.KEY_SHARED


class InitialPosition(IntEnum):
    """CommandSubscribe.InitialPosition: where a subscription begins that did not exist before."""

    LATEST = 0
    EARLIEST = 1

    @property
    def label(self) -> str:
        """``Latest`` or ``Earliest``."""
        return _INITIAL_POSITIONS[self]


class AccessMode(IntEnum):
    """ProducerAccessMode: which other producers may publish to the topic at the same time."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3

    @property
    def label(self) -> str:
        """``Shared``, ``Exclusive``, ``WaitForExclusive`` or ``ExclusiveWithFencing``."""
        return _ACCESS_MODES[self]


class KeySharedMode(IntEnum):
    """KeySharedMode: who splits the keys of a Key_Shared subscription. With AUTO_SPLIT the broker
    gives every consumer a share of the hashes; with STICKY consumers name their own ranges. REST
    and error messages show the names as they stand here, which are those of PulsarApi.proto."""

    AUTO_SPLIT = 0
    STICKY = 1


class SchemaType(IntEnum):
    """Schema.Type: what a schema describes. Names are those of upstream's ``SchemaType``, which
    REST shows. AUTO_CONSUME stands for whatever the topic has, and is never stored."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    AUTO_CONSUME = 21
    # 22 is EXTERNAL, of Pulsar 4.1

    @property
    def is_struct(self) -> bool:
        """Whether its definition describes fields."""
        return self in _STRUCT_TYPES


_STRUCT_TYPES = frozenset(
    {SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.AVRO, SchemaType.PROTOBUF_NATIVE}
)

# Written out, and compared with PulsarApi.proto by a test: configs name choices, and a command line
# that only reads a config must not load protobuf for them.
_SUBSCRIPTION_TYPES: dict[int, str] = {0: "Exclusive", 1: "Shared", 2: "Failover", 3: "Key_Shared"}
_INITIAL_POSITIONS: dict[int, str] = {0: "Latest", 1: "Earliest"}
_ACCESS_MODES: dict[int, str] = {
    0: "Shared",
    1: "Exclusive",
    2: "WaitForExclusive",
    3: "ExclusiveWithFencing",
}
