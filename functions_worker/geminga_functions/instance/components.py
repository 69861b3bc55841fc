"""Sources and sinks as an instance runs them: it loads, opens, calls and closes them.

A sink is run as a function without results. A source has no input: its records are read one after
the other, and stored in that order.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import geminga
from geminga_functions.api import Record
from geminga_functions.connectors import BUILTIN
from geminga_functions.errors import FunctionNotLoaded, InstanceFailed
from geminga_functions.instance.code_loader import CallKind, Loader, UserFunction, instantiate
from geminga_functions.instance.context import Context
from geminga_functions.instance.outputs import Outputs
from geminga_functions.instance.status import Counters
from geminga_protocol.functions.functions_pb2 import SinkSpec, SourceSpec


def load_component(loader: Loader, spec: SourceSpec | SinkSpec, method: str) -> Any:  # noqa: ANN401
    """Create the source or sink that ``spec`` names.

    Raises ``FunctionNotLoaded``, also if it lacks ``method``.
    """
    if spec.builtin:
        if spec.builtin not in BUILTIN:
            known = ", ".join(sorted(BUILTIN))
            raise FunctionNotLoaded(f"{spec.builtin!r} is not built in; these are: {known}")
        made: Any = BUILTIN[spec.builtin]()
    else:
        # The class takes no arguments: its settings come with ``open``, as with upstream's
        # connectors.
        made = instantiate(loader.find(spec.className))
    if not callable(getattr(made, method, None)):
        raise FunctionNotLoaded(f"{spec.builtin or spec.className} has no method {method!r}")
    return made


@dataclass(frozen=True, slots=True, eq=False)
class Component:
    """A source or a sink of the user's."""

    # The user's object: any class with the right methods, of which only one is required.
    made: Any
    # Its settings, as JSON.
    configs: str
    # Calls a function in the thread of the user's code.
    call: Callable[..., Any]

    @property
    def runs_on_loop(self) -> bool:
        """Whether one of its methods is a coroutine function, which is called on the loop."""
        # A source may lack ``write``, and a sink ``read``.
        methods = (getattr(self.made, name, None) for name in ("open", "read", "write", "close"))
        return any(map(inspect.iscoroutinefunction, methods))

    async def open(self, context: Context) -> None:
        """Call its ``open``, if it has one. Raises ``FunctionNotLoaded``."""
        if not hasattr(self.made, "open"):
            return
        try:
            await self.invoke(self.made.open, json.loads(self.configs or "{}"), context)
        except Exception as error:
            raise FunctionNotLoaded(f"{type(self.made).__name__}.open failed") from error

    async def close(self) -> None:
        """Call its ``close``, if it has one."""
        if hasattr(self.made, "close"):
            # An error of it is raised while the instance closes, and is what the worker is told.
            await self.invoke(self.made.close)

    async def invoke(self, method: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """Call one of its methods: on the loop, or in the thread of the user's code."""
        # It must not block: all that the instance does waits for the loop.
        if inspect.iscoroutinefunction(method):
            return await method(*arguments)
        # In the one thread, in which ``open`` was called, too: clients of databases are often bound
        # to it.
        return await self.call(lambda: method(*arguments))

    async def read(self) -> Record | None:
        """The next record of a source, None at its end. A bare value counts as a record of it."""
        read = await self.invoke(self.made.read)
        return read if read is None or isinstance(read, Record) else Record(read)

    def as_function(self) -> UserFunction:
        """The ``write`` of a sink as a function, to be called for each message."""
        # Looked up once, not for each message.
        write = self.made.write
        kind = CallKind.ASYNC if inspect.iscoroutinefunction(write) else CallKind.PLAIN

        def call(value: object, context: Context) -> Any:  # noqa: ANN401 - an awaitable, or nothing
            message = context.current
            record = Record(
                value, message.key, message.properties, message.event_time_ms, message.topic
            )
            return write(record)

        return UserFunction(call, kind, takes_context=True)


@dataclass(slots=True, eq=False)
class SourceSender:
    """Stores the records of a source in the output topic.

    A record that cannot be stored cannot be given back to its source. So ``fail`` is called with
    the error, the instance ends, and its next run reads from the source anew.
    """

    component: Component
    outputs: Outputs
    # Makes payloads of values. None where the output's schema makes keys and payloads of them.
    serialize: Callable[[Any], bytes] | None
    counters: Counters
    fail: Callable[[Exception], None]
    # The ``on_stored`` of records that are stored, in the order of their receipts. ``stored`` adds
    # to it on the loop, ``report_stored`` takes out.
    _stored: asyncio.Queue[Callable[[], object]] = field(default_factory=asyncio.Queue, init=False)

    async def send(self, record: Record) -> None:
        """Send one record. Raises ``ValueError`` or ``TypeError`` if it cannot be encoded."""
        options: geminga.MessageOptions = {"key": record.key, "properties": record.properties}
        if record.event_time_ms is not None:
            options["event_time"] = record.event_time_ms
        value = record.value if self.serialize is None else bytes(self.serialize(record.value))
        # After encoding: a record that cannot be encoded opens no producer.
        producer = await self.outputs.of_results()
        await producer.ready()

        def stored(_: geminga.MessageId | None, error: Exception | None) -> None:
            if error is not None:
                self.counters.system_exception(error)
                # Once is enough: ``Instance._fail`` keeps the first error, and the pump ends by it.
                self.fail(InstanceFailed(f"a record could not be stored: {error}"))
                return
            self.counters.written += 1
            if record.on_stored is not None:
                # A source whose methods are plain is read and told of receipts in turns, by its one
                # thread, so that the queue stays about as short as the producer's window. Nothing
                # bounds it where ``read`` is a coroutine and ``on_stored`` is slow.
                self._stored.put_nowait(record.on_stored)

        producer.send_nowait(value, stored, **options)

    async def report_stored(self) -> None:
        """Call the ``on_stored`` of records that are stored, in order, until cancelled."""
        while True:
            on_stored = await self._stored.get()
            try:
                await self.component.invoke(on_stored)
            except Exception as error:  # noqa: BLE001 - the user's code
                # The record is stored all the same: the instance continues.
                self.counters.user_exception(error)
            finally:
                self._stored.task_done()

    async def finish(self) -> None:
        """Wait until all records are stored, and every ``on_stored`` has returned."""
        # In this order: the last receipts put their callbacks into the queue.
        await self.outputs.flush()
        await self._stored.join()
