"""Runs a function on messages without a broker, for tests of functions.

::

    def test_it_exclaims():
        run = testing.run(exclaim, ["hello"])
        assert run.results == ["hello!"]

The instance is the same as on workers, with topics in memory and virtual time: a function that
sleeps for an hour is done at once. Plain functions run in the thread of the test.

The same test runs on a real cluster if the variable ``GEMINGA_FUNCTIONS_TEST_SERVICE_URL``, or an
argument of ``run``, has its URL: with real topics whose names are unique to the run, in real time,
and with a thread for plain functions, as on workers.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import geminga
from geminga_functions.api import IdentitySerDe, SerDe, definition_of
from geminga_functions.instance.code_loader import Loader
from geminga_functions.instance.function_instance import Instance
from geminga_functions.instance.spec import InstanceSpec
from geminga_functions.instance.state import MemoryState
from geminga_functions.instance.status import InstanceStatus
from geminga_functions.instance.worker_link import loop_runner
from geminga_functions.tested_topics import (
    INPUT,
    OUTPUT,
    ClusterTopics,
    Input,
    MemoryTopics,
    Stored,
    TestedTopics,
)
from geminga_protocol.functions.functions_pb2 import EARLIEST, FunctionDetails
from geminga_runtime.clock import SystemClock
from geminga_runtime.threads import Threads
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.loop import SimulatedLoop

__all__ = ["Input", "Run", "Stored", "run"]

ResultT = TypeVar("ResultT")
# Names that ``_Loader`` knows, in the place of classes in a package.
TESTED, SERDE = "tested.function", "tested.serde"
SERVICE_URL_VARIABLE = "GEMINGA_FUNCTIONS_TEST_SERVICE_URL"
# How long a function may take for all messages on a cluster.
TIMEOUT_S = 60.0


@dataclass(slots=True)
class Run:
    """What a function did."""

    # The values of its output topic, in order.
    results: list[Any]
    # All messages that were published, by topic.
    topics: dict[str, list[Stored]]
    # The places of inputs that were acknowledged.
    acknowledged: list[int]
    # The places of inputs for which the function raised: a broker would deliver them again.
    refused: list[int]
    # The counts, with exceptions and user metrics.
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
    service_url: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Run:
    """Let a function process messages, which are values or ``Input`` objects.

    With a ``service_url`` they go through the topics of a cluster, within ``timeout_s``.

    ``serde`` converts inputs and results; the default one takes numbers, text and bytes, and turns
    text that reads as a number into that number. The numbers in ``acknowledged`` and ``refused``
    are places in ``messages``, from 0. Raises ``FunctionNotLoaded``, and ``InstanceFailed`` if the
    function ends its instance; on a cluster also ``ClientError``, and ``TimeoutError`` if a message
    was neither acknowledged nor refused in time.
    """
    details = FunctionDetails(
        tenant="public",
        namespace="default",
        name=getattr(tested, "__name__", "function"),
        className=TESTED,
        userConfig=json.dumps(dict(user_config or {})),
        secretsMap=json.dumps(dict(secrets or {})),
        # Messages are settled as with ATLEAST_ONCE, the default.
        autoAck=True,
        parallelism=1,
    )
    # The function consumes one made-up input, whatever its definition says of inputs.
    definition = definition_of(tested)
    details.sink.topic = (definition and definition.output) or OUTPUT
    details.source.inputSpecs[INPUT].serdeClassName = SERDE
    # Bytes on the way, as on a cluster: a value that cannot be stored fails here, too.
    details.sink.serDeClassName = SERDE
    inputs = [each if isinstance(each, Input) else Input(each) for each in messages]
    loader, state = _Loader(tested, serde), state or MemoryState()
    if url := service_url or os.environ.get(SERVICE_URL_VARIABLE):
        # The inputs are published before the function subscribes.
        details.source.subscriptionPosition = EARLIEST
        with loop_runner() as runner:
            return runner.run(_run_on_cluster(loader, inputs, details, state, url, timeout_s))
    # A loop of its own, in virtual time: nothing of it outlives the run.
    loop = SimulatedLoop()
    try:
        return loop.run_until_complete(_run_in_memory(loader, inputs, details, state))
    finally:
        loop.close()


async def _run_in_memory(
    loader: _Loader, inputs: list[Input], details: FunctionDetails, state: MemoryState
) -> Run:
    topics = MemoryTopics(inputs, loader.serde.serialize)
    instance = Instance(
        InstanceSpec(details, 0, 1, "test", "test", "", "", None, (), Path()),
        cast(geminga.Client, topics),
        SimulatedClock(),
        loader,
        state,
        # So the debugger of a test stops in the function, too.
        threads=_Here(0, "tested"),
    )
    await _process(instance, topics)
    return _run_of(instance, topics, loader, state)


async def _run_on_cluster(
    loader: _Loader,
    inputs: list[Input],
    details: FunctionDetails,
    state: MemoryState,
    service_url: str,
    timeout_s: float,
) -> Run:
    async with geminga.connect(service_url) as client:
        topics = ClusterTopics(client, inputs)
        instance = Instance(
            InstanceSpec(details, 0, 1, "test", "test", service_url, "", None, (), Path()),
            cast(geminga.Client, topics),
            SystemClock(),
            loader,
            state=state,
        )
        # For publishing and reading back, too: any of it may wait for a broker.
        async with asyncio.timeout(timeout_s):
            await topics.publish(loader.serde.serialize)
            await _process(instance, topics)
            await topics.read_back()
    return _run_of(instance, topics, loader, state)


async def _process(instance: Instance, topics: TestedTopics) -> None:
    """Run the instance until all messages are done. Raises what the instance fails with."""
    async with instance:
        done = asyncio.ensure_future(topics.done.wait())
        await asyncio.wait([done, instance.failure], return_when=asyncio.FIRST_COMPLETED)
        done.cancel()
        # First the error of the instance: with it, not all messages are done.
        if instance.failure.done():
            await instance.failure
        # The messages are done, but receipts of what was published may be on their way.
        await instance.stop()


def _run_of(instance: Instance, topics: TestedTopics, loader: _Loader, state: MemoryState) -> Run:
    output = topics.topics.get(instance.spec.details.sink.topic, [])
    return Run(
        [loader.serde.deserialize(each.value) for each in output],
        topics.topics,
        sorted(topics.acknowledged),
        sorted(topics.refused),
        instance.counters.status(),
        state,
    )


class _Loader(Loader):
    """Finds the function under test and its serde by made-up names, and imports everything else."""

    def __init__(self, tested: Callable[..., Any], serde: SerDe | None) -> None:
        # Not alone: the module under test is the test's own, and is imported already.
        super().__init__((), is_alone=False)
        self.serde = serde or IdentitySerDe()
        # A serde is loaded as a class, which is called: so the object stands behind a function.
        self._known: dict[str, Any] = {TESTED: tested, SERDE: lambda: self.serde}

    def find(self, name: str) -> Any:  # noqa: ANN401 - as Loader.find
        """As ``Loader.find``."""
        return self._known[name] if name in self._known else super().find(name)


class _Here(Threads):
    """No threads: the user's code is called in the thread of the test."""

    # On the loop, which has nothing else to do: time stands still meanwhile.
    async def run(self, call: Callable[[], ResultT]) -> ResultT:
        return call()
