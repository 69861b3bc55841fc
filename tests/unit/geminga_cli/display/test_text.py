"""What people read is aligned, short, and harmless to their terminal."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_cli.display.text import (
    count_words,
    hex_lines,
    plain_text,
    ranges,
    ranges_words,
    show_json,
    show_policy,
    show_value,
    size_words,
    table,
)


def test_words_are_aligned_at_the_left_and_numbers_at_the_right() -> None:
    rows: list[list[object]] = [["b1", 5, "x"], ["bookie-2", 1000, None]]
    assert list(table(["name", "n", "why"], rows)) == [
        "name         n  why",
        "b1           5  x",
        "bookie-2  1000  -",
    ]


def test_a_cell_moves_no_cursor_and_columns_stay_aligned() -> None:
    assert list(table(["name", "n"], [["\x1b[2J", 1], ["b", 22]])) == [
        "name      n",
        "\\x1b[2J   1",
        "b        22",
    ]


def test_a_table_without_rows_is_its_headings() -> None:
    assert list(table(["a", "b"], [])) == ["a  b"]


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (75_677_839_360, "75.7 GB")],
)
def test_sizes(size_bytes: int, words: str) -> None:
    assert size_words(size_bytes) == words


@given(st.sets(st.integers(0, 30)))
def test_ranges_cover_exactly_the_numbers(numbers: set[int]) -> None:
    found = list(ranges(sorted(numbers)))
    assert [n for first, last in found for n in range(first, last + 1)] == sorted(numbers)
    assert all(end + 1 < start for (_, end), (start, _) in pairwise(found))


def test_ranges_and_counts_in_words() -> None:
    assert ranges_words([0, 1, 2, 7]) == "0-2, 7"
    assert count_words(1, "entry", "entries") == "1 entry"
    assert count_words(2, "entry", "entries") == "2 entries"
    assert count_words(0, "byte") == "0 bytes"


def test_bytes_in_hexadecimal_with_their_offsets() -> None:
    lines = list(hex_lines(b"hello\0world, hello\xff"))
    assert lines[0] == "00000000  68 65 6c 6c 6f 00 77 6f 72 6c 64 2c 20 68 65 6c  hello.world, hel"
    assert lines[1].startswith("00000010  6c 6f ff ")
    assert lines[1].endswith("  lo.")
    assert list(hex_lines(b"")) == []


def test_text_moves_no_cursor() -> None:
    assert plain_text("grün\x1b[2J\n\xff".encode("latin-1")) == "gr\\xfcn\\x1b[2J\\n\\xff"
    assert plain_text("grün".encode()) == "grün"


SHOWN = [
    (None, ""),
    ([], ""),
    ({}, ""),
    (True, "true"),
    ("ok", "ok"),
    (["b", "a"], "b\na"),
    ({"a": 1, "long": None}, "a     1\nlong  -"),
    ({"a": {"b": [1, 2]}, "c": []}, "a:\n  b:\n    1\n    2\nc  -"),
    ([{"a": 1, "b": "x"}, {"a": 22}], " a  b\n 1  x\n22  -"),
    ([{"a": {"b": 1}}], "- a:\n    b  1"),
    ({"\x9b2J": "a\nb"}, "\\x9b2J  a\\nb"),
    ([{"\x1b": "\r"}], "\\x1b\n\\r"),
    ("\x1b]0;", "\\x1b]0;"),
]


@pytest.mark.parametrize(("value", "text"), SHOWN)
def test_an_answer_is_shown(value: object, text: str) -> None:
    assert "\n".join(show_value(value)) == text


@pytest.mark.parametrize("nothing", [None, {}, []])
def test_a_policy_that_is_not_set_says_so(nothing: object) -> None:
    assert list(show_policy(nothing)) == ["not set"]


def test_a_policy_of_zero_is_one() -> None:
    assert list(show_policy(0)) == ["0"]


def test_programs_get_json() -> None:
    assert "".join(show_json({"a": None})) == '{  "a": null}'
    assert list(show_json("\x9b")) == ['"\\u009b"']
