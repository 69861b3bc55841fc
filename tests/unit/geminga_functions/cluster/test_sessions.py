"""Proves that a lease is over for the leader only when it is surely over for its worker."""

from __future__ import annotations

from geminga_functions.cluster.sessions import Session, WorkerSessions

OLD = Session("w", "a")
NEW = Session("w", "b")


def heard_at_zero() -> WorkerSessions:
    """What a leader knows that heard of one session at the time 0; leases take 10 s."""
    sessions = WorkerSessions(10.0)
    sessions.heard(OLD, 0.0)
    return sessions


def test_a_lease_is_over_after_its_time_and_what_clocks_differ_by() -> None:
    sessions = heard_at_zero()
    sessions.caught_up(10.9)
    assert sessions.forget() == []
    assert sessions.may_run(OLD)
    sessions.caught_up(11.1)
    assert sessions.forget() == [OLD]
    assert not sessions.may_run(OLD)
    assert not sessions.newest


def test_no_lease_is_over_while_heartbeats_of_the_time_may_be_on_their_way() -> None:
    sessions = heard_at_zero()
    sessions.heard(Session("other", "x"), 1000.0)
    assert sessions.forget() == []
    assert sessions.may_run(OLD)


def test_each_heartbeat_renews_the_lease() -> None:
    sessions = heard_at_zero()
    sessions.heard(OLD, 5.0)
    sessions.caught_up(15.9)
    assert sessions.forget() == []


def test_a_lease_that_an_earlier_leader_knew_of_may_last_a_whole_one_more() -> None:
    sessions = WorkerSessions(10.0)
    sessions.suppose([OLD], 0.0)
    assert sessions.may_run(OLD)
    assert not sessions.newest  # it takes nothing before it was heard of
    sessions.caught_up(10.9)
    assert sessions.forget() == []
    sessions.caught_up(11.1)
    assert sessions.forget() == [OLD]


def test_a_worker_that_comes_back_takes_instances_in_its_new_session_alone() -> None:
    sessions = heard_at_zero()
    sessions.heard(NEW, 1.0)
    assert sessions.newest.get("w") == NEW
    assert sessions.may_run(OLD)  # its lease was not over
    sessions.heard(OLD, 2.0)
    assert sessions.newest.get("w") == NEW
    sessions.left(OLD)
    assert (sessions.newest.get("w"), sessions.may_run(OLD)) == (NEW, False)


def test_a_worker_that_left_is_gone_at_once() -> None:
    sessions = heard_at_zero()
    sessions.left(OLD)
    assert not sessions.may_run(OLD)
    assert not sessions.newest


def test_a_worker_is_drained_until_its_session_is_over() -> None:
    sessions = WorkerSessions(3.0)
    sessions.heard(OLD, 0.0)
    sessions.drain(OLD)
    sessions.heard(OLD, 1.0)
    assert sessions.draining == {OLD.worker}
    # It has started anew, though its former lease goes on.
    sessions.heard(NEW, 2.0)
    assert sessions.draining == frozenset()
