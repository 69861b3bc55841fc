"""Proves how answers are shown to people."""

from __future__ import annotations

import pytest

from geminga_cli.admin.text import show_json, show_policy, show_value

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
