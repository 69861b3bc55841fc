"""Bit sets are packed as Java packs them: compared with setting one bit after the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.records.encodings.bit_sets import bits_of_words, words_of_bits


def words_one_by_one(members: set[int]) -> tuple[int, ...]:
    words = [0] * (max(members, default=-1) // 64 + 1)
    for member in members:
        words[member // 64] |= 1 << member % 64
    return tuple(word - (1 << 64) if word >> 63 else word for word in words)


@given(st.sets(st.integers(0, 400)))
def test_a_set_packs_like_one_built_bit_by_bit(members: set[int]) -> None:
    bits = sum(1 << member for member in members)
    assert words_of_bits(bits) == words_one_by_one(members)
    assert bits_of_words(words_of_bits(bits)) == bits


def test_zero_words_at_the_end_add_nothing() -> None:
    assert bits_of_words((438, 0, 0)) == 438
    assert words_of_bits(0) == ()
    assert bits_of_words(()) == 0


def test_the_sign_is_the_highest_bit() -> None:
    assert bits_of_words((-1,)) == 2**64 - 1
    assert words_of_bits(1 << 63) == (-(2**63),)


def test_a_word_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(OverflowError):
        bits_of_words((2**63,))
