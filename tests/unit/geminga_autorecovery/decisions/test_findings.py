"""What a bookie did not give decides what is said of it."""

from __future__ import annotations

from geminga_autorecovery.decisions.findings import FaultyFragment, Finding, Flaw, finding_of
from geminga_autorecovery.decisions.fragments import LedgerFragment


def test_a_bookie_without_flaws_is_well() -> None:
    assert finding_of([]) is None


def test_a_bookie_that_answers_lacks_what_is_absent_or_damaged() -> None:
    assert finding_of([Flaw.ABSENT]) is Finding.LACKING
    assert finding_of([Flaw.DAMAGED, Flaw.ABSENT]) is Finding.LACKING
    assert finding_of([Flaw.UNREADABLE]) is Finding.LACKING


def test_a_bookie_that_left_anything_unanswered_is_silent() -> None:
    assert finding_of([Flaw.ABSENT, Flaw.UNHEARD]) is Finding.SILENT


def test_a_fault_names_its_bookies() -> None:
    fragment = LedgerFragment(0, 9, ("b0", "b1", "b2"))
    fault = FaultyFragment(fragment, {0: Finding.GONE, 2: Finding.LACKING})
    assert fault.bookies == {"b0", "b2"}
    assert fault.words() == (
        "in the fragment that begins with entry 0, b0 is lost, b2 lacks copies"
    )
