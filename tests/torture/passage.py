"""A text on its way through a topic, by the official client: sent, received as it comes, read back.

Every message is one line behind its number. A client that lost its connection sends again what was
not confirmed, and receives again what it had not acknowledged: a line may come twice. Dropping
those repeats must leave the text, in order, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
import time
import urllib.request
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

import pulsar

NUMBER = struct.Struct(">Q")
SUBSCRIPTION = "torture"
# The client's default: within this time each send is confirmed, however often parts are killed.
SEND_TIMEOUT_MS = 30_000
RECEIVE_TIMEOUT_MS = 60_000
CONFIRM_S_MAX = 120.0
BACKLOG_S_MAX = 30.0


class PassageFailed(AssertionError):
    """A line was lost, changed, invented or overtaken, or a send failed."""


class Sender:
    """Sends lines without waiting for each. ``failures`` are the sends that were not confirmed."""

    def __init__(self, client: Any, topic: str) -> None:
        self.sent = 0
        self.confirmed = 0
        self.failures: list[str] = []
        self._is_idle = threading.Condition()
        self._producer = client.create_producer(
            topic,
            send_timeout_millis=SEND_TIMEOUT_MS,
            batching_enabled=True,
            block_if_queue_full=True,
        )

    def send(self, line: bytes) -> None:
        """Send one line; waits while too many are under way."""
        self._producer.send_async(NUMBER.pack(self.sent) + line, self._answered)
        self.sent += 1

    def _answered(self, result: object, _: object) -> None:
        with self._is_idle:
            self.confirmed += 1
            if result != pulsar.Result.Ok:
                self.failures.append(str(result))
            self._is_idle.notify_all()

    def finish(self) -> None:
        """Wait until every send is confirmed. Raises ``PassageFailed`` if one was not."""
        with self._is_idle:
            self._is_idle.wait_for(lambda: self.confirmed == self.sent, CONFIRM_S_MAX)
        if self.failures or self.confirmed != self.sent:
            raise PassageFailed(
                f"{self.sent} sent, {self.confirmed} answered, {len(self.failures)} failed: "
                f"{sorted(set(self.failures))}"
            )


class Received:
    """Takes messages in the order of their arrival and drops the repeats.

    ``resent`` counts lines that stand in the topic again under a new message id, ``redelivered``
    those that came again under the same.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.resent = 0
        self.redelivered = 0
        self._digest = hashlib.sha256()
        self._last_id = (-1, -1, -1)

    def take(self, message: Any) -> None:
        """Take the next message. Raises ``PassageFailed`` if a line before it is missing."""
        content: bytes = message.data()
        (number,) = NUMBER.unpack_from(content)
        message_id = message.message_id()
        position = (message_id.ledger_id(), message_id.entry_id(), message_id.batch_index())
        if number > self.lines:
            raise PassageFailed(f"line {number} came at {position} where {self.lines} was due")
        if number == self.lines:
            self._digest.update(content[NUMBER.size :] + b"\n")
            self.lines += 1
        elif position > self._last_id:
            self.resent += 1
        else:
            self.redelivered += 1
        self._last_id = max(self._last_id, position)

    @property
    def digest(self) -> str:
        """SHA-256 of the lines so far, each with a newline."""
        return self._digest.hexdigest()


@contextmanager
def client_of(service_url: str) -> Generator[Any]:
    """The official client, silent: it would tell of every lost connection."""
    client = pulsar.Client(
        service_url,
        operation_timeout_seconds=60,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    )
    try:
        yield client
    finally:
        client.close()


def receive_all(consumer: Any, lines: int, *, finished: threading.Event) -> Received:
    """Receive and acknowledge until ``lines`` different ones have come; then set ``finished``."""
    received = Received()
    try:
        while received.lines < lines:
            message = consumer.receive(RECEIVE_TIMEOUT_MS)
            received.take(message)
            consumer.acknowledge(message)
    finally:
        finished.set()
    return received


def read_back(client: Any, topic: str) -> Received:
    """Read the whole topic from its first message to its last."""
    received = Received()
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    while reader.has_message_available():
        received.take(reader.read_next(RECEIVE_TIMEOUT_MS))
    reader.close()
    return received


def send_all(sender: Sender, lines: Iterable[bytes]) -> None:
    """Send all of ``lines`` and wait until they are confirmed."""
    for line in lines:
        sender.send(line)
    sender.finish()


def wait_for_empty_backlog(web_service_url: str, topic: str) -> None:
    """Return when the subscription has nothing left; its last acknowledgements are on their way."""
    path = topic.replace("persistent://", "/admin/v2/persistent/")
    deadline = time.monotonic() + BACKLOG_S_MAX
    while True:
        with urllib.request.urlopen(f"{web_service_url}{path}/stats", timeout=10) as answer:
            backlog = json.load(answer)["subscriptions"][SUBSCRIPTION]["msgBacklog"]
        if backlog == 0:
            return
        if time.monotonic() > deadline:
            raise PassageFailed(f"{backlog} entries are not acknowledged")
        time.sleep(0.1)
