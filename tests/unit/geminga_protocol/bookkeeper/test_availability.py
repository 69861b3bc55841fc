"""Lists of entries come back, take little room, and are laid out as the original lays them out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.bookkeeper.availability import (
    GROUP_BYTES,
    HEADER_BYTES,
    Run,
    decode_availability,
    encode_availability,
    join_runs,
    runs_of,
)
from geminga_protocol.errors import WireError

# What a bookie of the original answered for entries 3 to 7.
ONE_RUN = (
    "0000000000000001"
    + "00" * 56
    + "0000000000000003"
    + "0000000000000003"
    + "00000005"
    + "00000000"
)


def test_one_run_is_the_bytes_of_the_original() -> None:
    assert encode_availability([Run(3, 7)]).hex() == ONE_RUN


@given(st.sets(st.integers(0, 300)))
def test_any_ids_come_back(entry_ids: set[int]) -> None:
    runs = runs_of(sorted(entry_ids))
    assert decode_availability(encode_availability(runs)) == runs
    assert [each for run in runs for each in range(run.first, run.last + 1)] == sorted(entry_ids)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=12))
def test_joined_runs_are_what_their_ids_are(spans: list[tuple[int, int]]) -> None:
    runs = [Run(first, first + more) for first, more in spans]
    ids = {each for run in runs for each in range(run.first, run.last + 1)}
    assert join_runs(runs) == runs_of(sorted(ids))


def test_a_striped_ledger_takes_no_more_room_than_a_whole_one() -> None:
    striped = runs_of(number for number in range(30_000) if number % 3)
    assert len(encode_availability(striped)) == HEADER_BYTES + GROUP_BYTES


def test_a_run_longer_than_the_layout_can_say_comes_in_pieces() -> None:
    runs = [Run(0, 2**31 + 5)]
    assert join_runs(decode_availability(encode_availability(runs))) == runs
    far = [Run(0, 0), Run(2**40, 2**40), Run(2**62, 2**62)]
    assert decode_availability(encode_availability(far)) == far


@pytest.mark.parametrize(
    "content", [b"", bytes(63), bytes(65), bytes.fromhex(ONE_RUN)[:-1], b"\0\0\0\1" + bytes(60)]
)
def test_what_is_laid_out_otherwise_is_a_wire_error(content: bytes) -> None:
    with pytest.raises(WireError):
        decode_availability(content)
