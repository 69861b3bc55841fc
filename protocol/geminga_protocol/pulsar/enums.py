"""Enumerations of Pulsar's protocol that other rooms use too: types of subscriptions, of schemas...

Values are the numbers in PulsarApi.proto, and ``label`` is the name there. Statistics, policies and
error messages show the label.
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
        """Whether several consumers share the messages at once.

        The broker then tracks each entry that a consumer has not acknowledged; otherwise a single
        position for the only active consumer is enough.
        """
        return self is SubscriptionType.SHARED or self is SubscriptionType.KEY_SHARED


class InitialPosition(IntEnum):
    """CommandSubscribe.InitialPosition: where a newly created subscription begins to read."""

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
    """KeySharedMode: who divides the keys of a Key_Shared subscription among its consumers.

    With AUTO_SPLIT the broker assigns hash ranges to consumers, with STICKY each consumer brings
    its own. REST and error messages show these names, which are those of PulsarApi.proto.
    """

    AUTO_SPLIT = 0
    STICKY = 1


class SchemaType(IntEnum):
    """Schema.Type: what a schema describes.

    Names are those of upstream's ``SchemaType``, which REST shows. AUTO_CONSUME asks for whichever
    schema the topic has; it is never stored.
    """

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
        """Whether the definition of such a schema describes fields."""
        return self in _STRUCT_TYPES


_STRUCT_TYPES = frozenset(
    {SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.AVRO, SchemaType.PROTOBUF_NATIVE}
)

# Written out instead of taken from ``api_pb2``, with which a unit test compares them: configs
# contain these names, and a command line that only reads a config shall not spend time on loading
# protobuf.
_SUBSCRIPTION_TYPES: dict[int, str] = {0: "Exclusive", 1: "Shared", 2: "Failover", 3: "Key_Shared"}
_INITIAL_POSITIONS: dict[int, str] = {0: "Latest", 1: "Earliest"}
_ACCESS_MODES: dict[int, str] = {
    0: "Shared",
    1: "Exclusive",
    2: "WaitForExclusive",
    3: "ExclusiveWithFencing",
}
