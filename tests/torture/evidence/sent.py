"""What producers of a load sent, and whether what a topic holds or delivers is that.

Every message is the number of its producer and its own number, which count up from 0, and then
bytes that follow from both: whatever was lost, changed, overtaken or invented shows.
"""

from __future__ import annotations

import hashlib
import struct
import time
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random

import pulsar

from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.log import LogHistory

# Producer, number; then as many more bytes as the number says.
HEAD = struct.Struct(">HQ")
BODY_BYTES_MAX = 2048
# Bodies are cut out of this, each from another place.
NOISE = Random(0).randbytes(2 * BODY_BYTES_MAX)
# So many messages of a producer wait for their receipts at most, and may be sent again.
PENDING_MAX = 1000


class MessagesLost(AssertionError):
    """Something confirmed is missing, was changed, overtaken or invented, or a send was refused."""


def payload_of(producer: int, number: int) -> bytes:
    """The message of that number."""
    start = (producer + number) % BODY_BYTES_MAX
    return HEAD.pack(producer, number) + NOISE[start : start + number * 37 % BODY_BYTES_MAX]


@dataclass(slots=True)
class Sent:
    """What one producer did, and what it and its topic's consumer were told."""

    producer: int
    topic: str
    is_batching: bool = False
    sent: int = 0
    confirmed: bytearray = field(default_factory=bytearray)
    delivered: bytearray = field(default_factory=bytearray)
    refused: Counter[str] = field(default_factory=Counter[str])
    sent_at: array[float] = field(default_factory=lambda: array("d"))
    # Of each message when its receipt came, infinite until then.
    answered_at: array[float] = field(default_factory=lambda: array("d"))
    worst_latency_s: float = 0.0

    def payload(self) -> bytes:
        """The next message."""
        number = self.sent
        self.sent += 1
        self.confirmed.append(0)
        self.delivered.append(0)
        self.sent_at.append(time.monotonic())
        self.answered_at.append(inf)
        return payload_of(self.producer, number)

    def answered(self, number: int, result: object) -> None:
        """The client says what became of a message."""
        if result != pulsar.Result.Ok:
            self.refused[str(result)] += 1
            return
        self.confirmed[number] = 1
        self.answered_at[number] = now = time.monotonic()
        self.worst_latency_s = max(self.worst_latency_s, now - self.sent_at[number])

    def first_receipt_after(self, moment: float) -> float | None:
        """When the first receipt came of what was sent after that moment; None if nothing was.

        A receipt that was under way when a part was struck tells nothing about its recovery.
        """
        number = bisect_right(self.sent_at, moment)
        return self.answered_at[number] if number < len(self.sent_at) else None

    @property
    def waiting(self) -> int:
        """How many messages are neither confirmed nor refused."""
        return self.sent - sum(self.confirmed) - self.refused.total()


def identified(topic: str, payload: bytes, sents: Sequence[Sent]) -> tuple[Sent, int]:
    """Whose message that is, and its number.

    Raises ``MessagesLost`` for one that was never sent, or that is not what was sent.
    """
    if len(payload) < HEAD.size:
        raise MessagesLost(f"{topic} holds {payload!r}, which no producer sent")
    producer, number = HEAD.unpack_from(payload)
    for sent in sents:
        if sent.producer == producer and number < sent.sent:
            if payload != payload_of(producer, number):
                raise MessagesLost(f"{topic}: {producer}/{number} was changed")
            return sent, number
    raise MessagesLost(f"{topic} holds {producer}/{number}, which no producer sent")


@dataclass(frozen=True, slots=True)
class Content:
    """What a topic holds: how many messages, how many of them repeats, the digest of all.

    ``returns`` is how often a producer went back, at most, to send again what was not confirmed.
    """

    messages: int
    repeats: int
    returns: int
    digest: str


class Stored:
    """Takes the messages of a topic in the order in which it holds them.

    A producer that lost its broker goes back to its oldest unconfirmed message, and sends all from
    there on again, in order. So each of its messages follows the one before, or goes back a little.
    And what one producer had a receipt for comes before what another sent after that, but where
    the topic ``is_replicated``: what others sent comes when it can.
    """

    def __init__(self, topic: str, sents: Sequence[Sent], *, is_replicated: bool = False) -> None:
        self._is_replicated = is_replicated
        self._topic = topic
        self._sents = sents
        self._last = {sent.producer: -1 for sent in sents}
        self._highest = dict(self._last)
        self._returns = dict.fromkeys(self._last, 0)
        self._messages = self._repeats = 0
        self._digest = hashlib.sha256()
        self._history = LogHistory[int]()

    def take(self, payload: bytes) -> None:
        """Take the next message. Raises ``MessagesLost`` if it cannot be the next one."""
        sent, number = identified(self._topic, payload, self._sents)
        producer = sent.producer
        last, highest = self._last[producer], self._highest[producer]
        if number > last + 1:
            raise MessagesLost(f"{self._topic}: {producer}/{number} came after {last}")
        if number <= highest - PENDING_MAX:
            raise MessagesLost(f"{self._topic}: {producer}/{number} is repeated after {highest}")
        self._returns[producer] += number <= last
        self._repeats += number <= highest
        if number > highest and not self._is_replicated:
            asked = self._history.append(
                f"producer {producer}", (producer, number), sent.sent_at[number]
            )
            asked.position, asked.returned_s = self._messages, sent.answered_at[number]
        self._last[producer], self._highest[producer] = number, max(number, highest)
        self._messages += 1
        self._digest.update(payload)

    def content(self, returns_max: int) -> Content:
        """All that was taken.

        Raises ``MessagesLost`` where something confirmed was not, where no order explains the times
        of the receipts, or where a producer went back more often than it had a reason to.
        """
        for sent in self._sents:
            highest = self._highest[sent.producer]
            found = bytearray(number <= highest for number in range(sent.sent))
            check_all(sent, found, f"{self._topic} does not hold")
        try:
            self._history.check()
        except InvariantViolated as error:
            raise MessagesLost(f"{self._topic}: {error}") from None
        returns = max(self._returns.values(), default=0)
        if returns > returns_max:
            raise MessagesLost(f"{self._topic} repeats messages in {returns} places")
        return Content(self._messages, self._repeats, returns, self._digest.hexdigest())


def check_all(sent: Sent, found: bytearray, what: str) -> None:
    """Raise ``MessagesLost`` unless everything confirmed was found."""
    lost = [
        number
        for number, is_confirmed in enumerate(sent.confirmed)
        if is_confirmed and not found[number]
    ]
    if lost:
        raise MessagesLost(
            f"{what} {len(lost)} confirmed messages of producer {sent.producer}: {lost[:10]}"
        )
