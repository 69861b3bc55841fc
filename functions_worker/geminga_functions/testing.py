"""Runs a function on messages, without a broker: for tests of functions.

::

    def test_it_exclaims():
        run = testing.run(exclaim, ["hello"])
        assert run.results == ["hello!"]

The instance is the one that workers run, with topics in memory and virtual time: what sleeps for an
hour is done at once. Plain functions run in the thread of the test.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import geminga
from geminga.messages import Delivery
from geminga_functions.api import IdentitySerDe, SerDe, definition_of
from geminga_functions.instance.loading import Loader
from geminga_functions.instance.running import Instance
from geminga_functions.instance.spec import InstanceSpec
from geminga_functions.instance.state import MemoryState
from geminga_functions.instance.status import InstanceStatus
from geminga_protocol.functions.functions_pb2 import FunctionDetails
from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_simulation.clock import SimulatedClock
from geminga_simulation.loop import SimulatedLoop

ResultT = TypeVar("ResultT")
INPUT, OUTPUT = "persistent://public/default/input", "persistent://public/default/output"
TESTED, SERDE = "tested.function", "tested.serde"


@dataclass(frozen=True, slots=True)
class Input:
    """A message for a function: a value, and what its producer says of it."""

    value: Any
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    event_time_ms: int = 0
    topic: str = INPUT


@dataclass(frozen=True, slots=True)
class Stored:
    """What was published to a topic."""

    value: Any
    options: geminga.MessageOptions


@dataclass(slots=True)
class Run:
    """What a function did. ``results`` are the values of its output, in their order; ``topics``
    what was published to each topic, by the topic's name; ``refused`` the inputs for which it
    raised, and which would come again; ``status`` has the exceptions and metrics."""

    results: list[Any]
    topics: dict[str, list[Stored]]
    acknowledged: list[int]
    refused: list[int]
    status: InstanceStatus
    state: MemoryState


def run(
    tested: Callable[..., Any] | type,
    messages: Iterable[object],
    *,
    user_config: Mapping[str, object] | None = None,
    secrets: Mapping[str, object] | None = None,
    state: MemoryState | None = None,
    serde: SerDe | None = None,
) -> Run:
    """Have a function process messages: values, or ``Input`` objects.

    ``serde`` makes payloads of values and back, those of the results too; the default one takes
    numbers, text and bytes, and makes a number of text that reads as one. The numbers in
    ``acknowledged`` and ``refused`` are places in ``messages``, from 0. Raises
    ``FunctionNotLoaded``, and ``InstanceFailed`` where the function ends its instance.
    """
    details = FunctionDetails(
        tenant="public",
        namespace="default",
        name=getattr(tested, "__name__", "function"),
        className=TESTED,
        userConfig=json.dumps(dict(user_config or {})),
        secretsMap=json.dumps(dict(secrets or {})),
        autoAck=True,
        parallelism=1,
    )
    definition = definition_of(tested)
    details.sink.topic = (definition and definition.output) or OUTPUT
    details.source.inputSpecs[INPUT].serdeClassName = SERDE
    details.sink.serDeClassName = SERDE
    inputs = [each if isinstance(each, Input) else Input(each) for each in messages]
    loop = SimulatedLoop()
    try:
        return loop.run_until_complete(
            _run(_Loader(tested, serde), inputs, details, state or MemoryState())
        )
    finally:
        loop.close()


async def _run(
    loader: _Loader, inputs: list[Input], details: FunctionDetails, state: MemoryState
) -> Run:
    client = _Client([_message(each, place, loader) for place, each in enumerate(inputs)])
    spec = InstanceSpec(details, 0, 1, "test", "test", "", "", None, (), Path())
    instance = Instance(
        spec,
        cast(geminga.Client, client),
        SimulatedClock(),
        loader,
        state=state,
        threads=_Here(),
    )
    async with instance:
        done = asyncio.ensure_future(client.done.wait())
        await asyncio.wait([done, instance.failure], return_when=asyncio.FIRST_COMPLETED)
        done.cancel()
        if instance.failure.done():
            await instance.failure
        await instance.stop()
        return Run(
            [
                loader.serde.deserialize(each.value)
                for each in client.topics.get(details.sink.topic, [])
            ],
            client.topics,
            sorted(client.acknowledged),
            sorted(client.refused),
            instance.status(),
            state,
        )


class _Loader(Loader):
    """Knows what is tested, and what else is imported."""

    def __init__(self, tested: Callable[..., Any], serde: SerDe | None) -> None:
        super().__init__((), is_alone=False)
        self.serde = serde or IdentitySerDe()
        self._known: dict[str, Any] = {TESTED: tested, SERDE: lambda: self.serde}

    def find(self, name: str) -> Any:  # noqa: ANN401 - as Loader.find
        """As ``Loader.find``."""
        return self._known[name] if name in self._known else super().find(name)


class _Here:
    """Calls the user's code where it is: in the thread of the test."""

    async def run(self, call: Callable[[], ResultT]) -> ResultT:
        return call()

    def close(self) -> None:
        pass


def _message(given: Input, place: int, loader: _Loader) -> geminga.Message[bytes]:
    metadata = MessageMetadata(producer_name="test", sequence_id=place, publish_time=0)
    if given.key is not None:
        metadata.partition_key = given.key
    for name, value in given.properties.items():
        metadata.properties.add(key=name, value=value)
    metadata.event_time = given.event_time_ms
    delivery = Delivery(given.topic, (1, place), -1, metadata)
    return geminga.Message(loader.serde.serialize(given.value), delivery)


class _Client:
    """The part of ``geminga.Client`` that an instance uses, with topics in memory."""

    def __init__(self, messages: list[geminga.Message[bytes]]) -> None:
        self._waiting = messages[::-1]
        self._count = len(messages)
        self.topics: dict[str, list[Stored]] = {}
        self.acknowledged: set[int] = set()
        self.refused: set[int] = set()
        self.done = asyncio.Event()
        self._tell()

    def consumer(self, *_: object, **__: object) -> AbstractAsyncContextManager[_Client]:
        return self

    async def producer(self, topic: str, **_: object) -> _Producer:
        return _Producer(self.topics.setdefault(topic, []))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    # ---- as a consumer

    async def receive(self) -> geminga.Message[bytes]:
        if not self._waiting:
            await asyncio.Event().wait()
        return self._waiting.pop()

    async def receive_many(self, max_messages: int, _: float) -> list[geminga.Message[bytes]]:
        return [self._waiting.pop() for _ in range(min(max_messages, len(self._waiting)))]

    def ack(self, message: geminga.Message[bytes] | geminga.MessageId) -> None:
        self.acknowledged.add(message.position[1])
        self._tell()

    def nack(self, message: geminga.Message[bytes]) -> None:
        self.refused.add(message.position[1])
        self._tell()

    def _tell(self) -> None:
        if len(self.acknowledged | self.refused) == self._count:
            self.done.set()


class _Producer:
    """The part of ``geminga.Producer`` that an instance uses."""

    def __init__(self, stored: list[Stored]) -> None:
        self._stored = stored

    async def ready(self) -> None:
        pass

    def send_nowait(
        self,
        value: bytes,
        callback: geminga.SendCallback,
        **options: Any,  # noqa: ANN401
    ) -> None:
        callback(self._store(value, options), None)

    async def send(self, value: bytes, **options: Any) -> geminga.MessageId:  # noqa: ANN401
        return self._store(value, options)

    async def close(self) -> None:
        pass

    def _store(self, value: bytes, options: Any) -> geminga.MessageId:  # noqa: ANN401
        self._stored.append(Stored(value, cast(geminga.MessageOptions, options)))
        return geminga.MessageId(2, len(self._stored) - 1)
