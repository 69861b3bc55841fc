"""Instances whose topics are in memory: they call the function that is tested where they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from tests.unit.geminga_functions.instance.brokers_in_memory import Client

import geminga
from geminga_functions.instance.code_loader import Loader
from geminga_functions.instance.function_instance import Instance
from geminga_functions.instance.spec import InstanceSpec
from geminga_functions.names import FunctionName
from geminga_functions.state.changelog import ChangelogState
from geminga_protocol.functions.functions_pb2 import (
    EFFECTIVELY_ONCE,
    FunctionDetails,
    ProcessingGuarantees,
)
from geminga_runtime.threads import Threads
from geminga_simulation.event_loop.clock import SimulatedClock

ResultT = TypeVar("ResultT")
INPUTS = [f"persistent://public/default/in-partition-{number}" for number in range(2)]
OUTPUT = "persistent://public/default/out"
FUNCTION = FunctionName("public", "default", "f")


class Known(Loader):
    """Knows the function that is tested."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__((), is_alone=False)
        self._function = function

    def find(self, name: str) -> object:
        return self._function if name == "tested" else super().find(name)


class Here(Threads):
    """Calls the user's code where it is."""

    async def run(self, call: Callable[[], ResultT]) -> ResultT:
        return call()


def state_of(client: Client, number: int = 0, *, is_alone: bool = True) -> ChangelogState:
    known = cast(geminga.Client, client)
    return ChangelogState(known, "public/functions", FUNCTION, str(number), is_alone=is_alone)


def instance_of(
    client: Client,
    state: ChangelogState,
    function: Callable[..., object],
    guarantee: ProcessingGuarantees.ValueType = EFFECTIVELY_ONCE,
) -> Instance:
    details = FunctionDetails(
        tenant="public",
        namespace="default",
        name="f",
        className="tested",
        processingGuarantees=guarantee,
        autoAck=True,
    )
    details.source.inputSpecs[",".join(INPUTS)].SetInParent()
    details.sink.topic = OUTPUT
    spec = InstanceSpec(details, 0, 1, "test", "test", "", "", None, (), Path())
    known = cast(geminga.Client, client)
    return Instance(spec, known, SimulatedClock(), Known(function), state, threads=Here(0, "none"))
