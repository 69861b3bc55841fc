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
import base64
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import geminga
import geminga.sync
from geminga_functions.errors import InstanceFailed
from geminga_functions.instance.context import Context, FunctionMessageId, PublishCallback, Result
from geminga_functions.instance.inputs import Input, inputs_of, schema_of, serde_of, subscription_of
from geminga_functions.instance.loading import CallKind, Loader, load_function
from geminga_functions.instance.outputs import IDLE_S, Outputs, sequence_id_of
from geminga_functions.instance.spec import InstanceSpec
from geminga_functions.instance.state import NoState, StateStore
from geminga_functions.instance.status import Counters, InstanceStatus, trace_of
from geminga_protocol.functions.functions_pb2 import ATMOST_ONCE, EFFECTIVELY_ONCE, MANUAL
from geminga_runtime.clock import Clock
from geminga_runtime.service import Service
from geminga_runtime.threads import Threads

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

# Messages that the thread of the user's code is handed at once; it hands back what it has done
# after SLICE_S, so that results of slow code do not wait for each other.
SLICE_MESSAGES_MAX = 200
SLICE_S = 0.005
# What the user's code may have published without receipts, before `Context.publish` waits.
PUBLISHES_MAX = 1000
# Messages that asynchronous code processes at a time.
ASYNC_MESSAGES_MAX = 100
# Characters of up to four bytes each, in a message of 64 KiB.
TRACE_CHARACTERS_MAX = 12 * 1024
# The property of a result that names the message it came of; the names are upstream's.
INPUT_TOPIC = "__pfn_input_topic__"
INPUT_MESSAGE_ID = "__pfn_input_msg_id__"


@dataclass(slots=True)
class Outcome:
    """What came of one message. ``results`` are serialized, unless the output has a schema."""

    message: geminga.Message[Any]
    results: list[Any] = field(default_factory=list[Any])
    published: Sequence[Future[geminga.MessageId]] = ()
    error: BaseException | None = None


class Caller(Protocol):
    """Where the user's code is called: a thread, but for tests without threads."""

    async def run(self, call: Callable[[], ResultT]) -> ResultT:
        """Make ``call``; returns what it returns, raises what it raises."""
        ...

    def close(self) -> None:
        """Call nothing any more."""
        ...


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
        *,
        state: StateStore | None = None,
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
        self._guarantee = spec.details.processingGuarantees
        self._state = state or NoState()
        self._context = Context(
            spec,
            self,
            loader,
            self._state,
            self.counters,
            self.logger,
            lambda _, value: value,
        )
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self.failure: asyncio.Future[Any] = self._loop.create_future()
        self._threads: Caller = threads or Threads(1, f"function {spec.name}")
        self._consumers: list[geminga.Consumer[Any]] = []
        self._pumps: list[asyncio.Task[Any]] = []
        self._idle: dict[asyncio.Task[Any], None] = {}
        self._turn = asyncio.Lock()  # the user's code runs for one input at a time
        self._async_room = asyncio.Semaphore(ASYNC_MESSAGES_MAX)
        self._publish_room = threading.BoundedSemaphore(PUBLISHES_MAX)
        self._publishes: set[asyncio.Task[Any]] = set()
        self._is_stopping = False
        self._sync: geminga.sync.Client | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        details, sink, loader = self.spec.details, self.spec.details.sink, self._loader
        # In the thread that will run it: code may keep what belongs to a thread.
        stack.push_async_callback(self._end_thread)
        self._function = await self._threads.run(partial(load_function, loader, details.className))
        if details.processingGuarantees == EFFECTIVELY_ONCE and self._function.kind is not (
            CallKind.PLAIN
        ):
            raise InstanceFailed(
                "EFFECTIVELY_ONCE needs a function that gives one result for each message, "
                "one after the other: neither 'async def' nor a generator",
                is_user_error=True,
            )
        inputs = await self._threads.run(partial(inputs_of, loader, details, self.spec.name))
        schema = schema_of(loader, sink.schemaType, sink.typeClassName, dict(sink.schemaProperties))
        self._serialize = (
            None if schema is not None else serde_of(loader, sink.serDeClassName).serialize
        )
        self._outputs = Outputs(self.spec, self._client, schema)
        stack.push_async_callback(self._outputs.close)
        if details.logTopic:
            handler = LogTopic(self, details.logTopic)
            self.logger.addHandler(handler)
            stack.callback(self.logger.removeHandler, handler)
        self.logger.setLevel(logging.INFO)
        if details.processingGuarantees == EFFECTIVELY_ONCE:
            self.spawn_every(IDLE_S, self._outputs.close_idle, name="idle producers")
        for each in inputs:
            consumer: geminga.Consumer[Any] = await stack.enter_async_context(
                self._client.consumer(
                    each.topics, subscription_of(details), schema=each.schema, **each.options
                )
            )
            if details.source.skipToLatest:
                await consumer.seek(geminga.LATEST)
            self._consumers.append(consumer)
            pump = self.spawn(self._pump(each, consumer), name=f"input {each.topics}")
            self._pumps.append(pump)

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
        if self._publishes:
            await asyncio.wait(self._publishes)

    def status(self) -> InstanceStatus:
        """What it counted; any thread may ask."""
        return self.counters.status()

    # ---- consuming

    async def _pump(self, source: Input, consumer: geminga.Consumer[Any]) -> None:
        """Process what one consumer receives, until the instance stops."""
        task = asyncio.current_task()
        assert task is not None
        try:
            while not self._is_stopping:
                self._idle[task] = None
                messages = [await consumer.receive()]
                del self._idle[task]
                messages += await consumer.receive_many(SLICE_MESSAGES_MAX - 1, 0)
                if self._guarantee == ATMOST_ONCE:
                    for message in messages:
                        consumer.ack(message)
                if self._function.kind is CallKind.PLAIN:
                    await self._run_in_thread(source, consumer, messages)
                else:
                    await self._run_on_loop(source, consumer, messages)
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker is told
            self._fail(error)
        finally:
            self._idle.pop(task, None)

    async def _run_in_thread(
        self, source: Input, consumer: geminga.Consumer[Any], messages: list[geminga.Message[Any]]
    ) -> None:
        done = 0
        # Messages that are acknowledged already are not left for another run.
        while done < len(messages) and (not self._is_stopping or self._guarantee == ATMOST_ONCE):
            async with self._turn:
                call = partial(self._process_slice, source, messages[done:])
                outcomes = await self._threads.run(call)
            if not outcomes:
                raise InstanceFailed("the lease of the instance has ended")
            done += len(outcomes)
            # State first: what came of a message is not acknowledged before all of it is stored.
            await self._state.commit()
            for outcome in outcomes:
                await self._settle(consumer, outcome)

    async def _run_on_loop(
        self, source: Input, consumer: geminga.Consumer[Any], messages: list[geminga.Message[Any]]
    ) -> None:
        """Begin all messages, as many at a time as there is room; settle them in their order."""
        begun: list[asyncio.Task[Outcome]] = []
        for message in messages:
            await self._async_room.acquire()
            if not self._may_run():
                raise InstanceFailed("the lease of the instance has ended")
            task = self._loop.create_task(self._process_async(source, message))
            task.add_done_callback(lambda _: self._async_room.release())
            begun.append(task)
        for task in begun:
            outcome = await task
            await self._state.commit()
            await self._settle(consumer, outcome)

    def _process_slice(
        self, source: Input, messages: Sequence[geminga.Message[Any]]
    ) -> list[Outcome]:
        """Process the first of these messages, in the thread of the user's code."""
        outcomes: list[Outcome] = []
        began_s = self._clock.monotonic()
        for message in messages:
            if not self._may_run():
                break
            outcomes.append(self._process(source, message))
            if self._clock.monotonic() - began_s >= SLICE_S:
                break
        return outcomes

    def _process(self, source: Input, message: geminga.Message[Any]) -> Outcome:
        counters, context, function = self.counters, self._context, self._function
        outcome = Outcome(message)
        counters.received += 1
        try:
            value = source.value(message)
        except Exception as error:  # noqa: BLE001 - the user's code
            return self._refused(outcome, error, is_user_error=False)
        context.begin(message)
        counters.last_invocation_ms = self._clock.wall_ms()
        began_s = self._clock.monotonic()
        try:
            arguments = (value, context) if function.takes_context else (value,)
            result = function.call(*arguments)
        except BaseException as error:  # noqa: BLE001 - SystemExit too ends more than this thread
            return self._refused(outcome, error, is_user_error=True)
        counters.latency_s += self._clock.monotonic() - began_s
        outcome.published = context.published
        return self._with_results(outcome, [] if result is None else [result])

    async def _process_async(self, source: Input, message: geminga.Message[Any]) -> Outcome:
        counters, function = self.counters, self._function
        outcome = Outcome(message)
        counters.received += 1
        context = copy(self._context)
        try:
            value = source.value(message)
        except Exception as error:  # noqa: BLE001 - the user's code
            return self._refused(outcome, error, is_user_error=False)
        context.begin(message)
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
        outcome.published = context.published
        return self._with_results(outcome, [each for each in results if each is not None])

    def _with_results(self, outcome: Outcome, results: list[Any]) -> Outcome:
        try:
            if self._serialize is not None and self.spec.details.sink.topic:
                results = [bytes(self._serialize(each)) for each in results]
        except Exception as error:  # noqa: BLE001 - the user's code
            return self._refused(outcome, error, is_user_error=False)
        if self.spec.details.sink.topic:
            outcome.results = results
        self.counters.processed += 1
        return outcome

    def _refused(self, outcome: Outcome, error: BaseException, *, is_user_error: bool) -> Outcome:
        outcome.error = error
        if is_user_error:
            self.counters.user_exception(error)
            self.logger.error("the function failed", exc_info=error)
        else:
            self.counters.system_exception(error)
            log.warning("message not converted", exc_info=error)
        return outcome

    # ---- what becomes of a message

    async def _settle(self, consumer: geminga.Consumer[Any], outcome: Outcome) -> None:
        """Send the results of a message, and acknowledge it once all is stored."""
        error = outcome.error
        if error is not None and (
            self._guarantee == EFFECTIVELY_ONCE or not isinstance(error, Exception)
        ):
            trace = trace_of(error, TRACE_CHARACTERS_MAX)
            raise InstanceFailed(trace, is_user_error=True)
        if error is not None:
            if self._guarantee != ATMOST_ONCE:
                consumer.nack(outcome.message)
            return
        is_acknowledged_here = self._guarantee not in (ATMOST_ONCE, MANUAL)
        left = len(outcome.results) + len(outcome.published)
        done = Pending(
            outcome.message,
            consumer,
            self.counters,
            left,
            is_acknowledged_here=is_acknowledged_here,
        )
        for future in outcome.published:
            future.add_done_callback(partial(self._published, done))
        for result in outcome.results:
            await self._send(done, result)
        if not left:
            done.end()

    async def _send(self, done: Pending, result: Any) -> None:  # noqa: ANN401 - the user's
        message = done.message
        options: geminga.MessageOptions = {
            "properties": {INPUT_TOPIC: message.topic, INPUT_MESSAGE_ID: id_text(message)}
        }
        if self._guarantee == EFFECTIVELY_ONCE:
            numbered = await self._outputs.of_partition(message.topic)
            producer, sequence_id = numbered.producer, sequence_id_of(message.id)
            if sequence_id <= numbered.stored:
                done.stored(None, None)
                return
            options["sequence_id"] = sequence_id
        else:
            producer = await self._outputs.of_results()
        await producer.ready()
        try:
            producer.send_nowait(result, done.stored, **options)
        except (ValueError, TypeError, geminga.MessageTooLarge) as error:
            done.stored(None, error)

    def _published(self, done: Pending, future: Future[geminga.MessageId]) -> None:
        self._loop.call_soon_threadsafe(done.published, future.exception())

    def _fail(self, error: Exception) -> None:
        if not self.failure.done() and not self._is_stopping:
            self.failure.set_exception(error)

    # ---- Services: what contexts need

    def publish(
        self,
        topic: str,
        payload: bytes,
        options: geminga.MessageOptions,
        compression: str,
        callback: PublishCallback | None,
    ) -> Future[geminga.MessageId]:
        """As ``Services.publish``."""
        # Asynchronous code cannot wait here: it would hold up the loop that makes room.
        is_bounded = threading.get_ident() != self._loop_thread
        if is_bounded:
            self._publish_room.acquire()
        future = asyncio.run_coroutine_threadsafe(
            self._publish(topic, payload, options, compression), self._loop
        )

        def report(future: Future[geminga.MessageId]) -> None:
            if is_bounded:
                self._publish_room.release()
            error = future.exception()
            if error is not None:
                self.counters.system_exception(error)
            if callback is None:
                return
            if error is None:
                callback(Result.Ok, FunctionMessageId(future.result()))
            else:
                callback(Result.UnknownError, None)

        future.add_done_callback(report)
        return future

    async def _publish(
        self, topic: str, payload: bytes, options: geminga.MessageOptions, compression: str
    ) -> geminga.MessageId:
        task = asyncio.current_task()
        assert task is not None
        self._publishes.add(task)
        task.add_done_callback(self._publishes.discard)
        producer = await self._outputs.of(topic, compression)
        return await producer.send(payload, **options)

    def acknowledge(self, message_id: geminga.MessageId, topic: str) -> None:
        """As ``Services.acknowledge``."""
        for consumer in self._consumers:
            if topic in consumer.topics or message_id.topic in consumer.topics:
                self._loop.call_soon_threadsafe(consumer.ack, message_id)
                return
        raise ValueError(f"{topic} is no topic that the function consumes")

    def sync_client(self) -> geminga.sync.Client:
        """As ``Services.sync_client``."""
        if self._sync is None:
            self._sync = geminga.sync.connect(self.spec.service_url)
        return self._sync


class Pending:
    """A message with ``left`` results that are not stored yet; it is acknowledged after the last.

    One that could not be stored has the message come again.
    """

    __slots__ = ("_consumer", "_counters", "_error", "_is_acknowledged_here", "_left", "message")

    def __init__(
        self,
        message: geminga.Message[Any],
        consumer: geminga.Consumer[Any],
        counters: Counters,
        left: int,
        *,
        is_acknowledged_here: bool,
    ) -> None:
        self.message = message
        self._consumer = consumer
        self._counters = counters
        self._left = left
        self._error: BaseException | None = None
        self._is_acknowledged_here = is_acknowledged_here

    def stored(self, _: geminga.MessageId | None, error: Exception | None) -> None:
        """A result is stored, or is not for ``error``: the callback of its producer."""
        if error is None:
            self._counters.written += 1
        else:
            self._counters.system_exception(error)
        self.published(error)

    def published(self, error: BaseException | None) -> None:
        """One less is left."""
        self._error = self._error or error
        self._left -= 1
        if self._left == 0:
            self.end()

    def end(self) -> None:
        """Acknowledge the message, or have it delivered again."""
        try:
            if self._error is not None:
                self._consumer.nack(self.message)
            elif self._is_acknowledged_here:
                self._consumer.ack(self.message)
        except geminga.ClientError:
            log.info("message not acknowledged: the consumer has ended", exc_info=True)


class LogTopic(logging.Handler):
    """Publishes what a function logs to its log topic."""

    def __init__(self, instance: Instance, topic: str) -> None:
        super().__init__()
        self._instance = instance
        self._topic = topic
        self.setFormatter(logging.Formatter("[%(asctime)s] [%(levelname)s]: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Publish one record."""
        options: geminga.MessageOptions = {"properties": {"loglevel": record.levelname}}
        payload = self.format(record).encode()
        self._instance.publish(self._topic, payload, options, "none", None)


def id_text(message: geminga.Message[Any]) -> str:
    """The id of a message as properties have it: Base64, as upstream's."""
    return base64.urlsafe_b64encode(message.id.to_bytes()).decode()
