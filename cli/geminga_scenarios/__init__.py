"""Scenarios on a simulated cluster: bookies, brokers, ZooKeeper and clients in one thread.

``geminga simulate`` runs a user's scenario from seeds; the project's own stories run on the same
cluster and by the same code. A scenario imports from here what it works with, and its checks.

``simulated_cluster``  what a scenario may do with its cluster
``cluster``            a cluster's brokers and proxies on simulated hosts; ``storage`` its bookies
``sizes``              how large caches, queues and buffers are: the seed draws it
``scenario``           runs a user's file from one seed
``seed_run``           runs one seed of any story, and describes the result
``campaign``           runs many seeds in several processes
``shrinking``          finds the shortest run that still fails
``console``            prints all this for people
``verdicts``           what fails a run though the story itself did not notice

A run is a function of its seed: nothing here may ask the system for the time, for randomness, for a
file or for a socket, except what runs and prints (``campaign``, ``console``, ``seed_run``).
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
