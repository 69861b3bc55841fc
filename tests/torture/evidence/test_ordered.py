"""Proves that consumers of an ordered subscription are found out where a key's order is broken."""

from __future__ import annotations

import pytest
from tests.torture.evidence.ordered import KINDS, Ordered
from tests.torture.evidence.sent import MessagesLost, Sent, payload_of
from tests.torture.evidence.test_sent import EVEN, ODD, TOPIC, all_of, sent_by


def ordered_of(*sents: Sent) -> Ordered:
    return Ordered(TOPIC, KINDS[0], sents)


def give(ordered: Ordered, payloads: list[bytes]) -> None:
    for payload in payloads:
        ordered.take(payload)


def test_what_comes_in_order_is_right_however_keys_take_turns() -> None:
    even, odd = sent_by(EVEN, 10), sent_by(ODD, 10)
    ordered = ordered_of(even, odd)
    assert not ordered.has_all()
    for payload, other in zip(all_of(even), all_of(odd), strict=True):
        give(ordered, [other, payload])
    assert ordered.has_all()
    ordered.check_complete()


def test_what_was_not_acknowledged_may_come_again() -> None:
    sent = sent_by(EVEN, 10)
    ordered = ordered_of(sent)
    payloads = all_of(sent)
    # The seventh was acknowledged and does not come again.
    give(ordered, [*payloads[:8], *payloads[4:6], *payloads[7:]])
    assert ordered.again == 3
    assert ordered.has_all()


def test_a_message_that_overtook_others_of_its_key_is_found() -> None:
    sent = sent_by(EVEN, 10)
    payloads = all_of(sent)
    with pytest.raises(MessagesLost, match="0/5 after 3"):
        give(ordered_of(sent), [*payloads[:4], payloads[5], payloads[4]])
    with pytest.raises(MessagesLost, match="0/9 after 3"):
        give(ordered_of(sent), [*payloads[:4], payloads[2], payloads[9]])


def test_a_confirmed_message_that_never_came_is_found() -> None:
    sent = sent_by(EVEN, 10)
    ordered = ordered_of(sent)
    give(ordered, all_of(sent)[:-1])
    assert not ordered.has_all()
    with pytest.raises(MessagesLost, match="1 confirmed"):
        ordered.check_complete()


def test_a_changed_message_is_found() -> None:
    sent = sent_by(EVEN, 10)
    with pytest.raises(MessagesLost, match="changed"):
        give(ordered_of(sent), [payload_of(EVEN, 0), payload_of(EVEN, 1)[:-1] + b"?"])
