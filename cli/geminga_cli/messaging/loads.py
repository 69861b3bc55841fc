"""``geminga perf``: loads that publish and receive, and measure how fast a cluster is.

They run in one process, on one event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from random import Random
from struct import Struct
from typing import Any, ClassVar

from geminga import LATEST, Batching, Client, ClientError, Consumer, MessageId, Producer, Reader
from geminga_cli.messaging.options import LATENCY_BYTES_MIN
from geminga_cli.messaging.run import run_with_client
from geminga_cli.output import print_now
from geminga_cli.throughput.meter import Meter, show_figures
from geminga_cli.throughput.pace import Pace
from geminga_runtime.clock import Clock, SystemClock
from geminga_runtime.errors import GemingaError

# Messages that are sent before the clock is read again: 0.2 ms of work.
BURST_MAX = 50
# How often a load that waits checks whether it is over.
LOOK_S = 0.1
# How long `latency` waits, after the last arrival, for messages that are missing.
MISSING_AFTER_S = 10.0
# The beginning of a message whose latency is measured: the id of the run, and when it was sent.
_MARK = Struct(">Qd")
assert _MARK.size == LATENCY_BYTES_MIN
_LETTERS = bytes(range(ord("A"), ord("Z") + 1))
Work = Coroutine[Any, Any, None]


class MessagesMissing(GemingaError):
    """Messages of the latency load did not arrive, though the broker took them."""

    code: ClassVar[str] = "MessagesMissing"


#     begin                  warmup_time                test_duration
#       ├── not counted ──────────┼──────── measured ──────────┤ is_over
class Load:
    """One run: its limits, its meter, and its progress lines.

    ``given.num_messages`` and ``given.test_duration`` limit it; 0 is no limit. The duration begins
    after the warm-up.
    """

    def __init__(self, given: argparse.Namespace, clock: Clock, random: Random) -> None:
        self.given = given
        self.clock = clock
        self.random = random
        begin_s = clock.monotonic() + given.warmup_time
        self._end_s = begin_s + given.test_duration if given.test_duration else float("inf")
        # All works of a load take from the same number. They run on one loop and do not wait
        # between looking and taking, so together they never take too many.
        #
        # Messages that may still be sent or received.
        # A float, because infinity stands for no limit.
        self._left: float = given.num_messages or float("inf")
        self.meter = Meter(begin_s)
        # The first failure of a message.
        self.failure: ClientError | None = None

    def is_over(self) -> bool:
        """Whether one of the limits is reached."""
        return self._left < 1 or self.clock.monotonic() >= self._end_s

    def take(self, wanted: float) -> int:
        """Take up to ``wanted`` of the messages that are left; returns how many."""
        taken = int(min(wanted, self._left))
        self._left -= taken
        return taken

    def left_s(self) -> float | None:
        """How many seconds are left; ``None`` without a limit."""
        left_s = self._end_s - self.clock.monotonic()
        return None if left_s == float("inf") else left_s

    def note_failure(self, error: ClientError | None) -> None:
        """Count a message that was not stored."""
        self.failure = self.failure or error
        self.meter.fail()

    async def run(self, works: Sequence[Work], *, until_first: bool = False) -> None:
        """Run all ``works`` to their end, or with ``until_first`` until one of them has ended.

        Meanwhile a progress line is printed every ``given.stats_interval_seconds``. Raises the
        first error of the works.
        """

        # On standard error: standard output is for the summary alone.
        async def print_progress() -> None:
            interval_s: float = self.given.stats_interval_seconds
            while interval_s:
                await asyncio.sleep(interval_s)
                figures = self.meter.end_period(self.clock.monotonic())
                print(show_figures(figures), file=sys.stderr, flush=True)

        try:
            async with asyncio.TaskGroup() as group:
                # Not among ``works``: it has no end of its own.
                progress = group.create_task(print_progress())
                working = [group.create_task(work) for work in works]
                when = asyncio.FIRST_COMPLETED if until_first else asyncio.ALL_COMPLETED
                await asyncio.wait(working, return_when=when)
                # A work that is cancelled here is not an error: the group ignores the cancellation
                # of its own tasks.
                for task in (progress, *working):
                    task.cancel()
        # The first error of a work, or the interruption: callers expect it without the group.
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def show_summary(self) -> None:
        """Print the figures of the whole load."""
        summary = self.meter.whole.summary(self.clock.monotonic())
        print_now(json.dumps(summary) if self.given.json else show_figures(summary))


async def produce(client: Client, load: Load) -> None:
    """Publish to all topics, by ``given.num_producers`` each. Raises ``ClientError``."""
    given = load.given
    options = _producer_options(given)
    # The same for all messages, and made once: making random bytes would be what is measured.
    payload = bytes(load.random.choices(_LETTERS, k=given.size))
    # All producers are open before the first message is sent: opening them is not measured.
    async with AsyncExitStack() as stack:
        producers = [
            await stack.enter_async_context(client.producer(topic, **options))
            for topic in given.topics
            for _ in range(given.num_producers)
        ]
        # The rate is that of all producers together.
        rate = given.rate / len(producers)
        await load.run(
            [
                _publish(load, each, rate, lambda: payload, on_stored=load.meter.add)
                for each in producers
            ]
        )
    if load.failure is not None:
        raise load.failure


async def _publish(
    load: Load,
    producer: Producer[bytes],
    rate: float,
    payload: Callable[[], bytes],
    *,
    on_stored: Callable[[float, float, int], None] | None,
) -> None:
    """Publish until the load is over, then wait until every message is stored or has failed.

    ``on_stored`` gets the time, the latency in seconds, and the size of each stored message.
    """
    # Stage 1: publish until the load is over, in bursts of what is due.
    clock, given = load.clock, load.given
    pace = Pace(rate, clock.monotonic())
    attributes: dict[str, Any] = {"deliver_after": given.delay} if given.delay else {}
    key = 0

    def receipt(sent_s: float, stored: MessageId | None, error: ClientError | None) -> None:
        if stored is None:
            load.note_failure(error)
        elif on_stored is not None:
            stored_s = clock.monotonic()
            on_stored(stored_s, stored_s - sent_s, given.size)

    while not load.is_over():
        # Looked at between two bursts: at most BURST_MAX messages go out after the failure.
        if given.exit_on_failure and load.failure is not None:
            return
        now_s = clock.monotonic()
        due = pace.due(now_s)
        if due < 1:
            # At a slow pace, the load still ends in time.
            await asyncio.sleep(min(pace.wait_s(now_s), LOOK_S))
            continue
        # The messages are taken before they are sent: another producer, whose turn comes at the
        # next ``await``, counts on what is left.
        for _ in range(load.take(min(due, BURST_MAX))):
            if given.message_key_generation_mode is not None:
                is_random = given.message_key_generation_mode == "random"
                attributes["key"] = str(load.random.getrandbits(31) if is_random else key)
                key += 1
            if given.set_event_time:
                attributes["event_time"] = clock.wall_ms()
            # Waits while too many messages are not stored yet; the latency begins after that.
            await producer.ready()
            producer.send_nowait(payload(), partial(receipt, clock.monotonic()), **attributes)
            pace.add()
    # Stage 2: all receipts are in; the latencies of the last messages count too.
    await producer.flush()


def _producer_options(given: argparse.Namespace) -> dict[str, Any]:
    batching = Batching(given.batch_max_messages, given.batch_max_bytes, given.batch_time_window)
    options: dict[str, Any] = {
        # A message in chunks is sent alone.
        "batching": None if given.disable_batching or given.chunking else batching,
        "compression": given.compression,
        "chunking": given.chunking,
        "access_mode": given.access_mode,
        "name": given.producer_name,
        # 0 is upstream's word for no time-out.
        "send_timeout_s": given.send_timeout / 1000 or None,
    }
    if given.max_outstanding:
        options["pending_messages_max"] = given.max_outstanding
    return options


async def consume(client: Client, load: Load) -> None:
    """Receive the messages of all topics, and acknowledge them. Raises ``ClientError``."""
    given = load.given
    options: dict[str, Any] = {
        "type": given.subscription_type,
        "initial_position": given.subscription_position,
        "receiver_queue_size": given.receiver_queue_size,
        "ack_group_s": given.acks_delay_millis / 1000,
        "batch_index_acks": given.batch_index_ack,
        "replicate_subscription_state": given.replicated,
    }
    async with AsyncExitStack() as stack:
        consumers = [
            await stack.enter_async_context(client.consumer(topic, subscription, **options))
            for topic in given.topics
            for subscription in given.subscriptions
            for _ in range(given.num_consumers)
        ]
        # The consumers share the number of messages: the one that receives the last ends the load.
        works = [_receive(load, each, given.rate) for each in consumers]
        await load.run(works, until_first=True)


async def _receive(load: Load, consumer: Consumer[bytes], rate: float) -> None:
    clock = load.clock
    pace = Pace(rate, clock.monotonic())
    with suppress(TimeoutError):
        # One deadline for the whole load. Where it cancels ``receive``, no message is lost.
        async with asyncio.timeout(load.left_s()):
            while True:
                if rate:
                    await asyncio.sleep(pace.wait_s(clock.monotonic()))
                message = await consumer.receive()
                # Another consumer received the last one that counts. This one stays unacknowledged.
                if not load.take(1):
                    return
                # In whole milliseconds, and as exact as the clocks of the two machines agree.
                latency_s = (clock.wall_ms() - message.publish_time_ms) / 1000
                load.meter.add(clock.monotonic(), latency_s, len(message.data))
                consumer.ack(message)
                pace.add()
                if load.is_over():
                    return


async def latency(client: Client, load: Load) -> None:
    """Measure the time from the call that sends a message until a reader has it.

    Both ends are in this process and have the same clock. A reader leaves no subscription behind.
    Raises ``MessagesMissing``, ``ClientError``.
    """
    given = load.given
    (topic,) = given.topics
    # The reader is opened before the first message is sent, so none is missed.
    trip = _RoundTrip(load)
    async with (
        client.reader(topic, LATEST) as reader,
        client.producer(topic, **_producer_options(given)) as producer,
    ):
        await load.run([trip.publish(producer), trip.read(reader)], until_first=True)
    if load.failure is not None:
        raise load.failure
    if trip.arrived < trip.sent:
        raise MessagesMissing(
            f"{trip.sent - trip.arrived} of {trip.sent} messages did not arrive within "
            f"{MISSING_AFTER_S:g} s after the others"
        )


class _RoundTrip:
    """Messages that carry the time at which they were sent."""

    def __init__(self, load: Load) -> None:
        self._load = load
        # Tells our messages from those that others publish to the topic at the same time.
        self._run_id = load.random.getrandbits(64)
        self._padding = bytes(load.random.choices(_LETTERS, k=load.given.size - _MARK.size))
        self.sent = 0
        self.arrived = 0

    async def publish(self, producer: Producer[bytes]) -> None:
        """Publish, then wait until every message has arrived, or no more arrive."""

        # ``_publish`` calls it right before the message is sent: the time in the mark is that of
        # the call.
        def payload() -> bytes:
            self.sent += 1
            return _MARK.pack(self._run_id, self._load.clock.monotonic()) + self._padding

        await _publish(self._load, producer, self._load.given.rate, payload, on_stored=None)
        # Arrivals are counted as signs of life: a long backlog takes long, and nothing is missing.
        # Reading goes on in the other task. Whichever ends first ends the load (``until_first``),
        # and reading never ends by itself.
        before, silent_s = self.arrived, 0.0
        while self.arrived < self.sent and silent_s < MISSING_AFTER_S:
            await asyncio.sleep(LOOK_S)
            silent_s = 0.0 if self.arrived > before else silent_s + LOOK_S
            before = self.arrived

    async def read(self, reader: Reader[bytes]) -> None:
        """Read until this is cancelled."""
        clock = self._load.clock
        while True:
            body = (await reader.read()).data
            now_s = clock.monotonic()
            # Of another program that publishes to the topic.
            if len(body) < _MARK.size:
                continue
            run_id, sent_s = _MARK.unpack_from(body)
            if run_id == self._run_id:
                self.arrived += 1
                self._load.meter.add(now_s, now_s - sent_s, len(body))


LOADS = {"produce": produce, "consume": consume, "latency": latency}


def run(given: argparse.Namespace) -> int:
    """Run the load; returns the exit code."""

    async def work(client: Client) -> None:
        load = Load(given, SystemClock(), Random())  # noqa: S311 - marks and letters, no secrets
        try:
            await LOADS[given.load](client, load)
        finally:  # also after Ctrl-C, which ends a load without limits
            load.show_summary()

    return run_with_client(given, work)
