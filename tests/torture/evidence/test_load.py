"""Proves that reading back and draining find what a cluster withholds; the client is a fake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pulsar
import pytest
from tests.torture.evidence.load import LEFT_EACH, drain, read_back
from tests.torture.evidence.sent import MessagesLost, Sent, payload_of
from tests.torture.evidence.test_sent import EVEN, TOPIC, all_of, sent_by


@dataclass
class FakeMessage:
    content: bytes

    def data(self) -> bytes:
        return self.content


@dataclass
class FakeClient:
    """Gives ``payloads`` to a reader and to a consumer alike, and then says that there is ``more``,
    which never comes."""

    payloads: Sequence[bytes]
    more: bool = False
    acknowledged: list[bytes] = field(default_factory=list[bytes])
    _next: int = 0

    def create_reader(self, _topic: str, _start: object) -> FakeClient:
        return self

    def subscribe(self, *_: object, **__: object) -> FakeClient:
        return self

    def has_message_available(self) -> bool:
        return self.more or self._next < len(self.payloads)

    def read_next(self, _timeout_ms: int) -> FakeMessage:
        if self._next == len(self.payloads):
            raise pulsar.Timeout("nothing came")
        self._next += 1
        return FakeMessage(self.payloads[self._next - 1])

    receive = read_next

    def acknowledge(self, message: FakeMessage) -> None:
        self.acknowledged.append(message.content)

    def close(self) -> None:
        """Nothing is open."""


def delivered(sent: Sent) -> Sent:
    """All of it was given to the subscription, and acknowledged but for every tenth message."""
    sent.delivered = bytearray(sent.confirmed)
    return sent


def test_what_is_there_is_read_and_described() -> None:
    sent = sent_by(EVEN, 30)
    content = read_back(FakeClient(all_of(sent)), TOPIC, [sent], returns_max=0)
    assert (content.messages, content.repeats) == (30, 0)
    again = read_back(FakeClient([*all_of(sent), payload_of(0, 29)]), TOPIC, [sent], returns_max=1)
    assert (again.messages, again.repeats, again.returns) == (31, 1, 1)
    assert again != content


def test_a_lost_tail_is_found() -> None:
    sent = sent_by(EVEN, 30)
    with pytest.raises(MessagesLost, match="1 confirmed"):
        read_back(FakeClient(all_of(sent)[:-1]), TOPIC, [sent], returns_max=0)


def test_what_is_announced_and_not_given_is_found() -> None:
    sent = sent_by(EVEN, 30)
    with pytest.raises(MessagesLost, match="nothing after 30"):
        read_back(FakeClient(all_of(sent), more=True), TOPIC, [sent], returns_max=0)


def test_messages_that_no_consumer_was_given_before_must_come() -> None:
    sent = sent_by(EVEN, 30)
    drain(FakeClient(all_of(sent)), TOPIC, [sent])
    with pytest.raises(MessagesLost, match="no consumer was given"):
        drain(FakeClient(all_of(sent)[1:]), TOPIC, [sent])


def test_what_was_not_acknowledged_must_come_again() -> None:
    sent = delivered(sent_by(EVEN, 30))
    left = [payload_of(EVEN, number) for number in range(0, 30, LEFT_EACH)]
    client = FakeClient(left)
    drain(client, TOPIC, [sent])
    assert client.acknowledged == left
    with pytest.raises(MessagesLost, match="no consumer was given"):
        drain(FakeClient(left[:-1]), TOPIC, [sent])


def test_a_changed_message_is_found_by_the_subscription_too() -> None:
    sent = sent_by(EVEN, 30)
    payloads = all_of(sent)
    payloads[29] = payloads[29][:-1] + b"?"
    with pytest.raises(MessagesLost, match="was changed"):
        drain(FakeClient(payloads), TOPIC, [sent])
