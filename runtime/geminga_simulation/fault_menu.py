"""The fault menu: what may go wrong in a simulated world, and how often.

Rates are events per virtual second over all hosts; bounds have units. Faults that may befall every
operation (delays, torn writes, disk errors) are the menu's conditions. ``FaultInjector`` draws the
moments and the victims from the world's seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Any

from geminga_simulation.conditions import (
    Conditions,
    CoordinationConditions,
    DiskConditions,
    NetworkConditions,
)
from geminga_simulation.run_control import chosen_from
from geminga_simulation.zookeeper.server import SESSION_TIMEOUT_S_DEFAULT

# Bad enough to matter and good enough for work to be done. A window far below the default fills up:
# senders meet with back-pressure.
ROUGH_NETWORK = NetworkConditions(
    delay_s_max=0.003,
    late_probability=0.02,
    cut_probability=0.2,
    merge_probability=0.2,
    window_bytes=16 * 1024,
)
ROUGH_DISK = DiskConditions(sync_s_max=0.003, slow_probability=0.01, torn_probability=0.7)
FAILING_DISK = replace(
    ROUGH_DISK,
    read_error_probability=0.01,
    write_error_probability=0.001,
    sync_error_probability=0.001,
    full_probability=0.001,
)
# Much of what is read comes late or not at all; writes are as good as on a rough disk.
UNREADABLE_DISK = replace(
    ROUGH_DISK, uncached_probability=0.8, read_error_probability=0.2, slow_probability=0.1
)
ROUGH_COORDINATION = CoordinationConditions(
    delay_s_max=0.01,
    loss_probability=0.01,
    write_loss_probability=0.05,
    late_probability=0.02,
)
WHOLE_MENU_PROBABILITY = 0.25
# How much faster or slower than true time a monotonic clock may go. Two of them then run apart by
# less than a tenth, which is what leases of functions workers rely on (``CLOCK_MARGIN``) and what
# the doubt of a session leaves (``DOUBT_FRACTION``). Real ones are far better, except while chrony
# slews them, by 8.3 % at most unless configured otherwise.
CLOCK_DRIFT_MAX = 0.045


@dataclass(frozen=True, slots=True)
class FaultMenu(Conditions):
    """What may go wrong. A rate of 0 keeps a dish off the table.

    At most ``hosts_down_max`` hosts are down at a time (crashed, killed or standing still), each
    for at most ``down_s_max`` or ``pause_s_max``. A crash is silent (the machine dark until it is
    back) with ``silent_probability``. The client of a session that expires learns of it by the end
    of its connection, which with ``unnoticed_probability`` comes up to ``unnoticed_s_max`` later:
    clients break a connection on which they hear nothing for two thirds of their time-out.
    """

    crash_rate: float = 0.0
    kill_rate: float = 0.0
    pause_rate: float = 0.0
    partition_rate: float = 0.0
    one_way_partition_rate: float = 0.0
    # All links of one host are cut, one after the other, and healed in another order.
    swizzle_rate: float = 0.0
    reset_rate: float = 0.0
    half_open_rate: float = 0.0
    session_loss_rate: float = 0.0
    session_expiry_rate: float = 0.0
    zookeeper_restart_rate: float = 0.0
    # A follower learns of changes late, and serves some of the sessions.
    zookeeper_lag_rate: float = 0.0
    # One write to ZooKeeper fails, is late, or its answer is; rather one of a kind that is seldom
    # written (``write_troubles.py``).
    coordination_step_rate: float = 0.0
    disk_stall_rate: float = 0.0
    disk_failure_rate: float = 0.0
    # Syncs make nothing safe until the power fails; only on hosts that a story names, for it must
    # know what they may lose.
    lying_sync_rate: float = 0.0
    clock_jump_rate: float = 0.0
    clock_drift_rate: float = 0.0
    hosts_down_max: int = 1
    down_s_max: float = 3.0
    pause_s_max: float = 3.0
    partition_s_max: float = 3.0
    zookeeper_away_s_max: float = 2.0
    zookeeper_lag_s_max: float = 2.0
    disk_stall_s_max: float = 2.0
    disk_failure_s_max: float = 1.0
    lying_sync_s_max: float = 2.0
    unnoticed_s_max: float = SESSION_TIMEOUT_S_DEFAULT * 2 / 3
    clock_jump_ms_max: int = 60_000
    clock_drift_max: float = CLOCK_DRIFT_MAX
    silent_probability: float = 0.3
    unnoticed_probability: float = 0.5
    network: NetworkConditions = field(default_factory=NetworkConditions)
    disk: DiskConditions = field(default_factory=DiskConditions)
    coordination: CoordinationConditions = field(default_factory=CoordinationConditions)

    def drawn(self, random: Random) -> FaultMenu:
        """The whole menu, once in four times; else with each dish left out by chance.

        Runs in which some faults never happen find what runs with everything at once hide, and
        some mistakes need everything at once.
        """
        # Drawn also where the menu is ordered: what is drawn after it must not change by that.
        if random.random() < WHOLE_MENU_PROBABILITY:
            return chosen_from(self, self)
        # Swarm testing (Groce and others, 2012): each run leaves out some features of the test.
        left_out: dict[str, Any] = {
            entry.name: 0.0
            for entry in fields(self)
            if entry.name.endswith("_rate") and random.random() < 0.5
        }
        network = self.network if random.random() < 0.5 else NetworkConditions()
        disk = self.disk if random.random() < 0.5 else DiskConditions()
        coordination = self.coordination if random.random() < 0.5 else CoordinationConditions()
        drawn = replace(self, network=network, disk=disk, coordination=coordination, **left_out)
        return chosen_from(self, drawn)


FULL_MENU = FaultMenu(
    crash_rate=0.5,
    kill_rate=0.3,
    pause_rate=0.3,
    partition_rate=0.3,
    one_way_partition_rate=0.2,
    swizzle_rate=0.1,
    reset_rate=1.0,
    half_open_rate=0.1,
    session_loss_rate=0.3,
    session_expiry_rate=0.1,
    zookeeper_restart_rate=0.1,
    zookeeper_lag_rate=0.3,
    coordination_step_rate=2.0,
    disk_stall_rate=0.1,
    disk_failure_rate=0.2,
    lying_sync_rate=0.5,
    clock_jump_rate=0.1,
    clock_drift_rate=0.3,
    network=ROUGH_NETWORK,
    disk=ROUGH_DISK,
    coordination=ROUGH_COORDINATION,
)
