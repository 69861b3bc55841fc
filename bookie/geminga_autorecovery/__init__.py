"""Auto-recovery: finds ledgers that lack copies, and copies them back to their full number.

``AutoRecovery`` is the daemon, ``LedgerRepair`` checks and repairs one ledger, ``decommission`` and
``recover`` take a bookie out of service. Records, rules and names are BookKeeper's, so that Java
daemons and tools work beside it.
"""

from geminga_autorecovery.autorecovery import AutoRecovery
from geminga_autorecovery.bookie_recovery import recover
from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_autorecovery.decommission import Progress, decommission
from geminga_autorecovery.errors import (
    AutoRecoveryError,
    BookieStillThere,
    BookieUnknown,
    DecommissionStalled,
    RecoveryDisabled,
)
from geminga_autorecovery.repair import LedgerRepair, Repaired, Terms

__all__ = [
    "AutoRecovery",
    "AutoRecoveryConfig",
    "AutoRecoveryError",
    "BookieStillThere",
    "BookieUnknown",
    "DecommissionStalled",
    "LedgerRepair",
    "Progress",
    "RecoveryDisabled",
    "Repaired",
    "Terms",
    "decommission",
    "recover",
]
