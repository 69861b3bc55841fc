"""Proves that properties come out as they went in."""

from __future__ import annotations

from geminga.properties import key_values, properties_of


def test_properties_come_out_as_they_went_in() -> None:
    assert properties_of(key_values({"a": "1", "b": ""})) == {"a": "1", "b": ""}
    assert key_values(None) == key_values({}) == []
