"""Calls the user's function for each message, and collects what came of it: an ``Outcome``.

Plain functions are called here in the thread of the user's code, asynchronous ones on the loop.
Nothing is sent or acknowledged here: ``settlement`` does that with the outcomes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import geminga
from geminga_functions.instance.code_loader import CallKind, UserFunction
from geminga_functions.instance.context import Context
from geminga_functions.instance.inputs import Input
from geminga_functions.instance.settlement import Outcome
from geminga_functions.instance.status import Counters
from geminga_functions.state.changes import Changes, State
from geminga_protocol.functions.functions_pb2 import EFFECTIVELY_ONCE, ProcessingGuarantees
from geminga_runtime.clock import Clock

# The thread of the user's code takes a slice of messages at a time, since the way there and back
# costs more than a small function does. It returns what it has processed after SLICE_S, so that
# results of slow code are not held back by the messages that follow.
SLICE_MESSAGES_MAX = 200
SLICE_S = 0.005
# A slice also ends at so many bytes of results and changes. With those of one more message they
# become the entry of a commit, and brokers take entries of 5 MiB.
SLICE_BYTES = 1024 * 1024


@dataclass(slots=True)
class Processor:
    """Calls ``function`` for the messages of one instance.

    Only one slice is processed at a time; the caller holds a lock for that. Coroutines of
    ``process_async`` run side by side on the loop. Each outcome goes through ``succeeded`` or
    ``failed``, which subclasses may extend.
    """

    function: UserFunction
    # Plain functions share it, since they are called one after the other; each call of asynchronous
    # code works with a copy.
    context: Context
    counters: Counters
    clock: Clock
    logger: logging.Logger
    guarantee: ProcessingGuarantees.ValueType
    # Whether the function has an output topic; without one its results are dropped.
    has_output: bool
    # Makes payloads of results. None where the output's schema makes keys and payloads of them.
    serialize: Callable[[Any], Any] | None
    # Whether the instance still has its lease; called before each message.
    may_run: Callable[[], bool]
    # The monotonic time after the last call of a plain function: ``process_slice`` reads it instead
    # of the clock once more for each message.
    _now_s: float = field(default=0.0, init=False)

    def process_slice(
        self, source: Input, messages: Sequence[geminga.Message[Any]], state: State
    ) -> list[Outcome]:
        """Process the first of ``messages`` in this thread; returns one outcome for each.

        An empty list means that the lease has ended.
        """
        is_exact = self.guarantee == EFFECTIVELY_ONCE
        outcomes: list[Outcome] = []
        size, began_s = 0, self.clock.monotonic()
        # Once a slice: no less precise than a slice is long.
        self.counters.last_invocation_ms = self.clock.wall_ms()
        for message in messages:
            if not self.may_run():
                break
            outcome = self._process(source, message, state)
            outcomes.append(outcome)
            size += outcome.size
            is_long = self._now_s - began_s >= SLICE_S or size >= SLICE_BYTES
            # With EFFECTIVELY_ONCE a later message would be processed without the changes of the
            # failed one, which comes before it.
            if is_long or (is_exact and outcome.error is not None):
                break
        return outcomes

    def _process(self, source: Input, message: geminga.Message[Any], state: State) -> Outcome:
        counters, context, function = self.counters, self.context, self.function
        outcome = Outcome(message)
        counters.received += 1
        try:
            value = source.value(message)
        except Exception as error:  # noqa: BLE001 - the user's code
            return self.failed(outcome, error, is_user_error=False)
        # Changes of this message alone, on top of ``state``: ``succeeded`` applies them; those of a
        # failed message are dropped with the context's next ``begin``.
        context.begin(message, Changes(state))
        began_s = self.clock.monotonic()
        try:
            result = (
                function.call(value, context) if function.takes_context else function.call(value)
            )
        except BaseException as error:  # noqa: BLE001 - SystemExit must not end the thread alone
            return self.failed(outcome, error, is_user_error=True)
        finally:
            self._now_s = self.clock.monotonic()
        counters.latency_s += self._now_s - began_s
        return self.succeeded(outcome, context, [] if result is None else [result], state)

    async def process_async(
        self, source: Input, message: geminga.Message[Any], state: State
    ) -> Outcome:
        """Process one message with asynchronous code, while others are processed."""
        counters, function = self.counters, self.function
        outcome = Outcome(message)
        counters.received += 1
        # Other calls run meanwhile, with messages and changes of their own.
        context = copy(self.context)
        try:
            value = source.value(message)
        except Exception as error:  # noqa: BLE001 - the user's code
            return self.failed(outcome, error, is_user_error=False)
        context.begin(message, Changes(state))
        counters.last_invocation_ms = self.clock.wall_ms()
        began_s = self.clock.monotonic()
        results: list[Any] = []
        try:
            arguments = (value, context) if function.takes_context else (value,)
            if function.kind is CallKind.ASYNC:
                results.append(await function.call(*arguments))
            else:
                # All values at once: a generator that fails after some of them has no result, as
                # any failed message.
                results += [each async for each in function.call(*arguments)]
        # The instance closes: the message is neither processed nor failed, and is delivered again.
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the user's code
            return self.failed(outcome, error, is_user_error=True)
        counters.latency_s += self.clock.monotonic() - began_s
        # None stands for no output, as with a plain function.
        results = [each for each in results if each is not None]
        return self.succeeded(outcome, context, results, state)

    def succeeded(
        self, outcome: Outcome, context: Context, results: list[Any], state: State
    ) -> Outcome:
        """Put results into the outcome, and apply what the call changed in the state."""
        try:
            if results and self.has_output and self.serialize is not None:
                results = [bytes(self.serialize(each)) for each in results]
            # After serializing: a message whose result cannot be serialized has failed, and a
            # failed message changes nothing.
            state.apply(context.changes)
        except Exception as error:  # noqa: BLE001 - the user's code
            return self.failed(outcome, error, is_user_error=False)
        # Also those of a message without results: it is acknowledged once they are stored.
        outcome.published = context.published
        outcome.size = context.changes.size
        if results and self.has_output:
            outcome.results = results
            outcome.size += sum(len(each) for each in results if isinstance(each, bytes))
        self.counters.processed += 1
        return outcome

    def failed(self, outcome: Outcome, error: BaseException, *, is_user_error: bool) -> Outcome:
        """Put an error into the outcome, count it and log it.

        ``is_user_error`` says that the user's code raised it, not a conversion.
        """
        outcome.error = error
        if is_user_error:
            self.counters.user_exception(error)
            self.logger.error("the function failed", exc_info=error)
        else:
            self.counters.system_exception(error)
            self.logger.warning("message not converted", exc_info=error)
        return outcome
