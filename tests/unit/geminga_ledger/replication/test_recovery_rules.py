"""Recovery begins where the bookies' newest entries say, once enough of them were heard."""

from __future__ import annotations

import pytest

from geminga_ledger.replication.quorum import Quorum
from geminga_ledger.replication.recovery_rules import LastEntryVotes, is_absence, recovery_start
from geminga_protocol.bookkeeper.codes import ReturnCode


def test_the_highest_confirmation_that_an_entry_tells_wins() -> None:
    votes = LastEntryVotes(Quorum(3, 3, 2))
    votes.found(0, 4, 50)
    votes.found(2, 7, 80)
    votes.found(1, 5, 60)
    assert (votes.last_confirmed, votes.length_bytes) == (7, 80)


def test_an_ensemble_without_entries_has_confirmed_nothing() -> None:
    votes = LastEntryVotes(Quorum(3, 3, 2))
    for bookie in range(3):
        votes.heard.add(bookie)
    assert votes.is_decided
    assert (votes.last_confirmed, votes.length_bytes) == (-1, 0)


@pytest.mark.parametrize(
    ("quorum", "heard", "is_decided"),
    [
        (Quorum(1, 1, 1), [], False),
        (Quorum(1, 1, 1), [0], True),
        (Quorum(3, 3, 2), [0], False),
        (Quorum(3, 3, 2), [0, 2], True),
        (Quorum(3, 3, 3), [1], True),
        (Quorum(3, 2, 2), [0, 1], True),
        (Quorum(4, 2, 2), [0, 1], False),
        (Quorum(4, 2, 2), [0, 2], True),
    ],
)
def test_votes_are_decided_when_no_ack_quorum_can_be_unheard(
    quorum: Quorum, heard: list[int], *, is_decided: bool
) -> None:
    votes = LastEntryVotes(quorum)
    for bookie in heard:
        votes.heard.add(bookie)
    assert votes.is_decided is is_decided


def test_what_came_before_the_last_fragment_needs_no_recovery() -> None:
    assert recovery_start(-1, 10) == 9
    assert recovery_start(12, 10) == 12
    assert recovery_start(-1, 0) == -1


def test_only_a_missing_entry_or_ledger_is_an_absence() -> None:
    assert {code for code in ReturnCode if is_absence(code)} == {
        ReturnCode.ENOENTRY,
        ReturnCode.ENOLEDGER,
    }
