"""Proves that one test of a function runs without a broker and on a real cluster, alike."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.integration.processes.cluster_process import StandaloneProcess

from geminga_functions import testing
from geminga_functions.errors import FunctionNotLoaded


@pytest.fixture(params=["memory", "cluster"])
def where(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, standalone: StandaloneProcess
) -> str:
    """Where ``testing.run`` runs functions; the tests say nothing of it."""
    if request.param == "cluster":
        monkeypatch.setenv(testing.SERVICE_URL_VARIABLE, standalone.service_url)
    else:
        monkeypatch.delenv(testing.SERVICE_URL_VARIABLE, raising=False)
    return str(request.param)


class Router:
    def process(self, input: str, context: Any) -> str | None:  # noqa: A002 - upstream's name
        context.incr_counter("seen", 1)
        if input == "bad":
            raise ValueError(input)
        if context.get_message_key() == "aside":
            context.publish("others", input, properties={"from": "router"})
            return None
        return f"{input} of {context.get_message_properties().get('who', 'all')}"


async def words(text: str) -> AsyncIterator[str]:
    for word in text.split():
        yield word


def test_one_test_says_the_same_of_a_function_wherever_it_runs(where: str) -> None:
    run = testing.run(
        Router,
        [
            "first",
            testing.Input("second", properties={"who": "me"}),
            "bad",
            testing.Input("third", key="aside", event_time_ms=1234, topic="elsewhere"),
        ],
    )
    assert run.results == ["first of all", "second of me"]
    assert (run.acknowledged, run.refused) == ([0, 1, 3], [2])
    (aside,) = run.topics["others"]
    assert (aside.value, aside.options.get("properties")) == (b"third", {"from": "router"})
    # What a message that failed has changed is rolled back.
    assert run.state.counter("seen") == 3
    assert run.status.total.user_exceptions == 1
    assert testing.run(words, ["a b", "c"]).results == ["a", "b", "c"], where


def test_what_does_not_load_is_told_wherever_it_is_to_run(where: str) -> None:
    class Broken:
        def __init__(self) -> None:
            raise RuntimeError

        def process(self, input: str) -> None:  # noqa: A002 - upstream's name
            raise NotImplementedError

    with pytest.raises(FunctionNotLoaded):
        testing.run(Broken, [where])


def test_a_function_that_does_not_return_on_a_cluster_has_its_time_out(
    standalone: StandaloneProcess,
) -> None:
    def slow(_: str) -> None:
        time.sleep(1.0)

    with pytest.raises(TimeoutError):
        testing.run(slow, ["x"], service_url=standalone.service_url, timeout_s=0.5)
