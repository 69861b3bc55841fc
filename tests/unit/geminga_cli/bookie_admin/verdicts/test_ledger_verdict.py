"""Copies come to a verdict: what is wrong is named, what an open ledger may lack is not wrong."""

from __future__ import annotations

from dataclasses import replace

from geminga_autorecovery.decisions.findings import Flaw
from geminga_autorecovery.replication.copies import Copy
from geminga_cli.bookie_admin.extent import Extent
from geminga_cli.bookie_admin.verdicts.ledger_verdict import LedgerVerdict, wanted_copies
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.bookkeeper.availability import Run
from geminga_protocol.records.ledgers.ledger_metadata import Fragment, LedgerMetadata

OPEN = LedgerMetadata(
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=1,
    fragments=(Fragment(0, ("a", "b", "c")), Fragment(2, ("a", "d", "c"))),
)
CLOSED = OPEN.closed(3, 40)
QUORUM = Quorum(3, 2, 1)
WHOLE = Extent(3)
GOOD, MISSING = Copy(b"x"), Copy(flaw=Flaw.ABSENT, why="none")


def verdict_of(
    metadata: LedgerMetadata, faults: dict[tuple[str, int], Copy], extent: Extent = WHOLE
) -> LedgerVerdict:
    wanted = list(wanted_copies(metadata, QUORUM, range(4)))
    verdict = LedgerVerdict(9, metadata, extent)
    for start in (0, 4):  # two entries at a time
        some = wanted[start : start + 4]
        verdict.add(some, [faults.get(each, GOOD) for each in some])
    return verdict


def test_each_entry_is_wanted_from_its_write_set_in_its_fragment() -> None:
    wanted = list(wanted_copies(CLOSED, QUORUM, range(4)))
    assert wanted == [
        ("a", 0), ("b", 0), ("b", 1), ("c", 1), ("c", 2), ("a", 2), ("a", 3), ("d", 3),
    ]  # fmt: skip


def test_a_sound_ledger_is_said_to_be() -> None:
    verdict = verdict_of(CLOSED, {})
    assert verdict.is_sound
    lines = list(verdict.lines())
    assert lines[0] == "ledger 9: closed, 4 entries, each on 2 bookies"
    assert lines[-1] == "all 8 copies are right"


def test_faults_name_bookie_entries_state_and_reason() -> None:
    corrupt = Copy(flaw=Flaw.DAMAGED, why="digest")
    verdict = verdict_of(CLOSED, {("b", 0): corrupt, ("b", 1): corrupt, ("d", 3): MISSING})
    assert (verdict.is_sound, verdict.wrong_copies) == (False, 3)
    lines = list(verdict.lines())
    assert "b: entries 0-1 corrupt: digest" in lines
    assert "d: entry 3 missing: none" in lines
    assert lines[-2] == (
        "`geminga bookie-admin dump-entry-log --ledger 9 DIRECTORY/*.entries` on b finds file and "
        "place"
    )
    assert lines[-1] == "3 of 8 copies are not as they should be"
    record = verdict.record()
    assert record["faults"] == [
        {
            "bookie": "b",
            "state": "corrupt",
            "isWrong": True,
            "entries": [0, 1],
            "reason": "digest",
        },
        {"bookie": "d", "state": "missing", "isWrong": True, "entries": [3], "reason": "none"},
    ]


def test_an_open_ledger_may_lack_what_its_ack_quorum_has() -> None:
    assert verdict_of(OPEN, {("d", 3): MISSING}).is_sound
    assert not verdict_of(OPEN, {("d", 3): MISSING, ("a", 3): MISSING}).is_sound
    stricter = replace(OPEN, ack_quorum=2)
    assert not verdict_of(stricter, {("d", 3): MISSING}).is_sound


def test_beyond_what_is_confirmed_copies_may_lack_but_not_be_damaged() -> None:
    beyond = Extent(1, (Run(2, 3),))
    lacking = {("d", 3): MISSING, ("a", 3): MISSING}
    verdict = verdict_of(OPEN, lacking, beyond)
    assert verdict.is_sound
    lines = list(verdict.lines())
    assert lines[:2] == [
        "ledger 9: open, 4 entries, each on 2 bookies",
        "up to 1 they are known to be confirmed; 2-3 are stored beyond that",
    ]
    assert "d: entry 3 missing: none; an open ledger may lack that" in lines
    assert lines[-1] == "nothing is wrong"
    damaged = Copy(flaw=Flaw.DAMAGED, why="digest")
    assert not verdict_of(OPEN, {("d", 3): damaged}, beyond).is_sound
    nothing_known = verdict_of(OPEN, {}, Extent(-1, (Run(0, 1), Run(3, 3))))
    assert list(nothing_known.lines())[1] == (
        "none of them is known to be confirmed; 0-1, 3 are stored beyond that"
    )
    assert nothing_known.record()["lastEntry"] == 3
    assert nothing_known.record()["lastConfirmed"] == -1


def test_where_a_bookie_does_not_say_what_it_has_the_ledger_is_not_sound() -> None:
    verdict = verdict_of(OPEN, {}, Extent(3, unheard={"d": "no answer"}))
    assert not verdict.is_sound
    assert list(verdict.lines())[-2:] == [
        "d: it does not say which entries it has: no answer",
        "nothing is wrong with the 8 copies that are known of",
    ]


def test_a_ledger_without_entries_is_sound() -> None:
    verdict = LedgerVerdict(9, OPEN, Extent(-1))
    assert verdict.is_sound
    assert next(verdict.lines()) == "ledger 9: open, 0 entries, each on 2 bookies"
