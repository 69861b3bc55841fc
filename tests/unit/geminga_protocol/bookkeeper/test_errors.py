"""Every return code of a bookie has its error, and the error knows its code."""

from __future__ import annotations

import pytest

from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.bookkeeper.errors import (
    BookieRefusal,
    EntryDigestMismatch,
    LedgerFenced,
    UnknownRefusal,
    refusal_of,
)
from geminga_protocol.errors import WireError


@pytest.mark.parametrize("code", [code for code in ReturnCode if code != ReturnCode.EOK])
def test_each_return_code_has_its_own_error(code: ReturnCode) -> None:
    refusal = refusal_of(code, 7, 41)
    assert type(refusal) is not BookieRefusal
    assert not isinstance(refusal, UnknownRefusal)
    assert refusal.return_code == code
    assert (refusal.ledger_id, refusal.entry_id) == (7, 41)
    assert "ledger 7, entry 41" in str(refusal)


def test_a_return_code_that_v2_does_not_have_is_told_as_a_number() -> None:
    refusal = refusal_of(999, 7)
    assert isinstance(refusal, UnknownRefusal)
    assert refusal.number == 999
    assert "unknown return code 999" in str(refusal)


def test_success_is_no_refusal() -> None:
    with pytest.raises(AssertionError):
        refusal_of(ReturnCode.EOK, 7)


def test_a_fenced_writer_is_told_not_to_retry() -> None:
    assert not LedgerFenced.retry


def test_a_digest_mismatch_is_a_fault_of_the_bytes() -> None:
    assert issubclass(EntryDigestMismatch, WireError)
