"""Proves that acknowledgements are said once, in order, and none too many."""

from __future__ import annotations

import pytest

from geminga import MessageId
from geminga.ack_group import ACK_IDS_MAX, AckGroup, Acks
from geminga.batch_acks import BatchAcks
from geminga.errors import NotAcknowledgeable


def in_batch(entry_id: int, index: int, acks: BatchAcks) -> MessageId:
    return MessageId(1, entry_id, index, -1, acks.size, acks)


def test_individual_acks_are_collected_in_their_order() -> None:
    group = AckGroup()
    assert not group
    for entry_id in (3, 1, 2, 1):
        assert group.acknowledge(MessageId(1, entry_id))
    assert group
    assert group.take() == Acks(None, [(1, 3), (1, 1), (1, 2)])
    assert not group
    assert group.take() == Acks(None, [])


def test_a_cumulative_ack_covers_individual_ones() -> None:
    group = AckGroup()
    for entry_id in (1, 5, 9):
        group.acknowledge(MessageId(1, entry_id))
    group.acknowledge_up_to(MessageId(1, 5))
    group.acknowledge_up_to(MessageId(1, 4))
    group.acknowledge(MessageId(1, 2))
    group.acknowledge(MessageId(2, 0))
    assert group.take() == Acks((1, 5), [(1, 9), (2, 0)])


def test_a_batch_is_acknowledged_with_its_last_message() -> None:
    group = AckGroup()
    acks = BatchAcks(3)
    assert not group.acknowledge(in_batch(4, 1, acks))
    assert not group.acknowledge(in_batch(4, 0, acks))
    assert group.acknowledge(in_batch(4, 2, acks))
    assert group.take().individual == [(1, 4)]


def test_in_the_midst_of_a_batch_the_entries_before_are_covered() -> None:
    group = AckGroup()
    acks = BatchAcks(3)
    group.acknowledge_up_to(in_batch(4, 1, acks))
    assert group.take().cumulative == (1, 3)
    group.acknowledge_up_to(in_batch(4, 2, acks))
    assert group.take().cumulative == (1, 4)


def test_in_the_first_batch_of_a_ledger_nothing_before_it_is_known() -> None:
    group = AckGroup()
    group.acknowledge_up_to(in_batch(0, 0, BatchAcks(2)))
    assert not group


def test_an_id_that_did_not_come_with_a_message_cannot_end_its_batch() -> None:
    group = AckGroup()
    stored = MessageId.from_bytes(in_batch(4, 1, BatchAcks(3)).to_bytes())
    with pytest.raises(NotAcknowledgeable):
        group.acknowledge(stored)
    group.acknowledge_up_to(stored)
    assert group.take().cumulative == (1, 3)


def test_what_could_not_be_said_is_put_back() -> None:
    group = AckGroup()
    group.acknowledge(MessageId(1, 7))
    group.acknowledge_up_to(MessageId(1, 3))
    taken = group.take()
    group.acknowledge_up_to(MessageId(1, 5))
    group.put_back(taken)
    assert group.take() == Acks((1, 5), [(1, 7)])


def test_what_is_held_is_bounded() -> None:
    group = AckGroup(held_max=3)
    for entry_id in range(10):
        group.acknowledge(MessageId(1, entry_id))
    assert group.take().individual == [(1, 7), (1, 8), (1, 9)]


def test_commands_are_bounded() -> None:
    acks = Acks(None, [(1, entry_id) for entry_id in range(2 * ACK_IDS_MAX + 1)])
    assert [len(ids) for ids in acks.in_commands()] == [ACK_IDS_MAX, ACK_IDS_MAX, 1]
    assert [id_ for ids in acks.in_commands() for id_ in ids] == acks.individual
