"""Answers as people read them: lists a line each, records as ``name  value``. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from geminga_cli.bookie_admin.text import table

NOT_SET = "not set"
INDENT = "  "


def show_value(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Any answer; None is one that has nothing to say."""
    if value is None:
        return
    if isinstance(value, Mapping):
        yield from _record(value)
    elif isinstance(value, list):
        yield from _list(value)
    else:
        yield _word(value)


def show_policy(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """A policy, which may not be set."""
    yield from show_value(NOT_SET if value in (None, {}, []) else value)


def show_json(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """As programs read it."""
    yield from json.dumps(value, indent=2, ensure_ascii=False).splitlines()


def _record(record: Mapping[str, Any]) -> Iterator[str]:
    width = max(map(len, record), default=0)
    for name, value in record.items():
        if isinstance(value, Mapping | list) and value:
            yield f"{name}:"
            yield from (f"{INDENT}{line}" for line in show_value(value))
        else:
            yield f"{name:{width}}{INDENT}{_word(value)}"


def _list(values: Sequence[Any]) -> Iterator[str]:
    if values and all(isinstance(each, Mapping) and _is_flat(each) for each in values):
        headings = list(dict.fromkeys(name for each in values for name in each))
        rows = ([_word(each.get(name)) for name in headings] for each in values)
        yield from table(headings, rows)
        return
    for each in values:
        lines = list(show_value(each))
        if isinstance(each, Mapping | list):
            lines = [f"{'- ' if not at else INDENT}{line}" for at, line in enumerate(lines)]
        yield from lines


def _is_flat(record: Mapping[str, Any]) -> bool:
    return not any(isinstance(each, Mapping | list) and each for each in record.values())


def _word(value: Any) -> str:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return value
    if value is None or value in ({}, []):
        return "-"
    return json.dumps(value)
