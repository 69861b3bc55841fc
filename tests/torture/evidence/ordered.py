"""Subscriptions that keep an order: whether each key is delivered in it, whichever consumer has it.

Every producer has a key of its own, so a key's messages are numbered without a gap. A consumer that
lost its broker, or took over from another, is given again what was not acknowledged; whatever comes
for the first time follows the last that came for the first time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pulsar
from tests.torture.evidence.sent import MessagesLost, Sent, check_all, identified


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of subscription that keeps an order, and how many consumers share it."""

    name: str
    type: pulsar.ConsumerType
    consumers: int = 1


KINDS = (
    Kind("exclusive", pulsar.ConsumerType.Exclusive),
    Kind("failover", pulsar.ConsumerType.Failover, 2),
    Kind("key-shared", pulsar.ConsumerType.KeyShared, 2),
)


class Ordered:
    """What all consumers of a subscription of ``topic`` were given, together.

    To be told of a message before it is acknowledged: then no later one of its key can come first.
    """

    def __init__(self, topic: str, kind: Kind, sents: Sequence[Sent]) -> None:
        self.topic = topic
        self.kind = kind
        self.again = 0
        self._sents = sents
        self._highest = {sent.producer: -1 for sent in sents}
        self._lock = threading.Lock()  # consumers of a subscription are threads

    def take(self, payload: bytes) -> None:
        """A consumer was given this. Raises ``MessagesLost`` if others of its key are missing."""
        sent, number = identified(self.topic, payload, self._sents)
        with self._lock:
            highest = self._highest[sent.producer]
            if number > highest + 1:
                raise MessagesLost(
                    f"{self.kind.name} consumers of {self.topic} were given "
                    f"{sent.producer}/{number} after {highest}"
                )
            self.again += number <= highest
            self._highest[sent.producer] = max(number, highest)

    def has_all(self) -> bool:
        """Whether everything confirmed was delivered."""
        return all(
            not any(sent.confirmed[self._highest[sent.producer] + 1 :]) for sent in self._sents
        )

    def check_complete(self) -> None:
        """Raise ``MessagesLost`` unless everything confirmed was delivered."""
        for sent in self._sents:
            highest = self._highest[sent.producer]
            found = bytearray(number <= highest for number in range(sent.sent))
            check_all(sent, found, f"{self.kind.name} consumers were not given, of {self.topic},")
