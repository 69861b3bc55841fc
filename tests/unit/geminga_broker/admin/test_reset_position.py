"""Proves which entry, and which messages of it, a message named in REST stands for."""

from __future__ import annotations

import pytest

from geminga_broker.admin.reset_position import ResetPosition
from geminga_broker.managed_ledger.positions import Position
from geminga_server.rest.errors import RestError


@pytest.mark.parametrize(
    ("batch_index", "is_excluded", "batch_size", "entry_id", "remaining"),
    [
        (-1, False, 0, 7, ()),
        (-1, True, 0, 8, ()),
        (2, True, 0, 8, ()),
        (-1, False, 5, 7, ()),
        (-1, True, 5, 8, ()),
        (0, False, 5, 7, ()),
        (0, True, 5, 7, (0b11110,)),
        (2, False, 5, 7, (0b11100,)),
        (2, True, 5, 7, (0b11000,)),
        (4, True, 5, 8, ()),
        (9, False, 5, 8, ()),
        (69, False, 70, 7, (0, 0b100000)),
    ],
)
def test_reading_begins_with_the_message_or_behind_it(
    batch_index: int,
    is_excluded: bool,  # noqa: FBT001 (a parameter of the table)
    batch_size: int,
    entry_id: int,
    remaining: tuple[int, ...],
) -> None:
    target = ResetPosition(Position(3, 7), batch_index, is_excluded)
    assert target.first_and_remaining(batch_size) == (Position(3, entry_id), remaining)


def test_official_clients_documents_are_understood() -> None:
    body: dict[str, object] = {
        "ledgerId": "3",
        "entryId": 7,
        "partitionIndex": -1,
        "excluded": True,
    }
    assert ResetPosition.parse(body) == ResetPosition(Position(3, 7), -1, is_excluded=True)
    assert ResetPosition.parse({}) == ResetPosition(Position(-1, -1))


@pytest.mark.parametrize("wrong", [-2, 2**63, 1.5, True, "x", "--5", "", "9" * 5000, None, [1]])
def test_what_is_no_id_is_refused(wrong: object) -> None:
    with pytest.raises(RestError, match="ledgerId should be a whole number"):
        ResetPosition.parse({"ledgerId": wrong, "entryId": 1})
