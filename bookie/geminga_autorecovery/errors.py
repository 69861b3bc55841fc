"""The errors of auto-recovery.

GemingaError
└── AutoRecoveryError
    ├── CopyRefused           a bookie did not take the copies it was sent
    ├── EntriesUnreadable     of some entries no good copy could be had from any bookie
    ├── NowhereToCopy         no bookie is left that could take a fragment's copies
    ├── FragmentChanged       the fragment was changed meanwhile: check it again
    ├── ClaimLost             the ledger's lock is gone, and another may work on it
    ├── RecoveryDisabled      an operator has switched auto-recovery off
    ├── BookieStillThere      a bookie to be decommissioned is registered
    ├── BookieUnknown         there never was a bookie of that id
    ├── DecommissionStalled   no ledger has been moved for too long
    └── NoZooKeeper           there is no session with ZooKeeper now
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from geminga_runtime.errors import GemingaError


class AutoRecoveryError(GemingaError):
    """Lost copies could not be made again, or not now."""

    code = "PersistenceError"


# While a ledger is repaired. None of these ends the worker: it keeps the ledger locked for a while,
# and its mark stays.


class CopyRefused(AutoRecoveryError):
    """A bookie did not store copies: it refused them, went away, or gave no answer."""

    retry = True

    def __init__(self, ledger_id: int, bookie_id: str, why: str) -> None:
        super().__init__(f"bookie {bookie_id} did not take copies of ledger {ledger_id}: {why}")
        self.ledger_id = ledger_id
        self.bookie_id = bookie_id
        self.why = why


class EntriesUnreadable(AutoRecoveryError):
    """No bookie gave a good copy of these entries; they come back with their bookies, or never."""

    retry = True

    def __init__(self, ledger_id: int, entry_ids: Sequence[int]) -> None:
        super().__init__(
            f"{len(entry_ids)} entries of ledger {ledger_id}, the first of them {entry_ids[0]}, "
            f"cannot be read from any bookie"
        )
        self.ledger_id = ledger_id
        self.entry_ids = tuple(entry_ids)


class NowhereToCopy(AutoRecoveryError):
    """Every bookie that takes entries holds the fragment already; add bookies."""

    retry = True

    def __init__(self, ledger_id: int, first_entry: int, lost: Sequence[str]) -> None:
        super().__init__(
            f"nothing can take the place of {', '.join(lost)} in the fragment of ledger "
            f"{ledger_id} that begins with entry {first_entry}: all writable bookies are in it"
        )
        self.ledger_id = ledger_id
        self.first_entry = first_entry
        self.lost = tuple(lost)


class FragmentChanged(AutoRecoveryError):
    """The fragment's ensemble is not what it was when the copying began."""

    retry = True

    def __init__(self, ledger_id: int, first_entry: int) -> None:
        super().__init__(
            f"the fragment of ledger {ledger_id} that begins with entry {first_entry} was changed "
            f"by another process"
        )
        self.ledger_id = ledger_id
        self.first_entry = first_entry


class ClaimLost(AutoRecoveryError):
    """The session that had locked the ledger is over; what was copied is not written down."""

    retry = True

    def __init__(self, ledger_id: int) -> None:
        super().__init__(
            f"ledger {ledger_id} is not locked any more: another process may work on it"
        )
        self.ledger_id = ledger_id


# Of tools that take a bookie out of service. What they had done before stays done.


class RecoveryDisabled(AutoRecoveryError):
    """Auto-recovery is switched off for the cluster; enable it first."""

    def __init__(self) -> None:
        super().__init__("auto-recovery is disabled; enable it first")


class BookieStillThere(AutoRecoveryError):
    """The bookie is registered; stop it for good before it is decommissioned."""

    def __init__(self, bookie_id: str) -> None:
        super().__init__(f"bookie {bookie_id} is running; stop it first, for good")
        self.bookie_id = bookie_id


class BookieUnknown(AutoRecoveryError):
    """No bookie of that id is registered, has a cookie, or is in a ledger: mistyped, or gone."""

    def __init__(self, bookie_id: str, known: Iterable[str]) -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(
            f"there is no bookie {bookie_id}: it is not registered, has no cookie, and no ledger "
            f"names it; there are: {names}"
        )
        self.bookie_id = bookie_id


class DecommissionStalled(AutoRecoveryError):
    """The replication workers have moved no ledger for a long time; their logs say why."""

    retry = True

    def __init__(self, bookie_id: str, ledgers_left: int, waited_s: float) -> None:
        super().__init__(
            f"{ledgers_left} ledgers are still on bookie {bookie_id}, and none was moved within "
            f"{waited_s:.0f} s; the logs of the replication workers say why"
        )
        self.bookie_id = bookie_id
        self.ledgers_left = ledgers_left
        self.waited_s = waited_s


class NoZooKeeper(AutoRecoveryError):
    """There is no session with ZooKeeper; it is being connected to again."""

    retry = True

    def __init__(self, state: str) -> None:
        super().__init__(f"the session with ZooKeeper is {state}; see that it runs and answers")
        self.state = state
