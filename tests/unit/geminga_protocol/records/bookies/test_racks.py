"""Racks are kept by group and bookie, with whatever else is said of a bookie."""

from __future__ import annotations

import pytest

from geminga_protocol.records.bookies.racks import BookieRack, BookieRacks
from geminga_protocol.records.errors import MalformedRecord


def test_racks_come_back() -> None:
    value = b'{"default":{"b1:3181":{"rack":"/r1","hostname":"b1","new":1}},"empty":{}}'
    racks = BookieRacks.decode(value)
    assert racks.groups["default"]["b1:3181"] == BookieRack(
        rack="/r1", hostname="b1", other={"new": 1}
    )
    assert racks.encode() == value


@pytest.mark.parametrize("value", [b"[]", b'{"default":[]}', b'{"default":{"b1":"/r1"}}'])
def test_what_is_no_racks_is_refused(value: bytes) -> None:
    with pytest.raises(MalformedRecord):
        BookieRacks.decode(value)
