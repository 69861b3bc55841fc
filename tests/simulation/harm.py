"""What a story draws beside its menu: disks that fail, and brokers that give up soon."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from geminga_ledger import LedgerConfig
from geminga_scenarios.cluster import IMPATIENT, PATIENT
from geminga_simulation.fault_menu import FAILING_DISK, UNREADABLE_DISK, FaultMenu

# In a quarter of the seeds reads fail, so that who reads from bookies (to load a topic, to catch
# up, to recover a ledger) meets it at every step; in a fifth, writes do.
UNREADABLE, FAILING = 0.25, 0.2


def with_bad_disks(menu: FaultMenu, random: Random) -> FaultMenu:
    """The menu, in some seeds with worse disks than any menu has."""
    number = random.random()
    if number < UNREADABLE:
        return replace(menu, disk=UNREADABLE_DISK)
    return replace(menu, disk=FAILING_DISK) if number < UNREADABLE + FAILING else menu


def patience(menu: FaultMenu, random: Random) -> LedgerConfig:
    """How long brokers wait for bookies and ZooKeeper. Patient ones never notice what is over soon,
    so that what they do when they give up is hardly ever done; least of all where it is reads that
    fail, of which each is tried again for half a minute."""
    if menu.disk is UNREADABLE_DISK:
        return random.choice((PATIENT, IMPATIENT, IMPATIENT))
    return random.choice((PATIENT, PATIENT, IMPATIENT))
