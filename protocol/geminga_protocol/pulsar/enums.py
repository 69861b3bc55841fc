"""Choices that commands carry as numbers: how a subscription and a topic are shared.

Values are those of PulsarApi.proto, labels the names that stand there; statistics, policies and
error messages name a choice by its label.
"""

from __future__ import annotations

from enum import IntEnum

from geminga_protocol.pulsar.api_pb2 import CommandSubscribe, ProducerAccessMode


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


_SUBSCRIPTION_TYPES: dict[int, str] = {
    number: name for name, number in CommandSubscribe.SubType.items()
}
_INITIAL_POSITIONS: dict[int, str] = {
    number: name for name, number in CommandSubscribe.InitialPosition.items()
}
_ACCESS_MODES: dict[int, str] = {number: name for name, number in ProducerAccessMode.items()}
