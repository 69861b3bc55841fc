"""A text on its way through a topic, by the official client: sent, received as it comes, read back.

Every message is one line behind its number. A client that lost its connection sends again what was
not confirmed, and receives again what it had not acknowledged: a line may come twice. Dropping
those repeats must leave the text, in order, and nothing else.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pulsar
from tests.integration.official_client import client_of
from tests.integration.rest import rest
from tests.integration.waiting import eventually

NUMBER = struct.Struct(">Q")
SUBSCRIPTION = "torture"
# The client's default: within this time each send is confirmed, however often parts are killed.
SEND_TIMEOUT_S = 30
QUIET_MS = 1_000
RECEIVE_TIMEOUT_MS = 120_000
CONFIRM_S_MAX = 240.0
# Small batches, and many of them under way: more places to lose one.
BATCH_LINES_MAX = 10
PENDING_LINES_MAX = 5_000


class PassageFailed(AssertionError):
    """A line was lost, changed, invented or overtaken, or a send failed."""


class Sender:
    """Sends lines without waiting for each; ``on_confirmed`` is called for each receipt.

    It does little for a line, so that there is always something under way.
    """

    def __init__(
        self, client: Any, topic: str, *, on_confirmed: Callable[[], None], send_timeout_s: int
    ) -> None:
        self._on_confirmed = on_confirmed
        self._sent = 0
        self._confirmed = 0
        self._failures: list[str] = []
        self._producer = client.create_producer(
            topic,
            send_timeout_millis=send_timeout_s * 1000,
            batching_enabled=True,
            batching_max_messages=BATCH_LINES_MAX,
            max_pending_messages=PENDING_LINES_MAX,
            block_if_queue_full=True,
        )

    def send_all(self, lines: Iterable[bytes]) -> None:
        """Send all of ``lines``, and wait until every one is confirmed.

        Raises ``PassageFailed`` if one was not.
        """
        send, answered = self._producer.send_async, self._answered
        for line in lines:
            send(NUMBER.pack(self._sent) + line, answered)
            self._sent += 1
        eventually(
            lambda: self._confirmed + len(self._failures),
            lambda answers: answers == self._sent,
            CONFIRM_S_MAX,
        )
        if self._failures:
            raise PassageFailed(
                f"{len(self._failures)} of {self._sent} sends failed: {set(self._failures)}"
            )

    def _answered(self, result: object, _: object) -> None:
        """Called on the client's one thread for this producer."""
        if result == pulsar.Result.Ok:
            self._confirmed += 1
            self._on_confirmed()
        else:
            self._failures.append(str(result))


@dataclass(frozen=True, slots=True)
class Arrived:
    """What came out: how many different lines, the SHA-256 of them, each with its newline.

    ``resent`` counts lines that stand in the topic again under a new message id, ``returns`` how
    often the sender went back to send such lines, ``redelivered`` those that came again under the
    same id.
    """

    lines: int
    digest: str
    resent: int
    returns: int
    redelivered: int


class Received:
    """Takes messages in the order of their arrival and drops the repeats."""

    def __init__(self) -> None:
        self.lines = 0
        self.resent = 0
        self.returns = 0
        self.redelivered = 0
        self._digest = hashlib.sha256()
        self._checksums = array("L")  # of each line, to know its repeats by
        self._last = -1  # the line of the last message that came for the first time
        self._last_id = (-1, -1, -1)

    def take(self, message: Any) -> None:
        """Take the next message.

        Raises ``PassageFailed`` if a line before it is missing, or if it is a repeat that cannot
        be: changed, or further back than a sender that lost its broker goes.
        """
        content: bytes = message.data()
        (number,) = NUMBER.unpack_from(content)
        message_id = message.message_id()
        position = (message_id.ledger_id(), message_id.entry_id(), message_id.batch_index())
        if number > self.lines:
            raise PassageFailed(f"line {number} came at {position} where {self.lines} was due")
        checksum = zlib.crc32(content)
        if number == self.lines:
            self._digest.update(content[NUMBER.size :] + b"\n")
            self._checksums.append(checksum)
            self.lines += 1
        elif checksum != self._checksums[number]:
            raise PassageFailed(f"line {number} is another one when it comes again at {position}")
        elif position > self._last_id:
            self._check_resent(number, position)
            self.resent += 1
        else:
            self.redelivered += 1
        if position > self._last_id:
            self._last, self._last_id = number, position

    def _check_resent(self, number: int, position: tuple[int, int, int]) -> None:
        """A sender goes back to its oldest unconfirmed line, and on from there in order."""
        if number > self._last + 1 or number < self.lines - PENDING_LINES_MAX:
            raise PassageFailed(f"line {number} is repeated at {position} after {self._last}")
        self.returns += number <= self._last

    def arrived(self) -> Arrived:
        """All that was taken."""
        return Arrived(
            self.lines, self._digest.hexdigest(), self.resent, self.returns, self.redelivered
        )


def receive_all(service_url: str, topic: str, lines: int) -> Arrived:
    """Receive and acknowledge until ``lines`` different ones have come."""
    received = Received()
    with client_of(service_url) as client:
        consumer = client.subscribe(topic, SUBSCRIPTION)
        while received.lines < lines:
            message = consumer.receive(RECEIVE_TIMEOUT_MS)
            received.take(message)
            consumer.acknowledge(message)
    return received.arrived()


def acknowledge_what_returns(client: Any, topic: str) -> None:
    """Acknowledge again what comes again, until nothing does for a second.

    A broker that is killed forgets the acknowledgements that it was just given, and the subscriber,
    who had got everything by then, is no longer there.
    """
    consumer = client.subscribe(topic, SUBSCRIPTION)
    with suppress(pulsar.Timeout):
        while True:
            consumer.acknowledge(consumer.receive(QUIET_MS))
    consumer.close()


def read_back(client: Any, topic: str) -> Arrived:
    """Read the whole topic from its first message to its last."""
    received = Received()
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    while reader.has_message_available():
        received.take(reader.read_next(RECEIVE_TIMEOUT_MS))
    reader.close()
    return received.arrived()


def wait_for_empty_backlog(web_service_url: str, topic: str) -> None:
    """Return when the subscription has nothing left; its last acknowledgements are on their way."""
    path = topic.replace("persistent://", "/admin/v2/persistent/")
    eventually(
        lambda: rest(web_service_url, "GET", f"{path}/stats")[1]["subscriptions"][SUBSCRIPTION],
        lambda subscription: subscription["msgBacklog"] == 0,
    )
