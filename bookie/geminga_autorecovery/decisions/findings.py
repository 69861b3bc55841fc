"""What a check finds wrong with the bookies of a fragment.

Pure; BookKeeper's rules (``LedgerChecker``): a bookie that is not registered is not asked, any
other must give a good copy of every entry that is read from it. Unlike upstream we distinguish why
it did not, since a bookie that answers can be given back what it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from geminga_autorecovery.decisions.fragments import LedgerFragment


class Flaw(Enum):
    """Why a bookie gave no good copy of an entry; the values are the tools' words for it."""

    ABSENT = "missing"  # it says that it has none
    DAMAGED = "corrupt"  # what it gave does not fit its digest
    UNREADABLE = "unreadable"  # it has one and cannot read it: a damaged file, a failing disk
    UNHEARD = "unreachable"  # it could not be asked, did not answer, or refused


class Finding(Enum):
    """What is wrong with a bookie's part of a fragment."""

    GONE = "gone"  # the bookie is not registered
    LACKING = "lacking"  # it answers, and an entry is absent, damaged or unreadable
    SILENT = "silent"  # it is registered, but did not answer


# As operators read them, after the bookie's id.
_WORDS = {
    Finding.GONE: "is lost",
    Finding.LACKING: "lacks copies",
    Finding.SILENT: "did not answer",
}


@dataclass(frozen=True, slots=True)
class FaultyFragment:
    """A fragment in which bookies are missing or lack something."""

    fragment: LedgerFragment
    # By the bookie's index in the ensemble.
    findings: Mapping[int, Finding]

    @property
    def bookies(self) -> frozenset[str]:
        """The ids of those bookies."""
        return frozenset(self.fragment.ensemble[index] for index in self.findings)

    def words(self) -> str:
        """What is wrong with which bookie, in a line."""
        fragment = self.fragment
        kind = "open fragment" if fragment.is_open else "fragment"
        flaws = (
            f"{fragment.ensemble[index]} {_WORDS[finding]}"
            # By place in the ensemble, as metadata lists them.
            for index, finding in sorted(self.findings.items())
        )
        return f"in the {kind} that begins with entry {fragment.first_entry}, {', '.join(flaws)}"


def finding_of(flaws: Iterable[Flaw]) -> Finding | None:
    """What the flaws of one bookie's copies mean together; None where there are none."""
    seen = set(flaws)
    # A bookie that did not answer once may have the rest as well: it is not repaired in place.
    if Flaw.UNHEARD in seen:
        return Finding.SILENT
    return Finding.LACKING if seen else None
