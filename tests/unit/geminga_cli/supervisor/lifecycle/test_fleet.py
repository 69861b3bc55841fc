"""Proves what the supervisor decides: order of starting and stopping, restarts, giving up."""

from __future__ import annotations

import pytest

from geminga_cli.errors import CannotObey
from geminga_cli.supervisor.lifecycle.fleet import (
    ASKED_FOR,
    EXIT_HOPELESS,
    HANGS,
    IMPATIENCE,
    RESTART_FIRST_S,
    RESTART_LIMIT_S,
    SLOW_START,
    SLOW_STOP,
    STABLE_AFTER_S,
    START_ATTEMPTS_MAX,
    START_TIMEOUT_S,
    Fleet,
    restart_delay_s,
)
from geminga_cli.supervisor.lifecycle.orders import (
    Announce,
    Finish,
    Freeze,
    Kill,
    PartRules,
    Phase,
    Release,
    Restart,
    Start,
    Terminate,
    Thaw,
)

RULES = (
    PartRules("zookeeper", stop_deadline_s=4.5),
    PartRules("bookie", stop_deadline_s=3.5, needs=("zookeeper",)),
    PartRules("broker", stop_deadline_s=2.0, needs=("zookeeper",)),
)


def started_fleet() -> Fleet:
    fleet = Fleet(RULES)
    fleet.begin(0.0)
    return fleet


def ready_fleet(at_s: float = 1.0) -> Fleet:
    fleet = started_fleet()
    for part in ("zookeeper", "bookie", "broker"):
        fleet.ready(part, at_s)
    return fleet


def test_all_parts_are_started_at_once_and_only_the_first_is_let_go_on() -> None:
    assert Fleet(RULES).begin(0.0) == [
        Start("zookeeper"),
        Start("bookie"),
        Start("broker"),
        Release("zookeeper"),
    ]


def test_parts_are_let_go_on_when_what_they_need_is_ready() -> None:
    fleet = started_fleet()
    assert fleet.ready("zookeeper", 0.5) == [Release("bookie"), Release("broker")]


def test_everything_is_announced_once_when_the_last_part_is_ready() -> None:
    fleet = started_fleet()
    fleet.ready("zookeeper", 0.5)
    assert fleet.ready("broker", 0.8) == []
    assert fleet.ready("bookie", 0.9) == [Announce()]
    fleet.exited("bookie", -9, 1.0)
    fleet.tick(2.0)
    assert fleet.ready("bookie", 2.5) == []


def test_a_part_that_says_ready_twice_changes_nothing() -> None:
    fleet = ready_fleet()
    assert fleet.ready("broker", 2.0) == []


def test_a_part_that_ended_unasked_is_started_again_after_a_pause() -> None:
    fleet = ready_fleet()
    assert fleet.exited("bookie", -9, 5.0) == [Restart("bookie", RESTART_FIRST_S)]
    assert fleet.next_tick_s() == 5.0 + RESTART_FIRST_S
    assert fleet.tick(5.0) == []
    assert fleet.tick(5.0 + RESTART_FIRST_S) == [Start("bookie"), Release("bookie")]


def test_a_restarted_part_waits_again_for_what_it_needs() -> None:
    fleet = ready_fleet()
    fleet.exited("zookeeper", -9, 5.0)
    fleet.exited("broker", 1, 5.0)
    assert fleet.tick(5.1) == [Start("zookeeper"), Start("broker"), Release("zookeeper")]
    assert fleet.ready("zookeeper", 5.6) == [Release("broker")]


def test_the_pause_doubles_up_to_its_limit() -> None:
    delays = [restart_delay_s(failures) for failures in range(1, 12)]
    assert delays[:3] == [RESTART_FIRST_S, 2 * RESTART_FIRST_S, 4 * RESTART_FIRST_S]
    assert delays == sorted(delays)
    assert delays[-1] == restart_delay_s(1_000_000) == RESTART_LIMIT_S


def test_failures_in_a_row_make_the_pause_longer_and_a_healthy_time_ends_the_row() -> None:
    fleet = ready_fleet(at_s=0.0)
    assert fleet.exited("broker", 1, 1.0) == [Restart("broker", RESTART_FIRST_S)]
    fleet.tick(2.0)
    assert fleet.exited("broker", 1, 3.0) == [Restart("broker", 2 * RESTART_FIRST_S)]
    fleet.tick(4.0)
    fleet.ready("broker", 4.0)
    assert fleet.exited("broker", 1, 4.0 + STABLE_AFTER_S) == [Restart("broker", RESTART_FIRST_S)]


def test_a_part_that_is_killed_again_and_again_is_back_at_once_if_it_served_for_seconds() -> None:
    """Else producers wait for the pause as well, which grew to 10 s in a siege."""
    fleet = ready_fleet(at_s=0.0)
    now_s = 0.0
    for _ in range(10):
        now_s += 6.0
        assert fleet.exited("broker", -9, now_s) == [Restart("broker", RESTART_FIRST_S)]
        now_s += RESTART_FIRST_S
        fleet.tick(now_s)
        fleet.ready("broker", now_s)


def test_a_part_that_cannot_be_started_at_all_ends_everything() -> None:
    fleet = started_fleet()
    now_s = 0.0
    for _ in range(START_ATTEMPTS_MAX - 1):
        (restart,) = fleet.exited("bookie", 1, now_s)
        assert isinstance(restart, Restart)
        now_s += restart.delay_s
        assert Start("bookie") in fleet.tick(now_s)
    assert fleet.exited("bookie", 1, now_s) == [Terminate("broker")]
    assert fleet.exited("broker", 0, now_s) == [Terminate("zookeeper")]
    assert fleet.exited("zookeeper", 143, now_s) == [Finish(failed="bookie")]


def test_a_part_that_says_it_is_hopeless_is_not_tried_again_at_the_start() -> None:
    fleet = started_fleet()
    assert fleet.exited("broker", EXIT_HOPELESS, 0.3) == [Terminate("bookie")]
    assert fleet.phase("broker") is Phase.ENDED


def test_once_everything_was_ready_no_part_is_given_up() -> None:
    fleet = ready_fleet()
    now_s = 2.0
    for _ in range(20):
        (restart,) = fleet.exited("broker", EXIT_HOPELESS, now_s)
        assert isinstance(restart, Restart)
        now_s += restart.delay_s
        assert Start("broker") in fleet.tick(now_s)


def test_a_part_that_could_not_be_launched_is_tried_again_after_pauses_that_grow() -> None:
    fleet = ready_fleet()
    fleet.exited("bookie", -9, 5.0)
    now_s, delay_s = 5.0 + RESTART_FIRST_S, RESTART_FIRST_S
    for _ in range(3):
        assert fleet.tick(now_s) == [Start("bookie"), Release("bookie")]
        delay_s *= 2
        assert fleet.not_launched("bookie", now_s) == [Restart("bookie", delay_s)]
        assert fleet.phase("bookie") is Phase.WAITING
        now_s += delay_s
        assert fleet.next_tick_s() == now_s


def test_a_part_that_can_never_be_launched_at_the_start_ends_everything() -> None:
    fleet = started_fleet()
    fleet.exited("broker", 1, 0.1)
    fleet.tick(1.0)
    fleet.not_launched("broker", 1.0)
    fleet.tick(2.0)
    assert fleet.not_launched("broker", 2.0) == [Terminate("bookie")]
    assert fleet.phase("broker") is Phase.ENDED


def test_a_part_that_never_becomes_ready_is_killed_once() -> None:
    fleet = started_fleet()
    assert fleet.next_tick_s() == START_TIMEOUT_S
    assert fleet.tick(START_TIMEOUT_S) == [Kill("zookeeper", SLOW_START)]
    assert fleet.tick(START_TIMEOUT_S + 1) == []
    assert isinstance(fleet.exited("zookeeper", -9, START_TIMEOUT_S + 1)[0], Restart)


def test_a_part_that_waits_for_another_is_not_overdue() -> None:
    fleet = started_fleet()
    fleet.ready("zookeeper", 50.0)
    assert fleet.tick(START_TIMEOUT_S) == []
    assert fleet.tick(50.0 + START_TIMEOUT_S) == [
        Kill("bookie", SLOW_START),
        Kill("broker", SLOW_START),
    ]


def test_parts_stop_one_after_the_other_the_last_first() -> None:
    fleet = ready_fleet()
    assert fleet.stop(10.0) == [Terminate("broker")]
    assert fleet.exited("broker", 0, 10.2) == [Terminate("bookie")]
    assert fleet.exited("bookie", 0, 10.4) == [Terminate("zookeeper")]
    assert fleet.exited("zookeeper", 143, 10.7) == [Finish(failed=None)]
    assert fleet.next_tick_s() is None


def test_a_part_that_hangs_is_killed_once_and_started_again() -> None:
    fleet = ready_fleet()
    assert fleet.hangs("bookie") == [Kill("bookie", HANGS)]
    assert fleet.hangs("bookie") == []
    assert fleet.exited("bookie", -9, 5.0) == [Restart("bookie", RESTART_FIRST_S)]
    assert fleet.tick(6.0) == [Start("bookie"), Release("bookie")]
    assert fleet.hangs("bookie") == [], "it has not said yet that it serves"


def test_a_part_that_hangs_while_everything_stops_has_its_deadline() -> None:
    fleet = ready_fleet()
    fleet.stop(10.0)
    assert fleet.hangs("broker") == []
    assert fleet.tick(12.0) == [Kill("broker", SLOW_STOP)]


def test_a_part_that_does_not_stop_in_time_is_killed_once() -> None:
    fleet = ready_fleet()
    fleet.stop(10.0)
    assert fleet.next_tick_s() == 12.0
    assert fleet.tick(11.9) == []
    assert fleet.tick(12.0) == [Kill("broker", SLOW_STOP)]
    assert fleet.tick(12.1) == []
    assert fleet.next_tick_s() is None
    assert fleet.exited("broker", -9, 12.2) == [Terminate("bookie")]


def test_a_part_whose_time_is_over_when_its_turn_comes_is_killed_at_once() -> None:
    fleet = ready_fleet()
    fleet.stop(10.0)
    assert fleet.exited("broker", -9, 13.6) == [Terminate("bookie"), Kill("bookie", SLOW_STOP)]


def test_one_order_to_stop_that_comes_as_several_signals_is_one() -> None:
    fleet = ready_fleet()
    assert fleet.stop(10.0) == [Terminate("broker")]
    assert fleet.stop(10.0) == fleet.stop(10.4) == []


def test_asking_again_to_stop_kills_everything_at_once() -> None:
    fleet = ready_fleet()
    fleet.stop(10.0)
    fleet.stop(10.1)
    assert fleet.stop(10.5) == [
        Kill(part, IMPATIENCE) for part in ("zookeeper", "bookie", "broker")
    ]


def test_parts_that_wait_for_a_restart_are_not_started_while_stopping() -> None:
    fleet = ready_fleet()
    fleet.exited("broker", 1, 9.9)
    assert fleet.stop(10.0) == [Terminate("bookie")]
    assert fleet.tick(10.2) == []


def test_a_part_that_ends_out_of_turn_while_stopping_changes_nothing_for_the_others() -> None:
    fleet = ready_fleet()
    fleet.stop(10.0)
    assert fleet.exited("bookie", -9, 10.1) == []
    assert fleet.exited("broker", 0, 10.2) == [Terminate("zookeeper")]


def test_stopping_when_nothing_runs_is_the_end() -> None:
    fleet = Fleet(RULES[:1])
    assert fleet.stop(0.0) == [Finish(failed=None)]


def test_needing_a_part_that_comes_later_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        Fleet((RULES[1], RULES[0]))


def test_a_part_that_an_operator_kills_is_started_again() -> None:
    fleet = ready_fleet()
    assert fleet.kill("broker", keep_down=False) == [Kill("broker", ASKED_FOR)]
    assert fleet.exited("broker", -9, 5.0) == [Restart("broker", RESTART_FIRST_S)]


def test_a_part_that_is_kept_down_starts_when_it_is_resumed() -> None:
    fleet = ready_fleet()
    fleet.kill("broker", keep_down=True)
    assert fleet.exited("broker", -9, 5.0) == []
    assert fleet.phase("broker") is Phase.DOWN
    assert fleet.next_tick_s() is None
    assert fleet.tick(100.0) == []
    assert fleet.resume("broker", 100.0) == [Start("broker"), Release("broker")]
    assert fleet.ready("broker", 101.0) == []
    # From now on it is a part like others.
    assert fleet.exited("broker", 1, 110.0) == [Restart("broker", RESTART_FIRST_S)]


def test_a_paused_part_is_not_taken_for_one_that_hangs_until_it_is_resumed() -> None:
    fleet = ready_fleet()
    assert fleet.pause("broker") == [Freeze("broker")]
    assert fleet.is_paused("broker")
    assert fleet.hangs("broker") == []
    assert fleet.resume("broker", 9.0) == [Thaw("broker")]
    assert fleet.hangs("broker") == [Kill("broker", HANGS)]


def test_a_paused_part_that_is_killed_comes_back_unpaused() -> None:
    fleet = ready_fleet()
    fleet.pause("broker")
    fleet.kill("broker", keep_down=False)
    fleet.exited("broker", -9, 5.0)
    assert not fleet.is_paused("broker")


def test_what_an_operator_cannot_have_is_refused_with_the_reason() -> None:
    fleet = ready_fleet()
    with pytest.raises(CannotObey, match="no part 'broken'; there are zookeeper, "):
        fleet.kill("broken", keep_down=False)
    with pytest.raises(CannotObey, match="broker is ready, neither paused nor kept down"):
        fleet.resume("broker", 1.0)
    fleet.exited("broker", 1, 5.0)
    with pytest.raises(CannotObey, match="no process to kill"):
        fleet.kill("broker", keep_down=True)
    with pytest.raises(CannotObey, match="only a part that is ready"):
        fleet.pause("broker")
    fleet.stop(6.0)
    with pytest.raises(CannotObey, match="everything is stopping"):
        fleet.add(PartRules("broker-2", 2.0), 6.0)


MANY = (
    PartRules("zookeeper", 4.5, (), "zookeeper"),
    PartRules("bookie", 3.5, ("zookeeper",), "bookie"),
    PartRules("broker", 2.0, ("zookeeper",), "broker"),
    PartRules("broker-2", 2.0, ("zookeeper",), "broker"),
)


def test_parts_of_a_kind_stop_together_and_a_part_that_was_added_with_its_kind() -> None:
    fleet = Fleet(MANY)
    fleet.begin(0.0)
    for part in fleet.names():
        fleet.ready(part, 1.0)
    added = PartRules("bookie-2", 3.5, ("zookeeper",), "bookie")
    assert fleet.add(added, 2.0) == [Start("bookie-2"), Release("bookie-2")]
    assert fleet.ready("bookie-2", 3.0) == [], "announced long ago"
    assert fleet.names() == ["zookeeper", "bookie", "bookie-2", "broker", "broker-2"]
    assert fleet.stop(10.0) == [Terminate("broker"), Terminate("broker-2")]
    assert fleet.exited("broker-2", 0, 10.2) == []
    assert fleet.tick(12.0) == [Kill("broker", SLOW_STOP)]
    assert fleet.exited("broker", -9, 12.1) == [Terminate("bookie"), Terminate("bookie-2")]
    assert fleet.tick(13.5) == [Kill("bookie", SLOW_STOP), Kill("bookie-2", SLOW_STOP)]
    fleet.exited("bookie", -9, 13.6)
    assert fleet.exited("bookie-2", -9, 13.6) == [Terminate("zookeeper")]
