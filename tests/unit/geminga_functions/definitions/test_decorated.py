"""Proves that a module's text says what its function consumes, without being run."""

from __future__ import annotations

from typing import Any

import pytest

from geminga_functions.definitions.decorated import read_definition
from geminga_functions.errors import InvalidDefinition

BILL = """
import geminga_functions
raise RuntimeError("it is not run")

@geminga_functions.function(inputs=["orders", "returns"], output="bills", parallelism=2)
async def bill(order, context): ...
"""


def test_the_only_decorated_function_is_meant() -> None:
    assert read_definition(BILL, "bills", {"name": "b"}) == {
        "name": "b",
        "className": "bills.bill",
        "inputs": ["orders", "returns"],
        "output": "bills",
        "parallelism": 2,
    }


def test_the_config_wins_over_the_decorator() -> None:
    given = {"topicsPattern": "o.*", "output": "there", "logTopic": "log", "parallelism": 3}
    read = read_definition(BILL, "bills", given)
    assert read == {**given, "className": "bills.bill"}


@pytest.mark.parametrize(
    ("imported", "decorator"),
    [
        ("import geminga_functions as gf", "gf.function"),
        ("from geminga_functions import SerDe, function", "function"),
        ("from geminga_functions import function as at", "at"),
    ],
)
@pytest.mark.parametrize("defined", ["def process(x): ...", "class process: ..."])
def test_the_decorator_is_found_by_any_name_of_its_import(
    imported: str, decorator: str, defined: str
) -> None:
    text = f"{imported}\n@other\n@{decorator}(inputs='a', log_topic='l')\n{defined}\n"
    for config in ({}, {"className": "m"}, {"className": "m.process"}):
        read = read_definition(text, "m", config)
        assert (read["inputs"], read["logTopic"]) == (["a"], "l")
        assert read["className"] == config.get("className", "m")


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("def process(x): ...", {}),
        ("import functions\n@functions.function(inputs='a')\ndef f(x): ...", {}),
        (BILL, {"className": "bills.other"}),
        (BILL, {"className": "elsewhere.bill"}),
        (BILL, {"className": "bills"}),
    ],
)
def test_a_config_whose_function_has_no_decorator_in_the_text_is_left_alone(
    text: str, config: dict[str, Any]
) -> None:
    assert read_definition(text, "bills", config) == config


def test_a_config_has_to_name_one_of_several_decorated_functions() -> None:
    text = BILL + "\n@geminga_functions.function(inputs='x')\ndef other(x): ...\n"
    with pytest.raises(InvalidDefinition, match=r"bills.py decorates bill, other: say which one"):
        read_definition(text, "bills", {})
    assert read_definition(text, "bills", {"className": "bills.other"})["inputs"] == ["x"]


def test_an_argument_that_is_no_literal_is_refused_unless_the_config_has_the_member() -> None:
    text = "from geminga_functions import function\n@function(inputs=TOPICS)\ndef f(x): ...\n"
    with pytest.raises(InvalidDefinition, match=r"inputs of the decorator of m.f is no literal"):
        read_definition(text, "m", {})
    assert read_definition(text, "m", {"inputs": ["a"]})["inputs"] == ["a"]
    text = text.replace("inputs=TOPICS", "inputs='a', log_topic=LOG")
    assert read_definition(text, "m", {"logTopic": "l"})["logTopic"] == "l"


@pytest.mark.parametrize("mapping", ["{'parallelism': 3}", "OPTIONS"])
def test_arguments_in_a_mapping_are_refused(mapping: str) -> None:
    text = f"from geminga_functions import function\n@function(**{mapping})\ndef f(x): ...\n"
    with pytest.raises(InvalidDefinition, match=r"decorator of m.f .* NAME=VALUE") as refused:
        read_definition(text, "m", {})
    assert f"**{mapping}" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def f(:", "m.py is no Python"),
        ("a\0b", "m.py is no Python"),
        ("from geminga_functions import function\n@function('a')\ndef f(x): ...", "not \"'a'\""),
        ("from geminga_functions import function\n@function(inputs=7)\ndef f(x): ...", "inputs"),
    ],
)
def test_mistakes_are_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidDefinition, match=reason):
        read_definition(text, "m", {})
