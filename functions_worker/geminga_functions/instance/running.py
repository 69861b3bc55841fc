"""Runs one instance of a function: consumes its inputs, calls the user's code, sends results.

A message is acknowledged when everything that came of it is stored: its result, and what the code
published meanwhile. With ATMOST_ONCE it is acknowledged before the code sees it; with MANUAL by the
code itself. What raises is refused and comes again; with EFFECTIVELY_ONCE it ends the instance,
since a later result that is stored would make the topic take the earlier for a duplicate.

The user's code runs in one thread of its own, which is handed a few messages at a time: the way
there and back costs more than a small function does. Asynchronous code runs on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from copy import copy
from functools import partial
from typing import Any

import geminga
from geminga_functions.api import ClearTextSecretsProvider, SecretsProvider
from geminga_functions.errors import FunctionNotLoaded, InstanceFailed
from geminga_functions.instance.calling import Caller, InOrder
from geminga_functions.instance.committing import Committer
from geminga_functions.instance.components import Component, SourceSender, load_component
from geminga_functions.instance.context import Context
from geminga_functions.instance.encryption import encryption_of
from geminga_functions.instance.inputs import Input, inputs_of, schema_of, serde_of, subscription_of
from geminga_functions.instance.loading import CallKind, Loader, load_function, load_secrets
from geminga_functions.instance.outputs import IDLE_S, Outputs, sequence_id_of
from geminga_functions.instance.publishing import Publisher, logging_to
from geminga_functions.instance.settling import Ahead, Outcome, Settler, guarantee_of, users_failure
from geminga_functions.instance.spec import InstanceSpec
from geminga_functions.instance.state import StateStore
from geminga_functions.instance.status import Counters, InstanceStatus
from geminga_functions.state.changes import Changes, State
from geminga_protocol.functions.functions_pb2 import ATMOST_ONCE, EFFECTIVELY_ONCE, FunctionDetails
from geminga_runtime.clock import Clock
from geminga_runtime.service import Service
from geminga_runtime.threads import Threads

log = logging.getLogger(__name__)

# Messages that the thread of the user's code is handed at once; it hands back what it has done
# after SLICE_S, so that results of slow code do not wait for each other.
SLICE_MESSAGES_MAX = 200
SLICE_S = 0.005
# Where each partition's messages are committed by themselves, each should have some.
COMMITTED_MESSAGES_MAX = 1000
# What came of so many bytes is committed without further messages: with those of one more message
# they make the entry of a commit, of which brokers take 5 MiB.
SLICE_BYTES = 1024 * 1024


class Instance(Service):
    """One instance. Opened it has loaded the user's code, and consumes; ``failure`` is done
    with an error when it fails. ``may_run``, asked before each message, says whether its lease
    goes on.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        client: geminga.Client,
        clock: Clock,
        loader: Loader,
        state: StateStore,
        *,
        threads: Caller | None = None,
        may_run: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.counters = Counters(clock)
        self.logger = logging.getLogger(f"function.{spec.name}")
        self._client = client
        self._loader = loader
        self._clock = clock
        self._may_run = may_run
        self._guarantee = guarantee_of(spec.details)
        self._has_output = bool(spec.details.sink.topic)
        is_exact = self._guarantee == EFFECTIVELY_ONCE
        self._receive_max = COMMITTED_MESSAGES_MAX if is_exact else SLICE_MESSAGES_MAX
        self._consumers: list[geminga.Consumer[Any]] = []
        # Messages of partitions that have moved: as many as a consumer's queue, of each once.
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
        self._loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[Any] = self._loop.create_future()
        self._committer = Committer(state, self._outputs, self.failure)
        self._threads: Caller = threads or Threads(1, f"function {spec.name}")
        self._pumps: list[asyncio.Task[Any]] = []
        self._idle: dict[asyncio.Task[Any], None] = {}
        # What asynchronous code has begun of each input, with the task that settles it.
        self._begun: dict[InOrder, asyncio.Task[object]] = {}
        self._now_s = clock.monotonic()  # after the last call of a plain function
        # Makes payloads of results; None where the schema makes keys and payloads of them.
        self._serialize: Callable[[Any], Any] | None = None
        self._turn = asyncio.Lock()  # the user's code runs for one input at a time
        self._async_room = asyncio.Semaphore(spec.async_messages_max)
        self._is_stopping = False
        self._sender: SourceSender | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._end_thread)
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
        spec, loader = self.spec, self._loader
        details, sink = spec.details, spec.details.sink
        # In the thread that will run it: code may keep what belongs to a thread.
        component = await self._load()
        if self._may_use_state_on_loop(component):
            await self._state.begin_use()
        if spec.secrets_provider:
            load = partial(load_secrets, loader, spec.secrets_provider, spec.secrets_config)
            self._secrets = await self._threads.run(load)
        inputs = await self._threads.run(partial(inputs_of, loader, details, self.spec.name))
        schema = schema_of(loader, sink.schemaType, sink.typeClassName, dict(sink.schemaProperties))
        if schema is None:
            self._serialize = serde_of(loader, sink.serDeClassName).serialize
        elif not hasattr(schema, "encode_parts"):
            # Encoded here, so that a result which cannot be encoded is a failure of its message.
            self._serialize, schema = schema.encode, geminga.BytesSchema(schema.schema_info)
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
        if component is not None and details.componentType == FunctionDetails.SOURCE:
            self._sender = SourceSender(
                component, self._outputs, self._serialize, self.counters, self._fail
            )
            self.spawn(self._sender.report_stored(), name="stored records")
            self._pumps.append(self.spawn(self._pump_source(component), name="source"))
            return
        for each in inputs:
            consumer: geminga.Consumer[Any] = await stack.enter_async_context(
                self._client.consumer(
                    each.topics, subscription_of(details), schema=each.schema, **each.options
                )
            )
            if details.source.skipToLatest:
                await consumer.seek(geminga.LATEST)
            self._consumers.append(consumer)
            begun = InOrder(spec.async_messages_max)
            if self._function.kind is not CallKind.PLAIN:
                work = self._settle_in_order(consumer, begun)
                self._begun[begun] = self.spawn(work, name=f"results of {each.topics}")
            pump = self.spawn(self._pump(each, consumer, begun), name=f"input {each.topics}")
            self._pumps.append(pump)

    async def _load(self) -> Component | None:
        """Load the user's code; a component where it is a source or a sink.

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
            if not is_source:
                self._function = component.as_function()
            return component
        self._function = await self._threads.run(
            partial(load_function, self._loader, details.className)
        )
        if is_exact and self._function.kind is not CallKind.PLAIN:
            raise InstanceFailed(
                "EFFECTIVELY_ONCE needs a function that gives one result for each message, "
                "one after the other: neither 'async def' nor a generator",
                is_user_error=True,
            )
        return None

    def _may_use_state_on_loop(self, component: Component | None) -> bool:
        if component is not None:
            return component.runs_on_loop
        return self._function.kind is not CallKind.PLAIN and self._function.takes_context

    async def _end_thread(self) -> None:
        # Not before the user's code has returned: until then the instance has not ended.
        await self._threads.run(lambda: None)
        self._threads.close()

    async def stop(self) -> None:
        """Consume nothing more, and finish what is begun; what is not stays for another run."""
        self._is_stopping = True
        for task in list(self._idle):
            task.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for begun, settling in self._begun.items():
            await begun.end()
            await settling
        await self._publisher.finish()
        if self._sender is not None:
            await self._sender.finish()

    def status(self) -> InstanceStatus:
        """What it counted; any thread may ask."""
        return self.counters.status()

    # ---- consuming

    async def _pump(self, source: Input, consumer: geminga.Consumer[Any], begun: InOrder) -> None:
        """Process what one consumer receives, until the instance stops."""
        is_ahead = self._guarantee == ATMOST_ONCE
        ahead = Ahead(SLICE_MESSAGES_MAX, self.counters, self._clock) if is_ahead else None
        task = asyncio.current_task()
        assert task is not None
        try:
            while not self._is_stopping and not self.failure.done():
                self._idle[task] = None
                messages = [await consumer.receive()]
                del self._idle[task]
                count = self._receive_max if ahead is None else ahead.messages_max
                if count > 1:
                    messages += await consumer.receive_many(count - 1, 0)
                if ahead is not None and not await ahead.acknowledge(consumer, messages):
                    continue
                if self._guarantee == EFFECTIVELY_ONCE:
                    await self._run_exactly(source, consumer, messages)
                elif self._function.kind is CallKind.PLAIN:
                    await self._run_in_thread(source, consumer, messages)
                else:
                    await self._run_on_loop(source, begun, messages)
                if ahead is not None:
                    ahead.adapt()
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker is told
            self._fail(error)
        finally:
            self._idle.pop(task, None)

    async def _pump_source(self, component: Component) -> None:
        """Store what a source reads, until the instance stops or the source has no more."""
        task = asyncio.current_task()
        assert task is not None
        try:
            while not self._is_stopping and await self._pass_record(component, task):
                pass
        except Exception as error:
            self.counters.user_exception(error)
            self.logger.error("the source failed", exc_info=error)  # noqa: TRY400 - not ours
            self._fail(error if isinstance(error, InstanceFailed) else users_failure(error))
        finally:
            self._idle.pop(task, None)

    async def _pass_record(self, component: Component, task: asyncio.Task[Any]) -> bool:
        """Read and send one record; says whether there was one."""
        assert self._sender is not None
        if not self._may_run():
            raise InstanceFailed("the lease of the instance has ended")
        self._idle[task] = None
        record = await component.read()
        del self._idle[task]
        if record is None:
            return False
        self.counters.received += 1
        self.counters.last_invocation_ms = self._clock.wall_ms()
        self._take_changes()
        await self._state.commit()
        await self._sender.send(record)
        self.counters.processed += 1
        return True

    async def _run_in_thread(
        self, source: Input, consumer: geminga.Consumer[Any], messages: list[geminga.Message[Any]]
    ) -> None:
        done = 0
        # Messages that are acknowledged already are not left for another run.
        while done < len(messages) and (not self._is_stopping or self._guarantee == ATMOST_ONCE):
            async with self._turn:
                call = partial(self._process_slice, source, messages[done:], self._state)
                outcomes = await self._threads.run(call)
            if not outcomes:
                raise InstanceFailed("the lease of the instance has ended")
            done += len(outcomes)
            # State first: what came of a message is not acknowledged before all of it is stored.
            await self._state.commit()
            await self._settler.settle(consumer, outcomes)

    async def _run_exactly(
        self, source: Input, consumer: geminga.Consumer[Any], messages: list[geminga.Message[Any]]
    ) -> None:
        """Process messages partition by partition, of which a commit has one; in order there."""
        for partition in dict.fromkeys(message.topic for message in messages):
            # What is delivered again may follow what it should come before, in any delivery.
            ids = {sequence_id_of(each.id): each for each in self._held.pop(partition, [])}
            ids |= {sequence_id_of(each.id): each for each in messages if each.topic == partition}
            left = [ids[each] for each in sorted(ids)]
            while left and not self._is_stopping and not self.failure.done():
                if self._committer.is_lost(partition) and not consumer.is_active_in(partition):
                    # The new owner is delivered these too. If the partition comes back, though,
                    # without them a later message would be committed before its time.
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
        """Process and settle the first of these messages of one partition; returns how many."""
        changes = Changes(self._state)
        # Until they are committed: what stands on changes must not be stored before them.
        async with self._turn:
            call = partial(self._process_slice, source, messages, changes)
            outcomes = await self._threads.run(call)
            if not outcomes:
                raise InstanceFailed("the lease of the instance has ended")
            try:
                await self._committer.commit(messages[0].topic, outcomes, changes)
            except geminga.ProducerFenced:
                log.info("partition has moved", extra={"topic": messages[0].topic})
                return 0
        await self._settler.settle(consumer, outcomes)
        return len(outcomes)

    async def _run_on_loop(
        self, source: Input, begun: InOrder, messages: list[geminga.Message[Any]]
    ) -> None:
        """Begin all messages, as many at a time as there is room."""
        for message in messages:
            # Messages that are acknowledged already are not left for another run.
            if self._is_stopping and self._guarantee != ATMOST_ONCE:
                return
            await self._async_room.acquire()
            if not self._may_run():
                raise InstanceFailed("the lease of the instance has ended")
            task = await begun.begin(self._process_async(source, message))
            task.add_done_callback(lambda _: self._async_room.release())

    async def _settle_in_order(self, consumer: geminga.Consumer[Any], begun: InOrder) -> None:
        async def settle(outcome: Outcome) -> None:
            # An asynchronous sink may use the context that it was opened with.
            self._take_changes()
            await self._state.commit()
            await self._settler.settle(consumer, [outcome])

        try:
            await begun.run(settle)
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker is told
            self._fail(error)

    def _process_slice(
        self, source: Input, messages: Sequence[geminga.Message[Any]], state: State
    ) -> list[Outcome]:
        """Process the first of these messages, in the thread of the user's code."""
        is_exact = self._guarantee == EFFECTIVELY_ONCE
        outcomes: list[Outcome] = []
        size, began_s = 0, self._clock.monotonic()
        self.counters.last_invocation_ms = self._clock.wall_ms()  # as precise as a slice is long
        for message in messages:
            if not self._may_run():
                break
            outcome = self._process(source, message, state)
            outcomes.append(outcome)
            size += outcome.size
            is_long = self._now_s - began_s >= SLICE_S or size >= SLICE_BYTES
            # A later message would be processed without what the failed one changes.
            if is_long or (is_exact and outcome.error is not None):
                break
        return outcomes

    def _process(self, source: Input, message: geminga.Message[Any], state: State) -> Outcome:
        counters, context, function = self.counters, self._context, self._function
        outcome = Outcome(message)
        counters.received += 1
        try:
            value = source.value(message)
        except Exception as error:  # noqa: BLE001 - the user's code
            return self._refused(outcome, error, is_user_error=False)
        context.begin(message, Changes(state))
        began_s = self._clock.monotonic()
        try:
            result = (
                function.call(value, context) if function.takes_context else function.call(value)
            )
        except BaseException as error:  # noqa: BLE001 - SystemExit too ends more than this thread
            return self._refused(outcome, error, is_user_error=True)
        finally:
            self._now_s = self._clock.monotonic()
        counters.latency_s += self._now_s - began_s
        return self._with_results(outcome, context, [] if result is None else [result], state)

    async def _process_async(self, source: Input, message: geminga.Message[Any]) -> Outcome:
        counters, function = self.counters, self._function
        outcome = Outcome(message)
        counters.received += 1
        context = copy(self._context)
        try:
            value = source.value(message)
        except Exception as error:  # noqa: BLE001 - the user's code
            return self._refused(outcome, error, is_user_error=False)
        context.begin(message, Changes(self._state))
        counters.last_invocation_ms = self._clock.wall_ms()
        began_s = self._clock.monotonic()
        results: list[Any] = []
        try:
            arguments = (value, context) if function.takes_context else (value,)
            if function.kind is CallKind.ASYNC:
                results.append(await function.call(*arguments))
            else:
                results += [each async for each in function.call(*arguments)]
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the user's code
            return self._refused(outcome, error, is_user_error=True)
        counters.latency_s += self._clock.monotonic() - began_s
        results = [each for each in results if each is not None]
        return self._with_results(outcome, context, results, self._state)

    def _with_results(
        self, outcome: Outcome, context: Context, results: list[Any], state: State
    ) -> Outcome:
        try:
            if results and self._has_output and self._serialize is not None:
                results = [bytes(self._serialize(each)) for each in results]
            # Not before: what fails changes nothing.
            state.apply(context.changes)
        except Exception as error:  # noqa: BLE001 - the user's code
            return self._refused(outcome, error, is_user_error=False)
        outcome.published = context.published
        outcome.size = context.changes.size
        if results and self._has_output:
            outcome.results = results
            outcome.size += sum(len(each) for each in results if isinstance(each, bytes))
        self.counters.processed += 1
        return outcome

    def _take_changes(self) -> None:
        """Apply what a source or a sink has changed by the context that it was opened with."""
        self._state.apply(self._context.changes)
        self._context.changes = Changes(self._state)

    def _refused(self, outcome: Outcome, error: BaseException, *, is_user_error: bool) -> Outcome:
        outcome.error = error
        if is_user_error:
            self.counters.user_exception(error)
            self.logger.error("the function failed", exc_info=error)
        else:
            self.counters.system_exception(error)
            self.logger.warning("message not converted", exc_info=error)
        return outcome

    def _fail(self, error: Exception) -> None:
        if not self.failure.done() and not self._is_stopping:
            self.failure.set_exception(error)
