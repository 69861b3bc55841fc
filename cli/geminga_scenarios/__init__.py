"""Scenarios on a simulated cluster: bookies, brokers, ZooKeeper and clients in one thread.

``geminga simulate`` runs a user's scenario from seeds; the project's own stories stand on the same
cluster and are run by the same code. A scenario imports from here what it is given, and checks.
"""

from geminga_scenarios.simulated_cluster import SimulatedCluster
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.fault_menu import FULL_MENU, FaultMenu
from geminga_simulation.histories.checkers import (
    NoLostAcknowledgement,
    check_nothing_invented,
    check_nothing_lost,
    check_order,
    check_prefix,
)

__all__ = [
    "FULL_MENU",
    "FaultMenu",
    "InvariantViolated",
    "NoLostAcknowledgement",
    "SimulatedCluster",
    "check_nothing_invented",
    "check_nothing_lost",
    "check_order",
    "check_prefix",
]
