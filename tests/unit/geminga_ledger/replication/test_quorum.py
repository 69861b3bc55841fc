"""Quorum arithmetic equals a dumb model that remembers everything and counts it anew each time."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_ledger.replication.quorum import Acknowledgements, EntrySearch, Quorum, Verdict


@st.composite
def quorums(draw: st.DrawFn) -> Quorum:
    ensemble_size = draw(st.integers(1, 5))
    write_quorum = draw(st.integers(1, ensemble_size))
    return Quorum(ensemble_size, write_quorum, draw(st.integers(1, write_quorum)))


class DumbCounter:
    """All answers that ever came; what is confirmed is found by going through them."""

    def __init__(self, quorum: Quorum, pushed: int) -> None:
        self.quorum = quorum
        self.pushed = pushed
        self.answers: set[tuple[int, int]] = set()

    def confirmed(self) -> int:
        entry_id = 0
        while entry_id <= self.pushed:
            right = {
                bookie
                for bookie, answered in self.answers
                if answered == entry_id and bookie in self.quorum.write_set(entry_id)
            }
            if len(right) < self.quorum.ack_quorum:
                break
            entry_id += 1
        return entry_id - 1

    def unstored(self, bookie: int) -> list[int]:
        return [
            entry_id
            for entry_id in range(self.confirmed() + 1, self.pushed + 1)
            if bookie in self.quorum.write_set(entry_id) and (bookie, entry_id) not in self.answers
        ]


@settings(max_examples=150)
@given(st.data(), quorums())
def test_confirmation_equals_the_dumb_model(data: st.DataObject, quorum: Quorum) -> None:
    pushed = data.draw(st.integers(0, 12))
    acks = Acknowledgements(quorum)
    model = DumbCounter(quorum, pushed)
    for _ in range(data.draw(st.integers(0, 12))):
        bookie = data.draw(st.integers(0, quorum.ensemble_size - 1))
        # Ids beyond what was sent, and of other bookies' entries, are answers of a broken bookie.
        entry_ids = data.draw(st.lists(st.integers(0, pushed + 2), min_size=1, max_size=6))
        model.answers |= {(bookie, entry_id) for entry_id in entry_ids}
        assert acks.record(bookie, entry_ids, pushed) == model.confirmed()
        for each in range(quorum.ensemble_size):
            assert list(acks.unstored(each, pushed)) == model.unstored(each)


@given(st.permutations(range(8)))
def test_one_bookie_confirms_in_order_however_it_answers(order: list[int]) -> None:
    acks = Acknowledgements(Quorum(1, 1, 1))
    seen: set[int] = set()
    for entry_id in order:
        seen.add(entry_id)
        prefix = next(each for each in range(9) if each not in seen)
        assert acks.record(0, [entry_id], 7) == prefix - 1


def test_an_answer_in_order_that_was_never_asked_for_confirms_nothing() -> None:
    acks = Acknowledgements(Quorum(1, 1, 1))
    assert acks.record(0, [0, 1, 2], last_pushed=1) == 1
    assert acks.record(0, [2], last_pushed=1) == 1


def test_repeated_answers_of_one_bookie_count_once() -> None:
    acks = Acknowledgements(Quorum(3, 3, 2))
    assert acks.record(1, [0, 0], 0) == -1
    assert acks.record(1, [0], 0) == -1
    assert acks.record(2, [0], 0) == 0


def test_counting_goes_on_after_the_entries_that_recovery_found_confirmed() -> None:
    acks = Acknowledgements(Quorum(2, 2, 2), last_confirmed=6)
    assert acks.record(0, [7, 8], 8) == 6
    assert acks.record(1, [7], 8) == 7
    assert acks.lagging(8) == [1]


def test_lagging_bookies_are_those_of_the_write_set_that_have_not_stored() -> None:
    acks = Acknowledgements(Quorum(4, 3, 3))
    acks.record(2, [1], 1)
    assert acks.lagging(1) == [1, 3]


@pytest.mark.parametrize(
    ("quorum", "refusals_needed"),
    [(Quorum(1, 1, 1), 1), (Quorum(3, 3, 2), 2), (Quorum(3, 3, 1), 3), (Quorum(3, 3, 3), 1)],
)
def test_an_entry_is_lost_when_too_few_bookies_are_left(
    quorum: Quorum, refusals_needed: int
) -> None:
    acks = Acknowledgements(quorum)
    told: list[int | None] = []
    for bookie in range(refusals_needed):
        acks.refuse(bookie, 0)
        told.append(acks.hopeless())
    assert told == [None] * (refusals_needed - 1) + [0]


def test_a_refusal_of_a_confirmed_entry_does_not_matter() -> None:
    acks = Acknowledgements(Quorum(3, 3, 2))
    acks.record(0, [0], 0)
    acks.record(1, [0], 0)
    acks.refuse(2, 0)
    assert not acks._refused


def test_a_bookie_that_refuses_after_it_stored_still_counts_as_having_stored() -> None:
    acks = Acknowledgements(Quorum(2, 2, 2))
    acks.record(0, [0], 0)
    acks.refuse(0, 0)
    assert acks.hopeless() is None


def test_refusals_of_a_bookie_that_is_asked_anew_are_forgiven() -> None:
    acks = Acknowledgements(Quorum(3, 3, 2))
    acks.refuse(0, 0)
    acks.forgive(0)
    acks.refuse(1, 0)
    assert acks.hopeless() is None
    acks.refuse(2, 0)
    assert acks.hopeless() == 0


def test_nothing_is_kept_of_confirmed_entries() -> None:
    acks = Acknowledgements(Quorum(3, 3, 2))
    entry_ids = list(range(100))
    acks.refuse(2, 50)
    for bookie in range(3):
        acks.record(bookie, entry_ids, 99)
    assert not acks._stored
    assert not acks._refused


@given(quorums(), st.integers(0, 1000))
def test_write_sets_go_round_the_ensemble(quorum: Quorum, entry_id: int) -> None:
    write_set = quorum.write_set(entry_id)
    assert len(set(write_set)) == quorum.write_quorum
    assert write_set[0] == entry_id % quorum.ensemble_size
    assert write_set == quorum.write_sets[entry_id % quorum.ensemble_size]


def test_striping_is_that_of_bookkeeper() -> None:
    quorum = Quorum(3, 2, 2)
    assert [quorum.write_set(each) for each in range(4)] == [(0, 1), (1, 2), (2, 0), (0, 1)]


@settings(max_examples=150)
@given(quorums())
def test_coverage_means_that_no_ack_quorum_fits_into_the_unknown(quorum: Quorum) -> None:
    bookies = range(quorum.ensemble_size)
    for count in range(quorum.ensemble_size + 1):
        for known in combinations(bookies, count):
            unknown = set(bookies) - set(known)
            ack_quorums = (
                set(chosen)
                for write_set in quorum.write_sets
                for chosen in combinations(write_set, quorum.ack_quorum)
            )
            assert quorum.is_covered(known) == (not any(each <= unknown for each in ack_quorums))


@pytest.mark.parametrize("sizes", [(1, 2, 1), (2, 2, 3), (3, 2, 0), (0, 0, 0)])
def test_sizes_that_make_no_sense_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at most the next"):
        Quorum(*sizes)


def test_what_a_replaced_bookie_has_stored_counts_no_more() -> None:
    acks = Acknowledgements(Quorum(3, 3, 2))
    acks.record(0, [0, 1], 1)
    acks.refuse(0, 1)
    acks.forget(0)
    assert acks.record(1, [0, 1], 1) == -1
    assert list(acks.unstored(0, 1)) == [0, 1]
    assert acks.hopeless() is None
    assert acks.record(0, [0], 1) == 0


@settings(max_examples=150)
@given(st.data(), quorums())
def test_forgetting_equals_a_dumb_model_that_loses_the_answers(
    data: st.DataObject, quorum: Quorum
) -> None:
    pushed = data.draw(st.integers(0, 8))
    acks = Acknowledgements(quorum)
    model = DumbCounter(quorum, pushed)
    for _ in range(data.draw(st.integers(0, 10))):
        bookie = data.draw(st.integers(0, quorum.ensemble_size - 1))
        if data.draw(st.booleans()):
            # What is confirmed stays confirmed, whichever bookie leaves.
            kept = acks.last_confirmed
            acks.forget(bookie)
            model.answers = {
                (each, entry_id)
                for each, entry_id in model.answers
                if each != bookie or entry_id <= kept
            }
        entry_ids = data.draw(st.lists(st.integers(0, pushed), min_size=1, max_size=4))
        model.answers |= {(bookie, entry_id) for entry_id in entry_ids}
        assert acks.record(bookie, entry_ids, pushed) == model.confirmed()


def test_while_answers_are_held_they_count_and_confirm_nothing() -> None:
    acks = Acknowledgements(Quorum(2, 2, 1))
    acks.hold()
    assert acks.record(0, [0, 1], 1) == -1
    acks.release()
    assert acks.record(1, [], 1) == 1


def test_a_search_asks_the_write_set_in_order() -> None:
    search = EntrySearch(Quorum(5, 3, 2).write_set(4), absences_proving=3)
    asked: list[int | None] = []
    for _ in range(3):
        bookie = search.next_bookie()
        assert bookie is not None
        asked.append(bookie)
        search.unknown(bookie)
    assert asked == [4, 0, 1]
    assert search.next_bookie() is None


@pytest.mark.parametrize("is_last_heard", [True, False])
def test_enough_absences_are_a_proof_when_all_were_asked(is_last_heard: bool) -> None:  # noqa: FBT001
    quorum = Quorum(3, 3, 2)
    search = EntrySearch(quorum.write_set(0), quorum.absences_proving)
    search.next_bookie()
    assert search.absent(0) is None
    search.next_bookie()
    assert search.absent(1) is None
    assert search.is_proven
    search.next_bookie()
    assert (search.absent(2) if is_last_heard else search.unknown(2)) is Verdict.ABSENT


def test_too_few_absences_leave_it_undecided() -> None:
    quorum = Quorum(3, 3, 2)
    search = EntrySearch(quorum.write_set(0), quorum.absences_proving)
    verdicts: list[Verdict | None] = []
    for bookie, step in enumerate((search.unknown, search.absent, search.unknown)):
        search.next_bookie()
        verdicts.append(step(bookie))
    assert verdicts == [None, None, Verdict.UNDECIDED]


def test_nothing_is_decided_while_a_bookie_that_was_asked_may_still_answer() -> None:
    search = EntrySearch((0, 1), absences_proving=2)
    search.next_bookie()
    search.next_bookie()
    assert search.awaited == (0, 1)
    assert search.unknown(1) is None
    assert search.unknown(0) is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("sizes", "after", "first"),
    [((3, 2, 2), 0, [2]), ((5, 3, 2), 0, [2, 3]), ((3, 1, 1), 4, [2, 0]), ((1, 1, 1), 9, [0])],
)
def test_who_holds_the_next_entry_and_gets_the_one_after_it_is_asked_first(
    sizes: tuple[int, int, int], after: int, first: list[int]
) -> None:
    telling = Quorum(*sizes).telling(after)
    assert telling[: len(first)] == first
    assert sorted(telling) == list(range(sizes[0]))


@given(st.integers(1, 5), st.data(), st.integers(-1, 20))
def test_the_newest_entry_of_a_bookie_is_the_last_whose_write_set_has_it(
    ensemble_size: int, data: st.DataObject, last_entry: int
) -> None:
    quorum = Quorum(ensemble_size, data.draw(st.integers(1, ensemble_size)))
    for bookie in range(ensemble_size):
        entries = [each for each in range(last_entry + 1) if bookie in quorum.write_set(each)]
        assert quorum.newest_of(bookie, last_entry) == max(entries, default=-1)
