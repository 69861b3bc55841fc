"""What stands across the border of two windows is found."""

from __future__ import annotations

import pytest
from tests.unit.geminga_cli.bookie_admin.test_journal_dump import Bytes

from geminga_cli.bookie_admin import scanning
from geminga_cli.bookie_admin.scanning import find_ahead, only_zeros


@pytest.mark.parametrize("place", range(20))
def test_a_header_is_found_wherever_it_is(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "WINDOW_BYTES", 8)
    content = b"." * place + b"HEAD" + b"." * 5
    for start in range(place + 1):
        assert find_ahead(Bytes(content), start, lambda b: b.find(b"HEAD"), 4) == place
    assert find_ahead(Bytes(content), place + 1, lambda b: b.find(b"HEAD"), 4) is None


def test_zeros_are_told_from_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "WINDOW_BYTES", 8)
    assert only_zeros(Bytes(b"x" + bytes(20)), 1)
    assert not only_zeros(Bytes(bytes(20) + b"x"), 0)
    assert only_zeros(Bytes(b""), 0)
