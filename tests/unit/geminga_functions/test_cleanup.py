"""Proves which subscriptions of deleted functions are deleted, and when it is tried no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

import geminga
from geminga_functions.cleanup import RETRY_S, TRIES_MAX, Cleanup, deletions
from geminga_functions.names import FunctionName
from geminga_protocol.functions.functions_pb2 import FunctionDetails, FunctionMetaData
from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import RestAnswer, RestCall

NAME = FunctionName("t", "n", "f")
URL = "http://broker/admin/v2"


class Functions:
    """Functions that a test creates and deletes."""

    def __init__(self) -> None:
        self._records: dict[FunctionName, FunctionMetaData] = {}
        self._removed: dict[FunctionName, int] = {}
        self.records: Mapping[FunctionName, FunctionMetaData] = self._records
        self.removed: Mapping[FunctionName, int] = self._removed
        self.listeners: list[Callable[[], None]] = []

    def create(self, *, cleans_up: bool = True) -> None:
        made = details("in", cleans_up=cleans_up)
        self._records[NAME] = FunctionMetaData(functionDetails=made)
        self._tell()

    def delete(self) -> None:
        self._removed[NAME] = 1
        self.lose()

    def lose(self) -> None:
        del self._records[NAME]
        self._tell()

    def _tell(self) -> None:
        for listener in self.listeners:
            listener()


class Broker:
    """Answers with these statuses, the last one for ever; 0 is no answer."""

    prefers_tls = False

    def __init__(self, *statuses: int) -> None:
        self._statuses: Iterator[int] = iter(statuses)
        self._status = statuses[-1]
        self.asked: list[str] = []
        self.deleted: list[str] = []
        self.fails_lists = 0

    async def call(self, call: RestCall) -> RestAnswer:
        self.asked.append(f"{call.method} {call.url}")
        self._status = next(self._statuses, self._status)
        if not self._status:
            raise ServerUnreachable("it is away")
        if self._status == 204:
            self.deleted.append(call.url.removeprefix(f"{URL}/").replace("/", "://", 1))
        return RestAnswer(self._status)


def details(*topics: str, pattern: str = "", cleans_up: bool = True) -> FunctionDetails:
    made = FunctionDetails(tenant="t", namespace="n", name="f")
    made.source.cleanupSubscription = cleans_up
    for topic in topics:
        made.source.inputSpecs[topic].SetInParent()
    if pattern:
        made.source.inputSpecs[pattern].isRegexPattern = True
    return made


async def asked_of(
    broker: Broker, *, leads: bool = True, again: bool = False, state: Sequence[str] = ()
) -> list[str]:
    """What a broker is asked for after a function is deleted, and perhaps created again."""
    functions = Functions()
    functions.create()

    async def state_topics(name: FunctionName) -> list[str]:
        assert name == NAME
        if broker.fails_lists:
            broker.fails_lists -= 1
            raise geminga.ClientError("it is away")
        return [each for each in state if each not in broker.deleted]

    async with Cleanup(functions, lambda: leads, broker, "http://broker", state_topics):
        functions.delete()
        await asyncio.sleep(RETRY_S / 2)
        if again:
            functions.create()
        await asyncio.sleep(2 * TRIES_MAX * RETRY_S)
    return broker.asked


def test_each_topic_has_its_own_and_a_pattern_all_of_its_namespace() -> None:
    made = details("in", "non-persistent://a/b/c d", "a/b/c/d/e", pattern="a/b/c-.*")
    made.source.subscriptionName = "s/1"
    assert [(each.method, each.url) for each in deletions(made, "http://broker/")] == [
        ("POST", f"{URL}/namespaces/a/b/unsubscribe/s%2F1"),
        ("DELETE", f"{URL}/persistent/public/default/in/subscription/s%2F1"),
        ("DELETE", f"{URL}/non-persistent/a/b/c%20d/subscription/s%2F1"),
    ]


async def test_a_deletion_is_tried_again_until_the_consumers_are_gone() -> None:
    deletion = f"DELETE {URL}/persistent/public/default/in/subscription/t%2Fn%2Ff"
    assert await asked_of(Broker(412, 0, 204)) == [deletion] * 3
    assert await asked_of(Broker(404)) == [deletion]


async def test_a_function_that_the_log_lost_keeps_its_subscriptions_and_state(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, functions = Broker(204), Functions()
    functions.create()

    async def state_topics(_: FunctionName) -> list[str]:
        return ["persistent://public/functions/state-f-0"]

    async with Cleanup(functions, lambda: True, broker, "http://broker", state_topics):
        functions.lose()
        await asyncio.sleep(RETRY_S)
    assert broker.asked == []
    assert [each.levelname for each in caplog.records] == ["ERROR"]


async def test_a_deletion_is_not_tried_for_ever() -> None:
    assert len(await asked_of(Broker(412))) == TRIES_MAX


async def test_a_function_that_is_created_again_keeps_its_subscription() -> None:
    assert len(await asked_of(Broker(412), again=True)) == 1


async def test_only_the_leader_cleans_up() -> None:
    assert await asked_of(Broker(204), leads=False) == []


async def test_a_deleted_function_loses_the_topics_of_its_state() -> None:
    state = [f"persistent://public/functions/state-f-{lane}" for lane in ("0", "rest")]
    subscription = f"DELETE {URL}/persistent/public/default/in/subscription/t%2Fn%2Ff"
    first, second = (f"DELETE {URL}/{topic.replace('://', '/')}" for topic in state)
    # An instance has the first one open, twice.
    broker = Broker(204, 412, 204, 412, 204)
    assert await asked_of(broker, state=state) == [subscription, first, second, first, first]
    broker = Broker(204)
    broker.fails_lists = 3
    assert await asked_of(broker, state=state) == [subscription, first, second]


async def test_the_state_is_deleted_also_where_the_subscription_is_kept() -> None:
    broker, functions = Broker(204), Functions()
    functions.create(cleans_up=False)

    async def state_topics(_: FunctionName) -> list[str]:
        return [] if broker.deleted else ["persistent://public/functions/state-f-0"]

    async with Cleanup(functions, lambda: True, broker, "http://broker", state_topics):
        functions.delete()
        await asyncio.sleep(RETRY_S)
    assert broker.asked == [f"DELETE {URL}/persistent/public/functions/state-f-0"]
