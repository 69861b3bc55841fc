"""Runs the instances of one function, source or sink on this machine, without a worker.

The commands ``localrun`` and ``dev`` start it as the process ``python -m geminga_functions.local``.
It reads a ``LocalRun`` as a line of JSON from its standard input, and runs until its standard input
ends, because the command has closed it or has ended. There is neither a lease nor a leader: the
same function may run on workers at the same time, with the same subscription. A local instance has
a lane of state of its own, and does not fence those of workers.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import geminga
from geminga_functions.api import definition_of
from geminga_functions.definitions.decorated import with_definition
from geminga_functions.definitions.functions import function_details
from geminga_functions.definitions.members import Config
from geminga_functions.definitions.sinks import sink_details
from geminga_functions.definitions.sources import source_details
from geminga_functions.errors import FunctionNotLoaded
from geminga_functions.instance.code_loader import Loader
from geminga_functions.instance.context import Context
from geminga_functions.instance.function_instance import Instance
from geminga_functions.instance.outcome import Processor
from geminga_functions.instance.settlement import TRACE_CHARACTERS_MAX, Outcome
from geminga_functions.instance.spec import InstanceSpec
from geminga_functions.instance.status import trace_of
from geminga_functions.instance.worker_link import failure_of
from geminga_functions.names import FunctionName
from geminga_functions.state.changelog import ChangelogState
from geminga_functions.state.changes import State
from geminga_protocol.functions.functions_pb2 import FunctionDetails
from geminga_runtime.clock import SystemClock

MODULE = "geminga_functions.local"
DETAILS_OF = {"function": function_details, "source": source_details, "sink": sink_details}
# How long messages in progress may take when the run is stopped.
STOP_TIMEOUT_S = 5.0
# Longer values are cut when they are printed.
SHOWN_CHARACTERS_MAX = 2000


@dataclass(frozen=True, slots=True)
class LocalRun:
    """What to run, and how."""

    # "function", "source" or "sink".
    kind: str
    # As users have it. A function in a module need not have a class name: it is then the one that
    # the module defines.
    config: Config
    # The file of the package, empty for a built-in connector, and the folders of its modules.
    package: str
    import_paths: list[str]
    service_url: str
    web_url: str
    state_directory: str
    # The number of the first instance.
    first_instance: int = 0
    # Whether each input, result and traceback is printed.
    is_shown: bool = False

    def to_json(self) -> str:
        """Encode it as one line."""
        return json.dumps(asdict(self))


def main() -> None:
    """Run what standard input describes; exits with 1 if it fails."""
    # One line: what follows it on standard input is only waited for.
    local = LocalRun(**json.loads(sys.stdin.buffer.readline()))
    try:
        asyncio.run(_run(local))
        code = 0
    except BaseException as error:  # noqa: BLE001 - printed for the author of the function
        print(failure_of(error).trace, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit, which waits for threads that the user's code has started.
    os._exit(code)


async def _run(local: LocalRun) -> None:
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[None] = loop.create_future()

    def follow() -> None:
        # In a thread of its own: reading a pipe this way blocks, and works for files and terminals,
        # too.
        sys.stdin.buffer.read()
        loop.call_soon_threadsafe(stop.set_result, None)

    # Before the code is loaded: the end of the command must be noticed meanwhile, too.
    threading.Thread(target=follow, name="end of standard input", daemon=True).start()
    # The process is this function's alone, so its modules are imported like any others.
    loader = Loader([Path(path) for path in local.import_paths], is_alone=True)
    details = details_of(local, loader)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(geminga.connect(local.service_url))
        instances: list[Instance] = []
        failures: list[asyncio.Future[Any]] = []
        for number in range(local.first_instance, local.first_instance + details.parallelism):
            # As a worker would describe it; but there is no lease, which nothing asks for.
            spec = InstanceSpec(
                details,
                number,
                version=1,
                worker_id="local",
                cluster="local",
                service_url=local.service_url,
                web_url=local.web_url,
                package=Path(local.package) if local.package else None,
                import_paths=tuple(Path(path) for path in local.import_paths),
                state_directory=Path(local.state_directory),
            )
            state = await stack.enter_async_context(
                # A lane with a name that no worker uses: the writer of lane "0" would fence the
                # worker's instance 0.
                ChangelogState(
                    client, spec.functions_namespace, spec.name.function, f"local-{number}"
                )
            )
            instance = Instance(
                spec,
                client,
                SystemClock(),
                loader,
                state,
                processor_class=ShownProcessor if local.is_shown else Processor,
            )
            instances.append(await stack.enter_async_context(instance))
            # The first failure of any instance ends all of them: nothing here starts one again.
            failures += [instance.failure, state.failure]
        inputs = ", ".join(sorted(details.source.inputSpecs)) or "a source"
        print(f"{details.name} runs: {inputs} -> {details.sink.topic or 'nowhere'}", flush=True)
        await asyncio.wait([stop, *failures], return_when=asyncio.FIRST_COMPLETED)
        for failure in failures:
            if failure.done():
                await failure
        # All at once: each has the whole time.
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await asyncio.gather(*[each.stop() for each in instances])


def details_of(local: LocalRun, loader: Loader) -> FunctionDetails:
    """The details of what to run; the config of a function is completed by its definition.

    Raises ``InvalidDefinition``, ``FunctionNotLoaded``.
    """
    config: Config = dict(local.config)
    if local.kind == "function":
        # The code is imported for it, which is no loss: the process is about to run it.
        name = config.get("className") or _defined_in(loader, Path(local.package).stem)
        found = loader.find(name)
        definition = definition_of(
            found if not isinstance(found, ModuleType) else getattr(found, "process", None)
        )
        # What the command was given takes precedence over the decorator.
        if definition is not None:
            config = with_definition(config, definition)
        config["className"] = name
    name = FunctionName(config["tenant"], config["namespace"], config["name"])
    return DETAILS_OF[local.kind](name, config)


def _defined_in(loader: Loader, module_name: str) -> str:
    """The class name of the function that a module defines: ``process``, or the decorated one.

    Raises ``FunctionNotLoaded``.
    """
    module = loader.find(module_name)
    if hasattr(module, "process"):
        return module_name
    defined = [
        name
        for name, value in vars(module).items()
        if definition_of(value) is not None and value.__module__ == module.__name__
    ]
    # None, or several of which none can be preferred.
    if len(defined) != 1:
        raise FunctionNotLoaded(
            f"{module_name}.py has no function 'process' and {len(defined)} that are decorated by "
            "'geminga_functions.function': say --classname"
        )
    return f"{module_name}.{defined[0]}"


class ShownProcessor(Processor):
    """A processor that prints what its function gets, and what comes of it."""

    def succeeded(
        self, outcome: Outcome, context: Context, results: list[Any], state: State
    ) -> Outcome:
        """As ``Processor.succeeded``; prints the input and the results."""
        outcome = super().succeeded(outcome, context, results, state)
        # ``super`` may have found a result that cannot be serialized; ``failed`` has printed that.
        if outcome.error is None:
            _show("<-", outcome.message.data)
            for each in results:
                _show("->", each)
        return outcome

    def failed(self, outcome: Outcome, error: BaseException, *, is_user_error: bool) -> Outcome:
        """As ``Processor.failed``; prints the input and the traceback."""
        _show("<-", outcome.message.data)
        print(trace_of(error, TRACE_CHARACTERS_MAX), flush=True)
        return super().failed(outcome, error, is_user_error=is_user_error)


def _show(sign: str, value: object) -> None:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    # A message may contain control sequences, which must not reach the terminal.
    plain = "".join(each if each.isprintable() else " " for each in text[:SHOWN_CHARACTERS_MAX])
    # At once: the terminal shows a message before the next one is processed.
    print(f"{sign} {plain}", flush=True)


if __name__ == "__main__":
    main()
