"""Does for the user's code what needs a broker: publishes, and acknowledges messages that it names.

The code calls from its own thread, or from the loop where it is asynchronous; the producers belong
to the loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import geminga
import geminga.sync
from geminga_functions.instance.outputs import Outputs
from geminga_functions.instance.spec import InstanceSpec
from geminga_functions.instance.status import Counters

# Messages of the user's code that may wait for their receipts before `Context.publish` blocks.
PUBLISHES_MAX = 1000

# How long an instance that ends waits for the receipts of what it published last, such as the error
# in its log topic.
CLOSE_TIMEOUT_S = 2.0


class Result(IntEnum):
    """The outcome that the callback of ``Context.publish`` gets; upstream's client has more."""

    Ok = 0
    UnknownError = 1


@dataclass(frozen=True, slots=True)
class FunctionMessageId:
    """A message id with the methods that it has in the official client."""

    id: geminga.MessageId

    def ledger_id(self) -> int:
        """The ledger that the message is stored in."""
        return self.id.ledger_id

    def entry_id(self) -> int:
        """Its entry in the ledger."""
        return self.id.entry_id

    def batch_index(self) -> int:
        """Its place in its batch, -1 without one."""
        return self.id.batch_index

    def partition(self) -> int:
        """The partition of its topic, -1 without one."""
        return self.id.partition

    def serialize(self) -> bytes:
        """The id in the form that every Pulsar client reads."""
        return self.id.to_bytes()

    def __str__(self) -> str:
        return str(self.id)


PublishCallback = Callable[[Result, FunctionMessageId | None], object]


# The way of a message that the code publishes:
#
#   thread of the code                      loop of the instance
#   publish -- run_coroutine_threadsafe --> _publish -> Outputs.of -> producer.send
#   future, callback <------- receipt ---------------------------------------
class Publisher:
    """Publishes messages for the code of one instance, and acknowledges those it names.

    ``consumers`` are those of the instance; there may be more of them later.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        outputs: Outputs,
        counters: Counters,
        consumers: Sequence[geminga.Consumer[Any]],
    ) -> None:
        self._spec = spec
        self._outputs = outputs
        self._counters = counters
        self._consumers = consumers
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        # Taken by a publish from another thread than the loop's, given back with its receipt.
        self._room = threading.BoundedSemaphore(PUBLISHES_MAX)
        # Messages without a receipt. Threads change it too, so it is copied before it is iterated.
        self._publishes: set[Future[geminga.MessageId]] = set()
        # Opened when the user's code asks for it: few do.
        self._sync: geminga.sync.Client | None = None

    def publish(
        self,
        topic: str,
        payload: bytes,
        options: geminga.MessageOptions,
        compression: str,
        callback: PublishCallback | None,
    ) -> Future[geminga.MessageId]:
        """Publish a message; blocks where too many messages wait for receipts.

        ``compression`` is the name of a compression type, or "none".
        """
        # Asynchronous code must not block here: the receipts that make room come on its own loop.
        is_bounded = threading.get_ident() != self._loop_thread
        if is_bounded:
            self._room.acquire()
        future = asyncio.run_coroutine_threadsafe(
            self._publish(topic, payload, options, compression), self._loop
        )
        self._publishes.add(future)

        def report(future: Future[geminga.MessageId]) -> None:
            # In the thread of the loop, or in that of the code if the future is done already.
            self._publishes.discard(future)
            if is_bounded:
                self._room.release()
            if future.cancelled():
                return  # the instance ends, and it is unknown whether the message is stored
            # What the callback of the user raises is logged by ``concurrent.futures``, and ends
            # nothing.
            error = future.exception()
            if error is not None:
                self._counters.system_exception(error)
            if callback is None:
                return
            if error is None:
                callback(Result.Ok, FunctionMessageId(future.result()))
            else:
                callback(Result.UnknownError, None)

        # Last: the callback may come at once, in this thread.
        future.add_done_callback(report)
        return future

    async def _publish(
        self, topic: str, payload: bytes, options: geminga.MessageOptions, compression: str
    ) -> geminga.MessageId:
        producer = await self._outputs.of(topic, compression)
        return await producer.send(payload, **options)

    def acknowledge(self, message_id: geminga.MessageId, topic: str) -> None:
        """Acknowledge a message of an input. Raises ``ValueError`` for another topic."""
        # A consumer lists each partition by itself; callers often name the partitioned topic, and
        # the id then has the partition.
        for consumer in self._consumers:
            if topic in consumer.topics or message_id.topic in consumer.topics:
                # Consumers belong to the loop, and this is called in the thread of the code.
                self._loop.call_soon_threadsafe(consumer.ack, message_id)
                return
        raise ValueError(f"{topic} is no topic that the function consumes")

    def sync_client(self) -> geminga.sync.Client:
        """A client for the user's code, whose calls block."""
        # Without a lock: the code of one instance runs in one thread, or on one loop.
        if self._sync is None:
            self._sync = geminga.sync.connect(self._spec.service_url, tls=self._spec.client_tls)
        return self._sync

    async def finish(self) -> None:
        """Wait until all that was published is stored, or has failed."""
        # What is published after this copy, such as by a thread that the code has started, is not
        # waited for.
        futures = [asyncio.wrap_future(each) for each in self._publishes.copy()]
        await asyncio.gather(*futures, return_exceptions=True)

    async def close(self) -> None:
        """Wait a while for receipts, then close the client of the user's code.

        The log record that says why the instance ended is often the last message.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.finish()
        if self._sync is not None:
            # It has a loop and a thread of its own, and waits for them.
            await asyncio.to_thread(self._sync.close)


@contextmanager
def logging_to(topic: str, publisher: Publisher, logger: logging.Logger) -> Generator[None]:
    """Publish the records of ``logger`` to ``topic``, until the block ends."""
    handler = LogTopic(publisher, topic)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class LogTopic(logging.Handler):
    """A handler that publishes log records of a function to its log topic."""

    def __init__(self, publisher: Publisher, topic: str) -> None:
        super().__init__()
        self._publisher = publisher
        self._topic = topic
        self.setFormatter(logging.Formatter("[%(asctime)s] [%(levelname)s]: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Publish one record."""
        options: geminga.MessageOptions = {"properties": {"loglevel": record.levelname}}
        payload = self.format(record).encode()
        # The receipt is not waited for by a message: a log topic that is down holds up no input.
        self._publisher.publish(self._topic, payload, options, "none", None)
