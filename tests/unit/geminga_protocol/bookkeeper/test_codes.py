"""The numbers of V2 cost no more than plain numbers where they are used for every message."""

from __future__ import annotations

from geminga_protocol.bookkeeper.codes import Flag


def test_joined_flags_are_a_plain_number() -> None:
    joined = Flag.FENCING | Flag.HIGH_PRIORITY
    assert type(joined) is int
    assert joined == 5
    assert joined & Flag.FENCING
    assert not joined & Flag.RECOVERY_ADD
