"""Proves that acknowledgements are said once, in order, and none too many."""

from __future__ import annotations

from geminga._channels.pending.acks import AckGroup, Acks, ack_set


def test_individual_acks_are_collected_in_their_order() -> None:
    group = AckGroup()
    assert not group
    for entry_id in (3, 1, 2, 1):
        group.acknowledge((1, entry_id))
    assert group
    assert group.take() == Acks(None, None, dict.fromkeys([(1, 3), (1, 1), (1, 2)]))
    assert not group
    assert group.take() == Acks(None, None, {})


def test_a_cumulative_ack_covers_individual_ones() -> None:
    group = AckGroup()
    for entry_id in (1, 5, 9):
        group.acknowledge((1, entry_id))
    group.acknowledge_up_to((1, 5))
    group.acknowledge_up_to((1, 4))
    group.acknowledge((1, 2))
    group.acknowledge((2, 0))
    assert group.take() == Acks((1, 5), None, dict.fromkeys([(1, 9), (2, 0)]))


def test_acknowledgements_that_were_not_sent_are_put_back() -> None:
    group = AckGroup()
    group.acknowledge((1, 7))
    group.acknowledge_up_to((1, 3))
    taken = group.take()
    group.acknowledge_up_to((1, 5))
    group.put_back(taken)
    assert group.take() == Acks((1, 5), None, dict.fromkeys([(1, 7)]))


def test_what_is_held_is_bounded() -> None:
    group = AckGroup(held_max=3)
    for entry_id in range(10):
        group.acknowledge((1, entry_id))
    assert list(group.take().individual) == [(1, 7), (1, 8), (1, 9)]


def test_what_is_put_back_replaces_no_newer_acknowledgement_of_its_entry() -> None:
    group = AckGroup()
    group.acknowledge((1, 7), lambda: 0b110)
    taken = group.take()
    group.acknowledge((1, 7))
    group.put_back(taken)
    assert group.take() == Acks(None, None, {(1, 7): None})


def test_what_is_acknowledged_of_one_entry_in_parts_adds_up() -> None:
    group = AckGroup()
    group.acknowledge((1, 7), lambda: 0b101)
    taken = group.take()
    group.acknowledge((1, 7), lambda: 0b110)
    group.put_back(taken)
    for bit in range(3, 5000):
        group.acknowledge((1, 7), lambda bit=bit: ~(1 << bit) & 0b111)  # type: ignore[misc]
    open_indexes = group.take().individual[1, 7]
    assert open_indexes is not None
    assert open_indexes() == 0b100


def test_an_entry_that_is_acknowledged_as_a_whole_stays_so() -> None:
    group = AckGroup()
    group.acknowledge((1, 7))
    taken = group.take()
    group.acknowledge((1, 7), lambda: 0b110)
    group.put_back(taken)
    group.acknowledge((1, 7), lambda: 0b110)
    assert group.take() == Acks(None, None, {(1, 7): None})


def test_a_cumulative_ack_within_a_batch_leaves_the_rest_of_it() -> None:
    group = AckGroup()
    group.acknowledge_up_to((1, 7), lambda: 0b100)
    group.acknowledge_up_to((1, 7))
    assert group.take() == Acks((1, 7), None, {})


def test_an_ack_set_has_a_bit_for_each_open_message_in_signed_words() -> None:
    assert ack_set(None) == []
    assert ack_set(lambda: 0b101) == [5]
    assert ack_set(lambda: (1 << 70) | (1 << 63)) == [-(1 << 63), 1 << 6]
