"""One lost bookie is waited for, two are not; who comes back calls the audit off."""

from __future__ import annotations

from geminga_autorecovery.decisions.lost_bookies import LostBookies

ALL = frozenset({"b0", "b1", "b2"})


def test_with_every_bookie_there_nothing_is_due() -> None:
    bookies = LostBookies(ALL)
    bookies.observe(ALL, delay_s=10, now_s=0)
    assert bookies.audit_at_s is None
    assert not bookies.lost


def test_without_a_grace_the_audit_is_due_at_once() -> None:
    bookies = LostBookies(ALL)
    bookies.observe(ALL - {"b0"}, delay_s=0, now_s=5)
    assert bookies.audit_at_s == 5
    assert bookies.lost == {"b0"}


def test_one_lost_bookie_is_waited_for_from_its_first_absence() -> None:
    bookies = LostBookies(ALL)
    for now_s in (0, 3, 9):
        bookies.observe(ALL - {"b0"}, delay_s=10, now_s=now_s)
        assert bookies.audit_at_s == 10
    assert bookies.delayed_count == 1


def test_a_bookie_that_comes_back_calls_the_audit_off() -> None:
    bookies = LostBookies(ALL)
    bookies.observe(ALL - {"b0"}, delay_s=10, now_s=0)
    bookies.observe(ALL, delay_s=10, now_s=5)
    assert bookies.audit_at_s is None
    assert bookies.cancelled_count == 1
    bookies.observe(ALL - {"b0"}, delay_s=10, now_s=6)
    assert bookies.audit_at_s == 16


def test_a_second_lost_bookie_ends_the_wait() -> None:
    bookies = LostBookies(ALL)
    bookies.observe(ALL - {"b0"}, delay_s=10, now_s=0)
    bookies.observe(frozenset({"b2"}), delay_s=10, now_s=4)
    assert bookies.audit_at_s == 4
    assert bookies.lost == {"b0", "b1"}


def test_audited_bookies_are_not_lost_again_until_they_were_back() -> None:
    bookies = LostBookies(ALL)
    bookies.observe(ALL - {"b0"}, delay_s=0, now_s=0)
    bookies.audited(ALL - {"b0"})
    bookies.observe(ALL - {"b0"}, delay_s=0, now_s=1)
    assert bookies.audit_at_s is None
    bookies.observe(ALL, delay_s=0, now_s=2)
    bookies.observe(ALL - {"b0"}, delay_s=0, now_s=3)
    assert bookies.audit_at_s == 3


def test_a_bookie_that_was_back_when_its_ledgers_were_looked_for_is_missed_when_it_goes() -> None:
    bookies = LostBookies(ALL)
    bookies.observe(frozenset({"b2"}), delay_s=0, now_s=1)
    bookies.observe(frozenset({"b0", "b2"}), delay_s=0, now_s=6)
    bookies.audited(frozenset({"b0", "b2"}))
    bookies.observe(frozenset({"b2"}), delay_s=0, now_s=60)
    assert bookies.lost == {"b0"}
    assert bookies.audit_at_s == 60


def test_a_new_bookie_is_missed_when_it_goes() -> None:
    bookies = LostBookies(frozenset())
    bookies.observe(frozenset({"b7"}), delay_s=0, now_s=0)
    bookies.observe(frozenset(), delay_s=0, now_s=1)
    assert bookies.lost == {"b7"}


def test_another_grace_moves_the_audit() -> None:
    bookies = LostBookies(ALL)
    bookies.observe(ALL - {"b0"}, delay_s=10, now_s=0)
    bookies.delay_changed(60, is_same=False, now_s=5)
    assert bookies.audit_at_s == 65


def test_another_grace_without_a_lost_bookie_causes_no_audit() -> None:
    bookies = LostBookies(ALL)
    bookies.delay_changed(60, is_same=False, now_s=5)
    assert bookies.audit_at_s is None


def test_writing_the_same_grace_asks_for_an_audit_now() -> None:
    bookies = LostBookies(ALL)
    bookies.delay_changed(60, is_same=True, now_s=5)
    assert bookies.audit_at_s == 5
