"""Proves which receipt confirms which message, and that what waits is bounded."""

from __future__ import annotations

import math

import pytest

from geminga._channels.pending.sends import PendingSend, PendingSends, ReceiptOutOfOrder


def send(sequence_id: int, payload_bytes: int = 10, deadline_s: float = 0.0) -> PendingSend[None]:
    return PendingSend(sequence_id, b"head", bytes(payload_bytes), deadline_s, None)


def pending(*sequence_ids: int) -> PendingSends[None]:
    sends: PendingSends[None] = PendingSends(sends_max=5, bytes_max=100)
    for sequence_id in sequence_ids:
        sends.add(send(sequence_id))
    return sends


def test_receipts_confirm_in_order() -> None:
    sends = pending(4, 5, 6)
    for sequence_id in (4, 5, 6):
        confirmed = sends.confirm(sequence_id)
        assert confirmed is not None
        assert confirmed.sequence_id == sequence_id
    assert len(sends.sends) == sends.payload_bytes == 0


def test_a_late_receipt_confirms_nothing() -> None:
    sends = pending(4, 5)
    assert sends.confirm(3) is None
    assert pending().confirm(3) is None
    assert [one.sequence_id for one in sends.sends] == [4, 5]


def test_a_receipt_for_a_later_message_is_out_of_order() -> None:
    sends = pending(4, 5)
    with pytest.raises(ReceiptOutOfOrder):
        sends.confirm(5)
    assert len(sends.sends) == 2


def test_messages_and_bytes_are_bounded() -> None:
    sends = pending(0, 1, 2, 3)
    assert sends.has_room(60)
    assert not sends.has_room(61)
    sends.add(send(4))
    assert not sends.has_room(0)


def test_a_message_alone_always_fits() -> None:
    assert pending().has_room(1_000_000)


def test_the_oldest_expire_first() -> None:
    sends: PendingSends[None] = PendingSends(10, 1000)
    for number in range(4):
        sends.add(send(number, deadline_s=10.0 + number))
    assert sends.sends[0].deadline_s == 10.0
    assert sends.expire(9.0) == []
    assert [one.sequence_id for one in sends.expire(11.0)] == [0, 1]
    assert sends.sends[0].deadline_s == 12.0
    assert sends.payload_bytes == 20


def test_by_infinity_every_send_has_expired() -> None:
    sends = pending(0, 1)
    assert [one.sequence_id for one in sends.expire(math.inf)] == [0, 1]
    assert len(sends.sends) == sends.payload_bytes == 0
