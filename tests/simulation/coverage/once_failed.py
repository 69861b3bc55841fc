"""The registry of seeds that ever failed: which story, what it found, when, and what keeps it.

A replayed seed proves little, and this is why each entry names a test as well. A seed's number
stands for a row of draws. It means the same only until a commit changes the story, the menu, the
engine or the number of callbacks that the product takes: after that it may be another run, in which
the bug is not met. Seen on 2026-11-24, with the fix undone: seed 27 of the cluster's story still
fails, as do two seeds in a hundred; the takeover's seed 11 no longer does, but 16, 43 and 49 do.
What stays true of each is that a run which once failed is clean now, at the price of a few tenths
of a second. What lasts is the scenario itself: the order of events that the seed met by chance,
told on purpose in the test of ``kept_as``, which fails without the fix.

A commit that mends what a seed found adds a line here, and that test. Where a fault off the usual
menu or another cluster was needed, ``options`` has them: the arguments of the story's ``run``
besides the seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OnceFailed:
    """A seed that failed: ``date`` is that of the fix; ``kept_as`` is the test that tells the same
    on purpose, ``path::name``."""

    story: str
    seed: int
    date: str
    found: str
    kept_as: str
    options: Mapping[str, object] = field(default_factory=dict[str, object])


ONCE_FAILED = (
    OnceFailed(
        "ledgers",
        1257,
        "2026-11-21",
        "a journal was built on bytes that were in memory only, and lost them with the power",
        "geminga_bookie/journal/test_replay.py"
        "::test_what_came_back_is_not_lost_when_the_power_fails_after_another_file_was_begun",
    ),
    OnceFailed(
        "messaging",
        20356,
        "2026-11-21",
        "a producer was told to go on behind a message that then was lost",
        "geminga_broker/topics/producers/test_deduplication.py"
        "::test_a_producer_that_reconnects_is_told_its_last_number_when_it_is_stored",
    ),
    OnceFailed(
        "cluster",
        75,
        "2026-11-22",
        "a former owner wrote a cursor's snapshot in a new session, while the next one loaded it",
        "geminga_broker/managed_ledger/test_cursor_takeover.py"
        "::test_an_owner_whose_session_is_over_writes_nothing",
    ),
    OnceFailed(
        "compaction",
        20038,
        "2026-11-22",
        "a log was trimmed before the compacted ledger that needs no more of it was in force",
        "geminga_broker/compaction/test_topic_compactor.py"
        "::test_a_log_that_is_trimmed_while_it_is_compacted_loses_nothing",
    ),
    OnceFailed(
        "takeover",
        16,  # then 11, which does not meet it any more
        "2026-11-22",
        "a broker whose node was made by a request without an answer sent clients round for ever",
        "geminga_broker/ownership/test_ownership_placing.py"
        "::test_a_bundle_whose_acquisition_was_not_answered_is_not_placed_elsewhere",
    ),
    OnceFailed(
        "cluster",
        27,
        "2026-11-23",
        "a broker that had stood still wrote to a fenced ledger that was consumed and deleted",
        "geminga_bookie/garbage/test_collector.py"
        "::test_a_fence_outlives_its_ledger_as_long_as_its_writer_may_not_have_heard",
    ),
    OnceFailed(
        "policies",
        50,
        "2026-11-27",
        "a change of a topic's policies failed while the reader of these was closed",
        "geminga_broker/topic_policies/test_event_log.py"
        "::test_a_caller_that_asks_while_the_reader_is_closed_waits_for_the_next_one",
    ),
    OnceFailed(
        "cluster",
        28,
        "2026-11-27",
        "a bookie that was killed, failed to start and lost its power never started again",
        "geminga_bookie/test_bookie.py"
        "::test_power_may_fail_after_a_start_that_did_not_make_the_replayed_file_durable",
    ),
    OnceFailed(
        "functions workers",
        213,
        "2026-11-27",
        "a leader whose connection was dark took a worker for gone, whose heartbeats another had",
        "geminga_functions/cluster/test_leadership.py"
        "::test_a_leader_whose_turn_ended_and_began_between_two_looks_begins_anew",
    ),
    OnceFailed(
        "takeover",
        53,  # and 65 of "many brokers"
        "2026-11-27",
        "a broker without ZooKeeper named an owner that it knew to be none any more",
        "geminga_broker/ownership/test_owners.py"
        "::test_an_owner_that_is_known_to_be_none_any_more_is_not_named_while_zookeeper_is_away",
    ),
    OnceFailed(
        "features",
        93,  # as the story was before its first commit; rarer since
        "2026-11-27",
        "what a reader took while it was moved undid the move when it attached again",
        "geminga/consumers/test_reader.py"
        "::test_what_is_read_while_a_seek_is_under_way_does_not_move_where_it_goes",
        {"errands": ("seeking",)},
    ),
    OnceFailed(
        "features",
        72,
        "2026-11-27",
        "a reader that was moved to a time read everything when its broker went before it read",
        "geminga/consumers/test_reader.py"
        "::test_a_reader_that_was_moved_to_a_time_begins_there_also_at_another_broker",
        {"errands": ("seeking",)},
    ),
    OnceFailed(
        "features",
        1,
        "2026-11-27",
        "what came while a topic was truncated kept what was there before it",
        "geminga_broker/managed_ledger/test_trimmer.py"
        "::test_what_is_published_while_a_log_is_truncated_keeps_nothing_from_before",
        {"errands": ("ending",)},
    ),
    OnceFailed(
        "garbage",
        5061,
        "2026-11-27",
        "a bookie that was stopped while its next journal file was made ended by a ValueError",
        "geminga_bookie/journal/test_journal.py"
        "::test_a_journal_closes_while_its_next_file_is_being_made",
    ),
    OnceFailed(
        "cluster",
        60,
        "2026-11-27",
        "a bookie whose disk failed while it closed went on to collect garbage, and never ended",
        "geminga_runtime/test_service.py"
        "::test_work_whose_cleaning_up_fails_when_it_is_cancelled_ends_all_the_same",
    ),
    OnceFailed(
        "logs",
        1,
        "2026-11-27",
        "a log with message indexes did not open where an operator had deleted its last ledger",
        "geminga_broker/managed_ledger/writing/test_broker_entry_metadata.py"
        "::test_entries_of_a_deleted_ledger_count_as_one_message_each",
    ),
    OnceFailed(
        "logs",
        5000,
        "2026-11-27",
        "two terminated a log, one failed, and entries were stored behind the end the other told",
        "geminga_broker/managed_ledger/test_termination.py"
        "::test_a_log_that_two_terminate_takes_nothing_while_one_of_them_may_succeed",
    ),
    OnceFailed(
        "logs",
        5069,
        "2026-11-27",
        "a log with message indexes did not open where no bookie had its last entry any more",
        "geminga_broker/managed_ledger/reading/test_log_reader.py"
        "::test_an_entry_that_no_bookie_has_any_more_is_told_from_storage_that_is_away",
    ),
    OnceFailed(
        "tailing",
        13,
        "2026-11-27",
        "a reader waited two seconds for each few entries: of two doubtful bookies it asked first "
        "the one that had never answered",
        "geminga_ledger/reading/test_range_read.py"
        "::test_where_all_are_doubtful_the_one_that_is_silent_now_is_asked_last",
    ),
    OnceFailed(
        "features",
        0,
        "2026-11-27",
        "a refusal that came before the receipts of earlier messages had all sent again, for ever",
        "geminga_broker/sessions/commands/test_producers.py"
        "::test_a_refusal_waits_for_the_receipts_of_what_was_sent_before",
        {"errands": ("postponing",)},
    ),
    OnceFailed(
        "careless clients",
        5011,
        "2026-11-27",
        "a bundle that was acquired without an answer sent all to a broker that did not know of it",
        "geminga_broker/ownership/test_ownership.py"
        "::test_a_bundle_whose_acquisition_was_not_answered_is_ours_with_the_next_connection",
    ),
    OnceFailed(
        "features",
        5,
        "2026-11-28",
        "a message of which the topic had some chunks twice never came whole",
        "geminga/consumers/incoming/test_chunks.py"
        "::test_chunks_that_are_stored_twice_are_acknowledged_and_left_out",
        {"errands": ("chunks",)},
    ),
    OnceFailed(
        "delayed",
        10008,
        "2026-11-28",
        "a broker that could not open answered no client that had connected just then",
        "geminga_broker/test_broker.py"
        "::test_a_connection_that_the_event_loop_brings_after_the_end_is_closed",
    ),
)
