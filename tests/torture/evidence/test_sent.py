"""Proves that the siege's checks fail: each kind of damage is planted once, and found."""

from __future__ import annotations

import math
import time

import pulsar
import pytest
from tests.torture.evidence.sent import HEAD, PENDING_MAX, MessagesLost, Sent, Stored, payload_of

TOPIC = "t"
EVEN, ODD = 0, 2


def sent_by(producer: int, count: int) -> Sent:
    """A producer whose messages were all confirmed."""
    sent = Sent(producer, TOPIC)
    for number in range(count):
        sent.payload()
        sent.answered(number, pulsar.Result.Ok)
    return sent


def read(sents: list[Sent], payloads: list[bytes], returns_max: int = 1) -> None:
    stored = Stored(TOPIC, sents)
    for payload in payloads:
        stored.take(payload)
    stored.content(returns_max)


def all_of(sent: Sent) -> list[bytes]:
    return [payload_of(sent.producer, number) for number in range(sent.sent)]


def test_what_was_sent_is_right_however_producers_take_turns() -> None:
    even, odd = Sent(EVEN, TOPIC), Sent(ODD, TOPIC)
    for sent in [even, odd] * 20:
        sent.payload()
    for sent in (even, odd):
        for number in range(20):
            sent.answered(number, pulsar.Result.Ok)
    read([even, odd], all_of(even) + all_of(odd))
    read(
        [even, odd], [each for pair in zip(all_of(odd), all_of(even), strict=True) for each in pair]
    )


def test_what_was_confirmed_before_another_was_sent_comes_before_it() -> None:
    even = sent_by(EVEN, 20)
    odd = sent_by(ODD, 20)
    read([even, odd], all_of(even) + all_of(odd))
    with pytest.raises(MessagesLost, match=r"producer 0 .*, which comes behind: producer 2"):
        read([even, odd], all_of(odd)[:1] + all_of(even) + all_of(odd)[1:])


def test_what_was_not_confirmed_may_be_missing() -> None:
    sent = sent_by(EVEN, 20)
    payloads = all_of(sent)
    sent.payload()
    read([sent], payloads)


@pytest.mark.parametrize("number", [0, 1, 10, 19])
def test_one_lost_message_is_found(number: int) -> None:
    sent = sent_by(EVEN, 20)
    payloads = all_of(sent)
    del payloads[number]
    with pytest.raises(MessagesLost):
        read([sent], payloads)


@pytest.mark.parametrize("offset", [0, HEAD.size - 1, HEAD.size, -1])
def test_one_changed_byte_is_found(offset: int) -> None:
    sent = sent_by(EVEN, 20)
    payloads = all_of(sent)
    changed = bytearray(payloads[7])
    changed[offset] ^= 1
    payloads[7] = bytes(changed)
    with pytest.raises(MessagesLost):
        read([sent], payloads)


def test_a_message_that_lost_its_end_is_found() -> None:
    sent = sent_by(EVEN, 20)
    for length in (0, HEAD.size - 1, HEAD.size):
        payloads = all_of(sent)
        payloads[7] = payloads[7][:length]
        with pytest.raises(MessagesLost):
            read([sent], payloads)


def test_a_message_that_was_overtaken_is_found() -> None:
    sent = sent_by(EVEN, 20)
    payloads = all_of(sent)
    payloads[7], payloads[8] = payloads[8], payloads[7]
    with pytest.raises(MessagesLost, match="came after"):
        read([sent], payloads)


def test_messages_that_no_producer_sent_are_found() -> None:
    sent = sent_by(EVEN, 20)
    for invented in (payload_of(EVEN, 20), payload_of(ODD, 0)):
        with pytest.raises(MessagesLost, match="no producer sent"):
            read([sent], [*all_of(sent), invented])


def test_a_producer_may_go_back_and_send_all_from_there_on_again() -> None:
    sent = sent_by(EVEN, 20)
    payloads = all_of(sent)
    read([sent], payloads[:15] + payloads[5:])
    read([sent], payloads[:15] + payloads[5:8] + payloads[6:], returns_max=2)


def test_messages_left_out_among_those_sent_again_are_found() -> None:
    sent = sent_by(EVEN, 20)
    payloads = all_of(sent)
    with pytest.raises(MessagesLost, match="came after"):
        read([sent], payloads[:15] + payloads[5:8] + payloads[9:])


def test_repeats_without_a_reason_are_found() -> None:
    sent = sent_by(EVEN, 20)
    twice = [payload for payload in all_of(sent) for _ in range(2)]
    with pytest.raises(MessagesLost, match="20 places"):
        read([sent], twice, returns_max=19)
    with pytest.raises(MessagesLost, match="1 places"):
        read([sent], [*all_of(sent), payload_of(EVEN, 19)], returns_max=0)


def test_repeats_from_further_back_than_can_be_pending_are_found() -> None:
    sent = sent_by(EVEN, PENDING_MAX + 1)
    payloads = all_of(sent)
    read([sent], payloads + payloads[1:])
    with pytest.raises(MessagesLost, match="repeated"):
        read([sent], payloads + payloads)


def test_a_refused_message_is_no_longer_waited_for_and_not_confirmed() -> None:
    sent = sent_by(EVEN, 1)
    sent.payload()
    assert sent.waiting == 1
    sent.answered(1, pulsar.Result.Timeout)
    assert sent.waiting == 0
    assert list(sent.confirmed) == [1, 0]
    assert sent.refused.total() == 1


def test_the_first_receipt_after_a_strike_is_of_what_was_sent_after_it() -> None:
    sent = Sent(EVEN, TOPIC)
    sent.payload()
    struck = time.monotonic()
    assert sent.first_receipt_after(struck) is None
    sent.payload()
    sent.answered(0, pulsar.Result.Ok)
    assert sent.first_receipt_after(struck) == math.inf
    sent.answered(1, pulsar.Result.Ok)
    receipt = sent.first_receipt_after(struck)
    assert receipt is not None
    assert struck <= sent.answered_at[0] <= receipt <= time.monotonic()
