"""The ledger layout is the one that BookKeeper's own client expects by default."""

from __future__ import annotations

import pytest

from geminga_protocol.records.errors import MalformedRecord, UnsupportedRecord
from geminga_protocol.records.ledgers.layout import LedgerLayout

DEFAULT = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"


def test_the_default_is_the_hierarchical_layout() -> None:
    assert LedgerLayout().encode() == DEFAULT
    assert LedgerLayout.decode(DEFAULT) == LedgerLayout()


def test_another_factory_comes_back() -> None:
    layout = LedgerLayout("org.example.Other", 7)
    assert LedgerLayout.decode(layout.encode()) == layout


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(UnsupportedRecord, match="format version 3"):
        LedgerLayout.decode(b"3\norg.example.Other:1")


@pytest.mark.parametrize("value", [b"", b"2", b"2\nfactory", b"2\na:b", b"x\na:1", b"\xff"])
def test_what_is_no_layout_is_refused(value: bytes) -> None:
    with pytest.raises(MalformedRecord):
        LedgerLayout.decode(value)
