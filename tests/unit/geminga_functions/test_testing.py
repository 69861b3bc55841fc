"""Proves that functions run without a broker as instances run them: what each kind of function
gives, what becomes of the messages, and that time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import geminga_functions
from geminga_functions import testing
from geminga_functions.api import IdentitySerDe, PickleSerDe, definition_of
from geminga_functions.errors import FunctionNotLoaded, InstanceFailed
from geminga_functions.instance.context import Context
from geminga_functions.instance.state import MemoryState


class Exclamation:
    def process(self, input: str, context: Context) -> str:  # noqa: A002 - upstream's name
        return f"{input}{context.get_user_config_value('mark')}"


@geminga_functions.function(inputs="orders", output="bills", parallelism=2)
async def slow_first(number: int) -> int:
    await asyncio.sleep(3600.0 / (number + 1))
    return number


async def twice(value: str, context: Context) -> AsyncIterator[str]:
    yield value
    await asyncio.sleep(60.0)
    yield f"{value} of {context.get_message_key()}"


def test_a_class_gets_its_message_and_its_context() -> None:
    run = testing.run(Exclamation, ["a", "b"], user_config={"mark": "!"})
    assert run.results == ["a!", "b!"]
    assert run.acknowledged == [0, 1]
    assert run.status.total.processed == 2


def test_asynchronous_code_runs_side_by_side_and_its_results_keep_their_order() -> None:
    run = testing.run(slow_first, range(5))
    assert run.results == [0, 1, 2, 3, 4]
    assert [each.value for each in run.topics["bills"]] == [b"0", b"1", b"2", b"3", b"4"]
    definition = definition_of(slow_first)
    assert definition is not None
    assert (definition.inputs, definition.settings) == (("orders",), {"parallelism": 2})


def test_each_value_of_a_generator_is_a_result() -> None:
    run = testing.run(twice, [testing.Input("x", key="k")])
    assert run.results == ["x", "x of k"]
    assert run.acknowledged == [0]


def test_a_message_that_fails_is_refused_and_the_others_go_on() -> None:
    def picky(value: str) -> str:
        if value == "bad":
            raise ValueError(value)
        return value

    run = testing.run(picky, ["good", "bad", "fine"])
    assert (run.results, run.acknowledged, run.refused) == (["good", "fine"], [0, 2], [1])
    assert "ValueError: bad" in run.status.latest_user_exceptions[0].text


def test_a_message_that_fails_in_asynchronous_code_is_refused() -> None:
    async def picky(value: str) -> str:
        await asyncio.sleep(1.0)
        raise ValueError(value)

    run = testing.run(picky, ["bad"])
    assert (run.results, run.refused) == ([], [0])


def test_a_function_publishes_counts_and_keeps_state() -> None:
    def busy(value: str, context: Context) -> None:
        context.publish("more", value, message_conf={"partition_key": "k", "event_timestamp": 5})
        context.incr_counter("seen", 2)
        context.put_state("last", value)
        context.record_metric("length", len(value))

    state = MemoryState()
    run = testing.run(busy, ["one", "three"], state=state)
    assert run.results == []
    assert run.topics["more"][1] == testing.Stored(b"three", {"key": "k", "event_time": 5})
    assert run.acknowledged == [0, 1]
    assert (state.counter("seen"), state.get("last")) == (4, b"three")
    assert run.status.user_metrics == {"length_sum": 8.0, "length_count": 2.0}


def test_a_message_that_fails_changes_no_state() -> None:
    def add(value: int, context: Context) -> int:
        context.incr_counter("sum", value)
        context.put_state("last", str(value))
        if value == 2:
            raise ValueError(value)
        return context.get_counter("sum")

    async def add_async(value: int, context: Context) -> int:
        return add(value, context)

    for tested in (add, add_async):
        run = testing.run(tested, [1, 2, 3])
        assert (run.results, run.refused) == ([1, 4], [1])
        assert (run.state.counter("sum"), run.state.get("last")) == (4, b"3")


def test_a_result_that_cannot_be_serialized_changes_no_state() -> None:
    def count(value: str, context: Context) -> object:
        context.incr_counter("count", 1)
        return {"a set": {value}} if value == "bad" else value

    class OnlyText(IdentitySerDe):
        def serialize(self, input: object) -> bytes:  # noqa: A002 - upstream's name
            if not isinstance(input, str):
                raise TypeError("no text")
            return input.encode()

    run = testing.run(count, ["good", "bad"], serde=OnlyText())
    assert (run.results, run.refused, run.state.counter("count")) == (["good"], [1], 1)


def test_an_unknown_option_of_a_message_is_the_functions_mistake() -> None:
    def wrong(value: str, context: Context) -> None:
        context.publish("more", value, message_conf={"colour": "red"})

    run = testing.run(wrong, ["x"])
    assert run.refused == [0]
    assert "colour" in run.status.latest_user_exceptions[0].text


def test_values_of_any_kind_need_a_serde() -> None:
    def add(pair: dict[str, Any]) -> dict[str, Any]:
        return {**pair, "sum": pair["a"] + pair["b"]}

    assert testing.run(add, [{"a": 1, "b": 2}], serde=PickleSerDe()).results == [
        {"a": 1, "b": 2, "sum": 3}
    ]
    without = testing.run(lambda _: {"no": "serde"}, ["x"])
    assert without.refused == [0]
    assert "IdentitySerDe takes" in without.status.latest_system_exceptions[0].text


def test_a_function_that_exits_ends_its_instance() -> None:
    def leave(value: str) -> None:
        raise SystemExit(value)

    with pytest.raises(InstanceFailed, match="SystemExit: bye"):
        testing.run(leave, ["bye"])


def test_secrets_are_given_by_their_names() -> None:
    def show(name: str, context: Context) -> str:
        return context.get_secret(name) or "none"

    assert testing.run(show, ["key", "other"], secrets={"key": "s3"}).results == ["s3", "none"]


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(FunctionNotLoaded):
        testing.run(5, [])  # type: ignore[arg-type]  # on purpose


NUMBER: Any = 3


@pytest.mark.parametrize(
    ("misuse", "said"),
    [
        (lambda: geminga_functions.function(slow_first), "with parentheses"),
        (lambda: geminga_functions.function("orders"), "with names"),
        (lambda: geminga_functions.function(inputs=[NUMBER]), "names of topics: .* int found"),
        (lambda: geminga_functions.function(inputs="orders")(NUMBER), "3 is no function"),
    ],
)
def test_a_decorator_that_is_misused_says_how_it_is_used(misuse: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        misuse()
