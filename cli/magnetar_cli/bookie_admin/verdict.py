"""What the copies of a ledger come to: counts for each bookie, and where something is wrong. Pure.

Of an open ledger less is certain: a writer is told of an entry once an ack quorum has it, and the
others may never get it. There a missing copy is only wrong where fewer have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from magnetar_autorecovery.copies import Copy
from magnetar_autorecovery.findings import Flaw
from magnetar_cli.bookie_admin.text import count_words, ranges_words, table
from magnetar_ledger.quorum import Quorum
from magnetar_protocol.records.ledger_metadata import LedgerMetadata, LedgerState

# What a copy can be; None where nothing is wrong with it.
State = Flaw | None
STATES: tuple[State, ...] = (None, *Flaw)


def wanted_copies(
    metadata: LedgerMetadata, quorum: Quorum, first: int, last: int
) -> list[tuple[str, int]]:
    """Every copy that there should be of entries ``first`` to ``last``: bookie id, entry id."""
    return [
        (ensemble[place], entry_id)
        for entry_id in range(first, last + 1)
        for ensemble in (metadata.ensemble_of(entry_id),)
        for place in quorum.write_set(entry_id)
    ]


@dataclass(slots=True)
class LedgerVerdict:
    """Filled by ``add``, some whole entries at a time, in order."""

    ledger_id: int
    metadata: LedgerMetadata
    last_entry: int
    copies: int = 0
    wrong_copies: int = 0
    counts: dict[str, Counter[State]] = field(default_factory=dict[str, "Counter[State]"])
    # Entries by bookie and state, those that are ok left out; and an example of why.
    faults: dict[tuple[str, Flaw], list[int]] = field(
        default_factory=dict[tuple[str, Flaw], list[int]]
    )
    reasons: dict[tuple[str, Flaw], str] = field(default_factory=dict[tuple[str, Flaw], str])

    @property
    def is_sound(self) -> bool:
        """Whether every copy is as it should be."""
        return not self.wrong_copies

    @property
    def is_open(self) -> bool:
        """Whether the ledger may still grow."""
        return self.metadata.state is not LedgerState.CLOSED

    def add(self, wanted: Sequence[tuple[str, int]], copies: Sequence[Copy]) -> None:
        """What was found of these copies."""
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
            fault = bookie_id, copy.flaw
            self.faults.setdefault(fault, []).append(entry_id)
            self.reasons.setdefault(fault, copy.why)
            is_usual = (
                self.is_open
                and copy.flaw is Flaw.ABSENT
                and good[entry_id] >= self.metadata.ack_quorum
            )
            self.wrong_copies += not is_usual

    def lines(self) -> Iterator[str]:
        """For people."""
        state = self.metadata.state.name.lower().replace("_", " ")
        entries = count_words(self.last_entry + 1, "entry", "entries")
        copies = count_words(self.metadata.write_quorum, "bookie")
        yield f"ledger {self.ledger_id}: {state}, {entries}, each on {copies}"
        if self.counts:
            yield from table(
                ["bookie", *map(_word, STATES)],
                ([name, *map(self.counts[name].__getitem__, STATES)] for name in self.counts),
            )
        for (bookie_id, fault), entry_ids in self.faults.items():
            which = "entry" if len(entry_ids) == 1 else "entries"
            reason = self.reasons[bookie_id, fault]
            yield f"{bookie_id}: {which} {ranges_words(entry_ids)} {fault.value}: {reason}"
        if self.is_sound:
            yield f"all {self.copies} copies are right" if not self.faults else "nothing is wrong"
        else:
            yield f"{self.wrong_copies} of {self.copies} copies are not as they should be"

    def record(self) -> dict[str, object]:
        """For programs."""
        return {
            "ledger": self.ledger_id,
            "state": self.metadata.state.name,
            "lastEntry": self.last_entry,
            "copies": self.copies,
            "wrongCopies": self.wrong_copies,
            "bookies": {
                name: {_word(each): counts[each] for each in STATES}
                for name, counts in self.counts.items()
            },
            "faults": [
                {
                    "bookie": bookie_id,
                    "state": fault.value,
                    "entries": entry_ids,
                    "reason": self.reasons[bookie_id, fault],
                }
                for (bookie_id, fault), entry_ids in self.faults.items()
            ],
        }


def _word(state: State) -> str:
    return "ok" if state is None else state.value
