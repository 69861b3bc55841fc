"""The verdict on all copies of a ledger: counts for each bookie, and what is wrong. Pure.

In an open ledger, less is certain. A writer's entry is confirmed once an ack quorum of bookies has
it, and the other bookies may never get it: a missing copy is wrong only where fewer have it. Beyond
what is known to be confirmed, a missing copy is never wrong: the writer may have stopped before any
other bookie got the entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from geminga_autorecovery.decisions.findings import Flaw
from geminga_autorecovery.replication.copies import Copy
from geminga_cli.bookie_admin.extent import Extent
from geminga_cli.display.text import count_words, ranges_words, table
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata, LedgerState

# The state of a copy: its flaw, or None where it is good.
State = Flaw | None
STATES: tuple[State, ...] = (None, *Flaw)


def wanted_copies(
    metadata: LedgerMetadata, quorum: Quorum, entry_ids: Iterable[int]
) -> Iterator[tuple[str, int]]:
    """Yield ``(bookie id, entry id)`` for every copy that these entries should have."""
    # ``ensemble_of`` again for each entry: an ensemble change may lie between any two of them.
    for entry_id in entry_ids:
        ensemble = metadata.ensemble_of(entry_id)
        for place in quorum.write_set(entry_id):
            yield ensemble[place], entry_id


@dataclass(frozen=True, slots=True)
class Fault:
    """What some copies on one bookie have in common."""

    bookie_id: str
    flaw: Flaw
    # False where an open ledger need not have the copies.
    is_wrong: bool


@dataclass(slots=True)
class LedgerVerdict:
    """The verdict, to which ``add`` adds some whole entries at a time, in their order."""

    ledger_id: int
    metadata: LedgerMetadata
    extent: Extent
    copies: int = 0
    wrong_copies: int = 0
    # By bookie: how many copies are in each state.
    counts: dict[str, Counter[State]] = field(default_factory=dict[str, "Counter[State]"])
    # Both have the same keys, in the order in which the faults were first seen.
    #
    # The entries of each fault, and the reason of its first copy.
    faults: dict[Fault, list[int]] = field(default_factory=dict[Fault, list[int]])
    reasons: dict[Fault, str] = field(default_factory=dict[Fault, str])

    @property
    def is_sound(self) -> bool:
        """Whether no copy is wrong, and every bookie told which entries it has."""
        return not self.wrong_copies and not self.extent.unheard

    def add(self, wanted: Sequence[tuple[str, int]], copies: Sequence[Copy]) -> None:
        """Judge these copies; they are all copies of their entries."""
        # Counted before any copy is judged: whether a missing copy is wrong depends on the other
        # copies of its entry.
        #
        # By entry: how many of its copies are good.
        good = Counter(
            entry_id
            for (_, entry_id), copy in zip(wanted, copies, strict=True)
            if copy.flaw is None
        )
        for (bookie_id, entry_id), copy in zip(wanted, copies, strict=True):
            self.copies += 1
            self.counts.setdefault(bookie_id, Counter())[copy.flaw] += 1
            if copy.flaw is None:
                continue
            #                                  absent                          damaged, unreadable
            #     closed ledger                wrong                           wrong
            #     open, known confirmed        wrong if fewer than the ack     wrong
            #                                  quorum have the entry
            #     open, beyond confirmed       in order                        wrong
            #
            # In an open ledger, a missing copy may be in order.
            # A closed ledger has no such excuse: recovery and re-replication have to bring every
            # entry to its whole write set.
            may_lack = self.metadata.state is not LedgerState.CLOSED and (
                entry_id > self.extent.confirmed or good[entry_id] >= self.metadata.ack_quorum
            )
            # A copy that is there and damaged is always wrong, also in an open ledger.
            is_wrong = not (copy.flaw is Flaw.ABSENT and may_lack)
            # Faults of one kind on one bookie become one line, with their entries as ranges.
            fault = Fault(bookie_id, copy.flaw, is_wrong)
            self.faults.setdefault(fault, []).append(entry_id)
            self.reasons.setdefault(fault, copy.why)
            self.wrong_copies += is_wrong

    def lines(self) -> Iterator[str]:
        """The verdict for people."""
        yield from self._headings()
        if self.counts:
            yield from table(
                # A column for each state, also where it is all zeros: that is the good news.
                ["bookie", *map(_word, STATES)],
                ([name, *map(self.counts[name].__getitem__, STATES)] for name in self.counts),
            )
        for fault, entry_ids in self.faults.items():
            which = "entry" if len(entry_ids) == 1 else "entries"
            usual = "" if fault.is_wrong else "; an open ledger may lack that"
            yield (
                f"{fault.bookie_id}: {which} {ranges_words(entry_ids)} {fault.flaw.value}: "
                f"{self.reasons[fault]}{usual}"
            )
        # On these bookies, a dump of entry logs finds the place in a file.
        damaged = sorted(
            {
                fault.bookie_id
                for fault in self.faults
                if fault.flaw in (Flaw.DAMAGED, Flaw.UNREADABLE)
            }
        )
        if damaged:
            yield (
                f"`geminga bookie-admin dump-entry-log --ledger {self.ledger_id} "
                f"DIRECTORY/*.entries` on {', '.join(damaged)} finds file and place"
            )
        for bookie_id, why in self.extent.unheard.items():
            yield f"{bookie_id}: it does not say which entries it has: {why}"
        if self.wrong_copies:
            # The verdict comes last, where a person looks first.
            yield f"{self.wrong_copies} of {self.copies} copies are not as they should be"
        elif self.is_sound:
            yield f"all {self.copies} copies are right" if not self.faults else "nothing is wrong"
        else:
            yield f"nothing is wrong with the {self.copies} copies that are known of"

    def _headings(self) -> Iterator[str]:
        extent = self.extent
        state = self.metadata.state.name.lower().replace("_", " ")
        # Entry ids begin at 0, so ``confirmed`` + 1 is a number of entries, 0 where it is -1.
        count = extent.confirmed + 1 + sum(run.last - run.first + 1 for run in extent.beyond)
        entries = count_words(count, "entry", "entries")
        copies = count_words(self.metadata.write_quorum, "bookie")
        yield f"ledger {self.ledger_id}: {state}, {entries}, each on {copies}"
        if extent.beyond:
            known = (
                "none of them is" if extent.confirmed < 0 else f"up to {extent.confirmed} they are"
            )
            runs = ", ".join(
                str(run.first) if run.first == run.last else f"{run.first}-{run.last}"
                for run in extent.beyond
            )
            yield f"{known} known to be confirmed; {runs} are stored beyond that"

    def record(self) -> dict[str, object]:
        """The verdict for programs."""
        return {
            "ledger": self.ledger_id,
            "state": self.metadata.state.name,
            "lastEntry": self.extent.last,
            "lastConfirmed": self.extent.confirmed,
            "copies": self.copies,
            "wrongCopies": self.wrong_copies,
            "bookies": {
                name: {_word(each): counts[each] for each in STATES}
                for name, counts in self.counts.items()
            },
            "faults": [
                {
                    "bookie": fault.bookie_id,
                    "state": fault.flaw.value,
                    "isWrong": fault.is_wrong,
                    "entries": entry_ids,
                    "reason": self.reasons[fault],
                }
                for fault, entry_ids in self.faults.items()
            ],
            "unheard": dict(self.extent.unheard),
        }


def _word(state: State) -> str:
    return "ok" if state is None else state.value
