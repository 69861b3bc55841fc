"""Pacing waits where waiting costs no entries, and nowhere else."""

from __future__ import annotations

from geminga_bookie.decisions.group_pacing import ENOUGH_ENTRIES, STEP_S, GroupPacing

INTERVAL_MAX_S = 0.003
SYNC_S = 0.0007


class Clients:
    """Drives a pacing with groups; counts what arrived."""

    def __init__(self) -> None:
        self.pacing = GroupPacing(INTERVAL_MAX_S)
        self.now_s = 1000.0
        self.entries = 0
        self.groups = 0

    def send_steadily(self, rate: float, seconds: float) -> None:
        """Entries come at a rate, whatever the bookie does."""
        end_s = self.now_s + seconds
        came_s = self.now_s
        while self.now_s < end_s:
            self.now_s = max(self.now_s, came_s + 1 / rate)
            pending = int((self.now_s - came_s) * rate)
            self.now_s += self.pacing.wait_s(self.now_s, pending)
            pending = int((self.now_s - came_s) * rate)
            came_s += pending / rate
            self._write(pending)

    def send_in_lockstep(self, window: int, think_s: float, seconds: float) -> None:
        """Clients have ``window`` entries outstanding, and send again when answered."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += think_s
            self.now_s += self.pacing.wait_s(self.now_s, window)
            self._write(window)

    def _write(self, entries: int) -> None:
        self.pacing.started(self.now_s, entries)
        self.entries += entries
        self.groups += 1
        self.now_s += SYNC_S


def test_a_single_client_never_waits() -> None:
    clients = Clients()
    clients.send_in_lockstep(1, 0.0001, 5)
    assert clients.pacing.interval_s == 0
    assert clients.groups > 5 / (SYNC_S + 0.0001) - 2


def test_few_entries_a_second_do_not_wait() -> None:
    clients = Clients()
    clients.send_steadily(2_000, 5)
    assert clients.pacing.interval_s == 0


def test_a_steady_stream_shares_its_syncs() -> None:
    clients = Clients()
    clients.send_steadily(20_000, 5)
    clients.entries = clients.groups = 0
    clients.send_steadily(20_000, 5)
    assert clients.pacing.interval_s == INTERVAL_MAX_S
    assert clients.entries / clients.groups > 50


def test_clients_that_wait_for_answers_are_not_slowed_down() -> None:
    clients = Clients()
    clients.send_in_lockstep(20, 0.0002, 20)
    unpaced = 20 * 20 / (SYNC_S + 0.0002)
    assert clients.entries > 0.93 * unpaced


def test_large_groups_do_not_wait() -> None:
    clients = Clients()
    clients.send_steadily(50_000, 2)
    pacing = clients.pacing
    assert pacing.interval_s > 0
    assert pacing.wait_s(clients.now_s, ENOUGH_ENTRIES) == 0


def test_no_wait_is_longer_than_it_takes_to_have_enough() -> None:
    clients = Clients()
    clients.send_steadily(200_000, 2)
    assert clients.pacing.wait_s(clients.now_s, 0) <= ENOUGH_ENTRIES / 190_000


def test_the_interval_ends_with_the_load() -> None:
    clients = Clients()
    clients.send_steadily(20_000, 3)
    assert clients.pacing.interval_s > 0
    clients.send_steadily(100, 1)
    assert clients.pacing.interval_s == 0


def test_a_stream_that_becomes_a_lockstep_is_found_out() -> None:
    clients = Clients()
    clients.send_steadily(20_000, 5)
    assert clients.pacing.interval_s == INTERVAL_MAX_S
    clients.send_in_lockstep(20, 0.0002, 10)
    clients.entries = 0
    clients.send_in_lockstep(20, 0.0002, 10)
    assert clients.entries > 0.9 * 20 * 10 / (SYNC_S + 0.0002)


def test_an_interval_of_nothing_allowed_means_no_waits() -> None:
    pacing = GroupPacing(0.0)
    for step in range(1000):
        now_s = 1000 + step * STEP_S
        assert pacing.wait_s(now_s, 20) == 0
        pacing.started(now_s, 20)
