"""Runs one instance of a function: consumes its inputs, calls the user's code, sends results.

A message is acknowledged once everything that came of it is stored: its results, and what the code
published meanwhile. With ATMOST_ONCE it is acknowledged before the code is called; with MANUAL the
code acknowledges it. A message whose processing raises is negatively acknowledged and delivered
again. With EFFECTIVELY_ONCE a failure ends the instance: if a later result were stored first, the
topic would take the earlier one for a duplicate.

The user's code runs in one thread of its own (``outcome``); asynchronous code runs on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import geminga
from geminga_functions.api import ClearTextSecretsProvider, SecretsProvider
from geminga_functions.errors import FunctionNotLoaded, InstanceFailed
from geminga_functions.instance.code_loader import (
    CallKind,
    Loader,
    UserFunction,
    load_function,
    load_secrets,
)
from geminga_functions.instance.components import Component, SourceSender, load_component
from geminga_functions.instance.context import Context
from geminga_functions.instance.effectively_once import Committer
from geminga_functions.instance.encryption import encryption_of
from geminga_functions.instance.inputs import Input, inputs_of, schema_of, serde_of, subscription_of
from geminga_functions.instance.outcome import SLICE_MESSAGES_MAX, Processor
from geminga_functions.instance.outputs import IDLE_S, Outputs, sequence_id_of
from geminga_functions.instance.services import Publisher, logging_to
from geminga_functions.instance.settlement import (
    EarlyAcknowledger,
    Outcome,
    Settler,
    guarantee_of,
    users_failure,
)
from geminga_functions.instance.spec import InstanceSpec
from geminga_functions.instance.state import StateStore
from geminga_functions.instance.status import Counters
from geminga_functions.instance.user_code import OrderedTasks
from geminga_functions.state.changes import Changes
from geminga_protocol.functions.functions_pb2 import ATMOST_ONCE, EFFECTIVELY_ONCE, FunctionDetails
from geminga_runtime.clock import Clock
from geminga_runtime.service import Service
from geminga_runtime.threads import Threads

log = logging.getLogger(__name__)

# With EFFECTIVELY_ONCE messages are committed partition by partition: more are received at once, so
# that each partition has some.
COMMITTED_MESSAGES_MAX = 1000


# The way of a message, and which module is at work:
#
#   consumer -> _pump -> Processor -> state.commit -> Settler -> producer -> acknowledgement
#    inputs              outcome      state           settlement   outputs
#
# With EFFECTIVELY_ONCE ``Committer`` takes the place of ``state.commit``.
class Instance(Service):
    """One instance of a function, source or sink.

    Opening it loads the user's code and begins to consume. ``failure`` is done with an error when
    the instance fails. ``may_run`` says whether the instance still has its lease; it is called
    before each message. A ``processor_class`` of its own lets a caller see each outcome.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        client: geminga.Client,
        clock: Clock,
        loader: Loader,
        state: StateStore,
        *,
        threads: Threads | None = None,
        may_run: Callable[[], bool] = lambda: True,
        processor_class: type[Processor] = Processor,
    ) -> None:
        super().__init__()
        self.spec = spec
        # Any thread may ask for their status.
        self.counters = Counters(clock)
        self.logger = logging.getLogger(f"function.{spec.name}")
        self._client = client
        self._loader = loader
        self._clock = clock
        self._may_run = may_run
        self._processor_class = processor_class
        self._guarantee = guarantee_of(spec.details)
        self._consumers: list[geminga.Consumer[Any]] = []
        # By partition: messages that were received before the partition moved to another instance.
        # At most as many as a consumer's queue holds, each once.
        self._held: dict[str, list[geminga.Message[Any]]] = {}
        self._outputs = Outputs(spec, client)
        self._settler = Settler(self._outputs, self.counters, self._guarantee, self._fail)
        self._publisher = Publisher(spec, self._outputs, self.counters, self._consumers)
        self._state = state
        self._secrets: SecretsProvider = ClearTextSecretsProvider()
        self._context = Context(
            spec,
            self._publisher,
            loader,
            Changes(state),
            self.counters,
            self.logger,
            lambda name, path: self._secrets.provide_secret(name, path),
        )
        self.failure: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._committer = Committer(state, self._outputs, self.failure)
        # One thread, since code of users need not expect to be called twice at a time.
        self._threads = threads or Threads(1, f"function {spec.name}")
        # The tasks that consume inputs, and those of them that only wait for a message or a record:
        # ``stop`` cancels the waiting ones and lets the others finish. (A dict keeps their order.)
        self._pumps: list[asyncio.Task[Any]] = []
        self._idle: dict[asyncio.Task[Any], None] = {}
        # For each input of asynchronous code: the calls that are running, and the task that settles
        # their outcomes.
        self._running: dict[OrderedTasks, asyncio.Task[object]] = {}
        # Held while a slice is processed and its changes are committed: the user's code runs for
        # one input at a time.
        self._turn = asyncio.Lock()
        self._async_room = asyncio.Semaphore(spec.async_messages_max)
        self._is_stopping = False
        # Of a source only; and of a function or a sink only. Set while the instance opens.
        self._sender: SourceSender | None = None
        self._processor: Processor

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.callback(self._threads.close)
        # What is pushed first closes last. Before all of it the tasks that consume are cancelled
        # (``Service``), and the consumers and the component close; the log topic and the producers
        # come after them, since they carry what those still have to say.
        #
        # The instance has not ended before the user's code has returned: an empty call comes after
        # all others in the one thread.
        stack.push_async_callback(self._threads.run, lambda: None)
        stack.push_async_callback(self._outputs.close)
        stack.push_async_callback(self._publisher.close)
        self.logger.setLevel(logging.INFO)
        if topic := self.spec.details.logTopic:
            stack.enter_context(logging_to(topic, self._publisher, self.logger))
        try:
            await self._begin(stack)
        except (FunctionNotLoaded, InstanceFailed) as error:
            self.logger.error("the instance does not start", exc_info=error.__cause__ or error)  # noqa: TRY400
            raise

    async def _begin(self, stack: AsyncExitStack) -> None:
        """Load the code, prepare where results go, and start the tasks that consume."""
        spec, loader = self.spec, self._loader
        details, sink = spec.details, spec.details.sink
        # In the thread that will run it, as all code of the user's: it may create things that
        # belong to a thread.
        component, function = await self._load()
        if component is not None:
            uses_state_on_loop = component.runs_on_loop
        else:
            assert function is not None
            uses_state_on_loop = function.kind is not CallKind.PLAIN and function.takes_context
        if uses_state_on_loop:
            await self._state.begin_use()
        if spec.secrets_provider:
            load = partial(load_secrets, loader, spec.secrets_provider, spec.secrets_config)
            self._secrets = await self._threads.run(load)
        inputs = await self._threads.run(partial(inputs_of, loader, details, spec.name))
        serialize: Callable[[Any], Any] | None = None
        schema = schema_of(loader, sink.schemaType, sink.typeClassName, dict(sink.schemaProperties))
        if schema is None:
            serialize = serde_of(loader, sink.serDeClassName).serialize
        elif not hasattr(schema, "encode_parts"):
            # Encoded here, not by the producer: a result that cannot be encoded is then a failure
            # of its message.
            serialize, schema = schema.encode, geminga.BytesSchema(schema.schema_info)
        self._outputs.schema = schema
        if sink.producerSpec.HasField("cryptoSpec"):
            crypto = partial(encryption_of, loader, sink.producerSpec.cryptoSpec)
            self._outputs.encryption = await self._threads.run(crypto)
        if details.processingGuarantees == EFFECTIVELY_ONCE:
            self.spawn_every(IDLE_S, self._outputs.close_idle, name="idle producers")
        if component is not None:
            stack.push_async_callback(component.close)
            await component.open(self._context)
            self._take_changes()
        if function is not None:
            self._processor = self._processor_class(
                function,
                self._context,
                self.counters,
                self._clock,
                self.logger,
                self._guarantee,
                has_output=bool(sink.topic),
                serialize=serialize,
                may_run=self._may_run,
            )
            await self._consume(stack, inputs)
        elif component is not None:
            self._sender = SourceSender(
                component, self._outputs, serialize, self.counters, self._fail
            )
            self.spawn(self._sender.report_stored(), name="stored records")
            pump = self.spawn(self._pump_source(component, self._sender), name="source")
            self._pumps.append(pump)

    async def _load(self) -> tuple[Component | None, UserFunction | None]:
        """Load the user's code: a source is a component, a sink a component with a function.

        Raises ``FunctionNotLoaded``, and ``InstanceFailed`` for guarantees that cannot be given.
        """
        details = self.spec.details
        is_exact = details.processingGuarantees == EFFECTIVELY_ONCE
        if details.componentType in (FunctionDetails.SOURCE, FunctionDetails.SINK):
            is_source = details.componentType == FunctionDetails.SOURCE
            if is_exact:
                raise InstanceFailed(
                    "sources and sinks cannot be EFFECTIVELY_ONCE: what is outside of the cluster "
                    "knows no sequence ids",
                    is_user_error=True,
                )
            spec, method = (details.source, "read") if is_source else (details.sink, "write")
            made = await self._threads.run(partial(load_component, self._loader, spec, method))
            component = Component(made, spec.configs, self._threads.run)
            return component, None if is_source else component.as_function()
        function = await self._threads.run(partial(load_function, self._loader, details.className))
        if is_exact and function.kind is not CallKind.PLAIN:
            raise InstanceFailed(
                "EFFECTIVELY_ONCE needs a function that gives one result for each message, "
                "one after the other: neither 'async def' nor a generator",
                is_user_error=True,
            )
        return None, function

    async def _consume(self, stack: AsyncExitStack, inputs: list[Input]) -> None:
        """Subscribe to each input, and start the tasks that process its messages."""
        details = self.spec.details
        for each in inputs:
            consumer: geminga.Consumer[Any] = await stack.enter_async_context(
                self._client.consumer(
                    each.topics, subscription_of(details), schema=each.schema, **each.options
                )
            )
            if details.source.skipToLatest:
                # Before the first message is received, and with each start: ``skipToLatest`` asks
                # for that.
                await consumer.seek(geminga.LATEST)
            self._consumers.append(consumer)
            running = OrderedTasks(self.spec.async_messages_max)
            if self._processor.function.kind is not CallKind.PLAIN:
                work = self._settle_in_order(consumer, running)
                self._running[running] = self.spawn(work, name=f"results of {each.topics}")
            pump = self.spawn(self._pump(each, consumer, running), name=f"input {each.topics}")
            self._pumps.append(pump)

    async def stop(self) -> None:
        """Receive nothing more, and finish the messages that are being processed.

        Messages that were received and not begun are delivered to the next run of the instance.
        """
        self._is_stopping = True
        for task in list(self._idle):
            task.cancel()
        # Their errors are in ``failure`` already.
        await asyncio.gather(*self._pumps, return_exceptions=True)
        # Only now, since a pump may have begun one more call: then all of them are settled.
        for running, settling in self._running.items():
            await running.end()
            await settling
        await self._publisher.finish()
        if self._sender is not None:
            await self._sender.finish()

    # ---- consuming

    async def _pump(
        self, source: Input, consumer: geminga.Consumer[Any], running: OrderedTasks
    ) -> None:
        """Process what one consumer receives, until the instance stops."""
        early: EarlyAcknowledger | None = None
        receive_max = SLICE_MESSAGES_MAX
        if self._guarantee == ATMOST_ONCE:
            early = EarlyAcknowledger(SLICE_MESSAGES_MAX, self.counters, self._clock)
        elif self._guarantee == EFFECTIVELY_ONCE:
            receive_max = COMMITTED_MESSAGES_MAX
        task = asyncio.current_task()
        assert task is not None
        try:
            while not self._is_stopping and not self.failure.done():
                # Only this wait may be cancelled by ``stop``: nothing has been taken yet.
                self._idle[task] = None
                messages = [await consumer.receive()]
                del self._idle[task]
                # Without a wait: only what the consumer has received already joins the first
                # message.
                count = receive_max if early is None else early.messages_max
                if count > 1:
                    messages += await consumer.receive_many(count - 1, 0)
                if early is not None and not await early.acknowledge(consumer, messages):
                    continue
                if self._guarantee == EFFECTIVELY_ONCE:
                    await self._run_exactly(source, consumer, messages)
                elif self._processor.function.kind is CallKind.PLAIN:
                    await self._run_in_thread(source, consumer, messages)
                else:
                    await self._run_on_loop(source, running, messages)
                if early is not None:
                    early.adapt()
        except Exception as error:  # noqa: BLE001 - any error ends the instance
            self._fail(error)
        finally:
            self._idle.pop(task, None)

    async def _pump_source(self, component: Component, sender: SourceSender) -> None:
        """Store what a source reads, until the instance stops or the source has no more."""
        task = asyncio.current_task()
        assert task is not None
        try:
            while not self._is_stopping:
                self._check_lease()
                self._idle[task] = None
                record = await component.read()
                del self._idle[task]
                if record is None:
                    break
                self.counters.received += 1
                self.counters.last_invocation_ms = self._clock.wall_ms()
                # State first, as for messages: a record that is stored has changed the state.
                self._take_changes()
                await self._state.commit()
                await sender.send(record)
                self.counters.processed += 1
        except Exception as error:
            self.counters.user_exception(error)
            self.logger.error("the source failed", exc_info=error)  # noqa: TRY400 - not ours
            self._fail(error if isinstance(error, InstanceFailed) else users_failure(error))
        finally:
            self._idle.pop(task, None)

    async def _run_in_thread(
        self, source: Input, consumer: geminga.Consumer[Any], messages: list[geminga.Message[Any]]
    ) -> None:
        """Process messages with a plain function, slice by slice."""
        done = 0
        # With ATMOST_ONCE the messages are acknowledged already: no other run would receive them,
        # so a stop waits for all of them.
        while done < len(messages) and (not self._is_stopping or self._guarantee == ATMOST_ONCE):
            # Other inputs take their turns between slices: asyncio's locks serve tasks in the order
            # in which they came.
            async with self._turn:
                call = partial(self._processor.process_slice, source, messages[done:], self._state)
                outcomes = await self._threads.run(call)
            if not outcomes:
                raise InstanceFailed("the lease of the instance has ended")
            done += len(outcomes)
            # State first: a message is acknowledged only after everything that came of it is
            # stored.
            await self._state.commit()
            await self._settler.settle(consumer, outcomes)

    async def _run_exactly(
        self, source: Input, consumer: geminga.Consumer[Any], messages: list[geminga.Message[Any]]
    ) -> None:
        """Process messages with EFFECTIVELY_ONCE: partition by partition, in order within each.

        A commit holds inputs of one partition, whose lane it is written to.
        """
        for partition in dict.fromkeys(message.topic for message in messages):
            # A delivery may repeat messages, and bring earlier ones after later ones: they are
            # sorted by position, together with those that were held back.
            ids = {sequence_id_of(each.id): each for each in self._held.pop(partition, [])}
            ids |= {sequence_id_of(each.id): each for each in messages if each.topic == partition}
            left = [ids[each] for each in sorted(ids)]
            while left and not self._is_stopping and not self.failure.done():
                if partition in self._committer.lost and not consumer.is_active_in(partition):
                    # The new owner of the partition is delivered these messages too. They are held
                    # back in case the partition returns: without them a later message would be
                    # committed before an earlier one.
                    self._held[partition] = left
                    break
                committed = await self._committer.claim(partition)
                for message in left:
                    if sequence_id_of(message.id) <= committed:
                        consumer.ack(message)
                left = [each for each in left if sequence_id_of(each.id) > committed]
                if left:
                    left = left[await self._commit_slice(source, consumer, left) :]

    async def _commit_slice(
        self, source: Input, consumer: geminga.Consumer[Any], messages: list[geminga.Message[Any]]
    ) -> int:
        """Process, commit and settle the first of these messages of one partition.

        Returns how many: 0 where another instance has claimed the partition.
        """
        changes = Changes(self._state)
        # The turn is held until the commit: another input must not build on changes, and store what
        # it made of them, before they are stored themselves.
        async with self._turn:
            call = partial(self._processor.process_slice, source, messages, changes)
            outcomes = await self._threads.run(call)
            if not outcomes:
                raise InstanceFailed("the lease of the instance has ended")
            try:
                await self._committer.commit(messages[0].topic, outcomes, changes)
            except geminga.ProducerFenced:
                # No error: brokers distribute partitions anew whenever an instance comes or goes.
                log.info("partition has moved", extra={"topic": messages[0].topic})
                return 0
        await self._settler.settle(consumer, outcomes)
        return len(outcomes)

    async def _run_on_loop(
        self, source: Input, running: OrderedTasks, messages: list[geminga.Message[Any]]
    ) -> None:
        """Begin to process messages with asynchronous code, as fast as there is room."""
        for message in messages:
            # With ATMOST_ONCE the messages are acknowledged already: all of them are processed.
            if self._is_stopping and self._guarantee != ATMOST_ONCE:
                return
            await self._async_room.acquire()
            self._check_lease()
            task = await running.begin(self._processor.process_async(source, message, self._state))
            task.add_done_callback(lambda _: self._async_room.release())

    async def _settle_in_order(
        self, consumer: geminga.Consumer[Any], running: OrderedTasks
    ) -> None:
        async def settle(outcome: Outcome) -> None:
            # An asynchronous sink may use the context that it was opened with.
            self._take_changes()
            await self._state.commit()
            await self._settler.settle(consumer, [outcome])

        try:
            await running.run(settle)
        except Exception as error:  # noqa: BLE001 - any error ends the instance
            self._fail(error)

    def _check_lease(self) -> None:
        if not self._may_run():
            raise InstanceFailed("the lease of the instance has ended")

    def _take_changes(self) -> None:
        """Apply what a source or a sink has changed by the context that it was opened with."""
        self._state.apply(self._context.changes)
        self._context.changes = Changes(self._state)

    def _fail(self, error: Exception) -> None:
        # A stopping instance keeps no error: what was not acknowledged is delivered to its next
        # run. Of several errors the first is the cause.
        if not self.failure.done() and not self._is_stopping:
            self.failure.set_exception(error)
