"""Proves by which positions a repeat of a replicator is known, and that they are never lost."""

from __future__ import annotations

from geminga_broker.topics.decisions.sequence_ids import Verdict
from geminga_broker.topics.decisions.source_positions import SourcePositions
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.replication import replicator_producer

NAME = replicator_producer("east", "west")


def stored(position: str, *, source: str = "east") -> api.MessageMetadata:
    property_ = api.KeyValue(key="__MSG_PROP_REPL_SOURCE_POSITION", value=position)
    return api.MessageMetadata(replicated_from=source, properties=[property_])


def test_a_position_is_new_until_taken_and_a_repeat_once_stored() -> None:
    positions = SourcePositions()
    assert positions.judge(NAME, (1, 0)) is Verdict.NEW
    positions.taken(NAME, (1, 5))
    assert positions.has_pending(NAME)
    assert positions.judge(NAME, (1, 5)) is Verdict.UNKNOWN
    positions.stored(NAME, (1, 5))
    assert not positions.has_pending(NAME)
    assert positions.judge(NAME, (1, 4)) is Verdict.STORED
    assert positions.judge(NAME, (2, 0)) is Verdict.NEW
    assert positions.judge(replicator_producer("south", "west"), (1, 0)) is Verdict.NEW


def test_a_snapshot_has_them_under_upstreams_names_and_leaves_sequence_ids_alone() -> None:
    positions = SourcePositions()
    positions.taken(NAME, (3, 9))
    positions.stored(NAME, (3, 9))
    numbers = positions.snapshot()
    assert numbers == {f"{NAME}_LID": 3, f"{NAME}_EID": 9}
    found = SourcePositions()
    assert found.restore({**numbers, "p": 4, "q_LID": 1, f"{NAME}2_LID": 1}) == {
        "p": 4,
        "q_LID": 1,
        f"{NAME}2_LID": 1,
    }
    assert found.judge(NAME, (3, 9)) is Verdict.STORED
    assert found.judge(NAME, (3, 10)) is Verdict.NEW


def test_positions_are_found_again_in_the_stored_entries() -> None:
    positions = SourcePositions()
    assert positions.found_stored(stored("3:9"), "west")
    assert positions.found_stored(stored("3:8"), "west")  # a repeat that was stored does no harm
    assert positions.found_stored(stored("garbage"), "west")
    assert not positions.found_stored(api.MessageMetadata(producer_name="p"), "west")
    assert positions.snapshot() == {f"{NAME}_LID": 3, f"{NAME}_EID": 9}


def test_an_entry_that_was_pending_when_deduplication_began_is_a_repeat_later() -> None:
    positions = SourcePositions()
    positions.stored(NAME, (1, 5))
    assert not positions.has_pending(NAME)
    assert positions.judge(NAME, (1, 5)) is Verdict.STORED
    positions.taken(NAME, (1, 8))
    positions.stored(NAME, (1, 7))
    assert positions.has_pending(NAME)


def test_positions_that_do_not_grow_before_deduplication_do_not_stay_pending() -> None:
    positions = SourcePositions()
    for entry_id in (5, 3):
        positions.taken(NAME, (1, entry_id))
    assert positions.judge(NAME, (1, 4)) is Verdict.UNKNOWN
    for entry_id in (5, 3):
        positions.stored(NAME, (1, entry_id))
    assert not positions.has_pending(NAME)
    assert positions.judge(NAME, (1, 4)) is Verdict.STORED


def test_a_run_is_new_only_in_the_order_of_its_positions() -> None:
    positions = SourcePositions()
    assert positions.all_new(NAME, [(1, 5), (1, 6), (2, 0)])
    assert not positions.all_new(NAME, [(1, 5), (1, 5)])
    assert not positions.all_new(NAME, [(2, 0), (1, 6)])
    positions.taken(NAME, (1, 5))
    assert not positions.all_new(NAME, [(1, 5), (1, 6)])
