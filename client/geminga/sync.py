"""The client for programs without an event loop: every call returns when it is done.

```python
with geminga.sync.connect("pulsar://localhost:6650") as client:
    with client.producer("orders") as producer:
        producer.send(b"one more")
    with client.consumer("orders", "billing") as consumer:
        for message in consumer:
            print(message.value)
            consumer.ack(message)
```

A client runs the asyncio client of ``geminga`` on a loop in a thread of its own, and several
threads may use it at the same time. Ctrl-C ends a call that waits. The classes of ``geminga`` with
the same names explain the arguments and options, and which errors are raised; all calls besides
raise ``Closed`` once the client is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, Unpack, overload

import geminga.client
from geminga._loop_thread import LoopThread
from geminga.consumers import consumer as consumers
from geminga.consumers import reader as readers
from geminga.consumers import table_view as table_views
from geminga.consumers.factory import Topics
from geminga.consumers.options import ConsumerOptions, ReaderOptions, TableViewOptions
from geminga.errors import ClientError, Closed
from geminga.lifecycle import Opening
from geminga.message_ids import EARLIEST, MessageId
from geminga.messages import Message
from geminga.producers import producer as producers
from geminga.producers.options import MessageOptions, ProducerOptions
from geminga.producers.outgoing.batches import SendCallback
from geminga.schemas.schema import Schema

__all__ = ["Client", "Consumer", "Producer", "Reader", "TableView", "connect"]

ValueT = TypeVar("ValueT")
P = ParamSpec("P")


# What runs on the loop.
AsyncT = TypeVar(
    "AsyncT",
    bound=geminga.client.Client
    | producers.Producer[Any]
    | consumers.TopicsReceiver[Any]
    | table_views.TableView[Any],
)


# What a call costs: two hand-overs between threads, some 60 us (CPython 3.11). Calls that only
# collect something (``ack``, ``nack``) make them, too: what is below must not be used from two
# threads.
class _OnLoop(Generic[AsyncT]):
    """Something of ``geminga`` that works on a client's loop, and that a ``with`` block closes."""

    def __init__(self, loop: LoopThread, inner: AsyncT) -> None:
        self._loop = loop
        # Only the loop's thread may touch it: other threads go by ``LoopThread``.
        self._inner = inner

    def close(self) -> None:
        """Close it as ``geminga`` does, and wait until that is done. Closing twice is harmless."""

        async def closing() -> ClientError | None:
            try:
                await self._inner.close()
            except ClientError as error:
                return error
            return None

        # Returned, since it may be a ``Closed``, too: that of messages that were not stored.
        failure: ClientError | None = None
        with suppress(Closed):  # the client was closed before, and with it what it had opened
            failure = self._loop.run(closing())
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        # The error that ended the block must not be hidden behind that of a message.
        with suppress(ClientError):
            self.close()


class Producer(_OnLoop[producers.Producer[ValueT]], Generic[ValueT]):
    """Publishes messages to a topic, as ``geminga.Producer`` does. Made by ``Client.producer``;
    closing it waits for the receipts of what was sent."""

    def __init__(self, loop: LoopThread, producer: producers.Producer[ValueT]) -> None:
        super().__init__(loop, producer)
        # Copied, since neither changes: reading them needs no call into the loop's thread.
        self.topic = producer.topic
        """The whole name of the topic."""
        self.name = producer.name
        """The producer's name, chosen by the broker if the options have none."""

    @property
    def last_sequence_id(self) -> int:
        """The sequence id of the last message that was sent; -1 before the first."""
        # Read in the thread that changes it.
        return self._loop.call(lambda: self._inner.last_sequence_id)

    def send(self, value: ValueT | None, **options: Unpack[MessageOptions]) -> MessageId:
        """Send a message, wait until it is stored, and return its id. ``None`` is a null value.

        ``geminga.MessageOptions`` explains the options: ``producer.send(order, key="eu")``.
        """
        return self._loop.run(self._inner.send(value, **options))

    def send_nowait(
        self,
        value: ValueT | None,
        callback: SendCallback | None = None,
        **options: Unpack[MessageOptions],
    ) -> None:
        """Send a message with its batch; waits only while too many messages are pending.

        ``callback(message_id, error)`` is called once, in the thread of the client: it must neither
        take long nor call the client. Without one, the first error is raised by the next call of
        ``send_nowait``, ``flush`` or ``close``.
        """

        async def work() -> None:
            # In one call with the sending: two would be two hand-overs between threads.
            await self._inner.ready()
            # There is room: nothing is awaited since ``ready`` returned.
            self._inner.send_nowait(value, callback, **options)

        self._loop.run(work())

    def flush(self) -> None:
        """Wait until everything that was sent is stored, or raise the first error."""
        self._loop.run(self._inner.flush())


# What ``async for`` gives messages of.
ReceiverT = TypeVar("ReceiverT", bound=consumers.TopicsReceiver[Any])


class _Receiver(_OnLoop[ReceiverT], Generic[ReceiverT, ValueT]):
    """What consumers and readers have in common."""

    def __iter__(self) -> Iterator[Message[ValueT]]:
        """Receive messages, one after the other, until this is closed."""

        async def following() -> Message[ValueT] | None:
            # ``None`` at the end: asyncio's futures cannot hold an exception that ends an
            # iteration.
            try:
                return await anext(self._inner)
            except StopAsyncIteration:
                return None

        while (message := self._loop.run(following())) is not None:
            yield message

    def seek(self, to: MessageId | int | datetime) -> None:
        """Move to a message, or to a publish time (a ``datetime``, or milliseconds since 1970-01-01
        UTC). A consumer moves its subscription with it."""
        self._loop.run(self._inner.seek(to))


class Consumer(_Receiver[consumers.Consumer[ValueT], ValueT]):
    """Receives messages, as ``geminga.Consumer`` does. Made by ``Client.consumer``; closing it
    leaves the brokers, and keeps the subscription."""

    @property
    def topics(self) -> list[str]:
        """The whole names of its current topics, each partition by itself, sorted."""
        return self._loop.call(lambda: self._inner.topics)

    def receive(self, timeout_s: float | None = None) -> Message[ValueT]:
        """Wait for the next message and return it.

        Raises ``TimeoutError`` when none has come after ``timeout_s`` seconds; no message is lost.
        """
        # The loop keeps the time: a call that it cancels takes no message with it.
        return self._loop.run(self._inner.receive(), timeout_s)

    def receive_many(
        self, max_messages: int = 100, max_wait_s: float = 0.1
    ) -> list[Message[ValueT]]:
        """Return the next messages: ``max_messages``, or as many as have come within ``max_wait_s``
        seconds, which may be none."""
        return self._loop.run(self._inner.receive_many(max_messages, max_wait_s))

    def ack(self, message: Message[Any] | MessageId) -> None:
        """Acknowledge a message: it need not be delivered again. The broker learns of it soon."""
        # Acknowledgements are collected, and leave together: there is nothing to wait for.
        self._loop.call(self._inner.ack, message)

    def ack_cumulative(self, message: Message[Any] | MessageId) -> None:
        """Acknowledge a message and all before it in its topic."""
        self._loop.call(self._inner.ack_cumulative, message)

    def nack(self, message: Message[Any] | MessageId) -> None:
        """Refuse a message: it is delivered again after ``nack_delay_s``."""
        self._loop.call(self._inner.nack, message)

    def ack_confirmed(self, *messages: Message[Any] | MessageId, cumulative: bool = False) -> None:
        """Acknowledge messages, and wait until the broker has stored that."""
        self._loop.run(self._inner.ack_confirmed(*messages, cumulative=cumulative))

    def unsubscribe(self) -> None:
        """Delete the subscription, and close the consumer."""
        # The brokers' answers are waited for: the subscription is gone when this returns.
        self._loop.run(self._inner.unsubscribe())


class Reader(_Receiver[readers.Reader[ValueT], ValueT]):
    """Reads topics, as ``geminga.Reader`` does. Made by ``Client.reader``."""

    def read(self, timeout_s: float | None = None) -> Message[ValueT]:
        """Wait for the next message and return it.

        Raises ``TimeoutError`` when none has come after ``timeout_s`` seconds.
        """
        return self._loop.run(self._inner.read(), timeout_s)

    def has_message_available(self) -> bool:
        """Is there a message that was not read yet, here or at a broker?"""
        return self._loop.run(self._inner.has_message_available())


class TableView(_OnLoop[table_views.TableView[ValueT]], Mapping[str, ValueT], Generic[ValueT]):
    """A mapping of keys to their newest values, as ``geminga.TableView``. Made by
    ``Client.table_view``.

    Iterating over it gives the keys that the table had when the iteration began. Once it is closed,
    it stays as it is; once its client is closed, it cannot be read any more.
    """

    def __getitem__(self, key: str) -> ValueT:
        return self._loop.call(self._inner.__getitem__, key)

    def __iter__(self) -> Iterator[str]:
        # A copy: the table changes in the loop's thread while the caller goes through its keys.
        return iter(self._loop.call(lambda: list(self._inner)))

    def __len__(self) -> int:
        return self._loop.call(lambda: len(self._inner))

    def refresh(self) -> None:
        """Wait until the table has everything that was published before this call."""
        self._loop.run(self._inner.refresh())


class Client(_OnLoop[geminga.client.Client]):
    """The way into a Pulsar cluster, as ``geminga.Client`` is. Made by ``connect``."""

    @overload
    def producer(
        self, topic: str, *, schema: None = None, **options: Unpack[ProducerOptions]
    ) -> Producer[bytes]: ...

    @overload
    def producer(
        self, topic: str, *, schema: Schema[ValueT], **options: Unpack[ProducerOptions]
    ) -> Producer[ValueT]: ...

    def producer(
        self, topic: str, *, schema: Schema[Any] | None = None, **options: Unpack[ProducerOptions]
    ) -> Producer[Any]:
        """Open a producer on ``topic``: returns when a broker has accepted it."""
        client = self._inner
        return Producer(
            self._loop, self._loop.open(lambda: client.producer(topic, schema=schema, **options))
        )

    @overload
    def consumer(
        self,
        topics: Topics,
        subscription: str,
        *,
        schema: None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer[bytes]: ...

    @overload
    def consumer(
        self,
        topics: Topics,
        subscription: str,
        *,
        schema: Schema[ValueT],
        **options: Unpack[ConsumerOptions],
    ) -> Consumer[ValueT]: ...

    def consumer(
        self,
        topics: Topics,
        subscription: str,
        *,
        schema: Schema[Any] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer[Any]:
        """Open a consumer of ``topics`` for ``subscription``: returns when brokers have accepted it
        for each topic."""
        client = self._inner
        opened = self._loop.open(
            lambda: client.consumer(topics, subscription, schema=schema, **options)
        )
        return Consumer(self._loop, opened)

    @overload
    def reader(
        self,
        topics: str | Sequence[str],
        start: MessageId | datetime = EARLIEST,
        *,
        start_inclusive: bool = False,
        schema: None = None,
        **options: Unpack[ReaderOptions],
    ) -> Reader[bytes]: ...

    @overload
    def reader(
        self,
        topics: str | Sequence[str],
        start: MessageId | datetime = EARLIEST,
        *,
        start_inclusive: bool = False,
        schema: Schema[ValueT],
        **options: Unpack[ReaderOptions],
    ) -> Reader[ValueT]: ...

    def reader(
        self,
        topics: str | Sequence[str],
        start: MessageId | datetime = EARLIEST,
        *,
        start_inclusive: bool = False,
        schema: Schema[Any] | None = None,
        **options: Unpack[ReaderOptions],
    ) -> Reader[Any]:
        """Open a reader of ``topics`` from ``start`` on: returns when brokers have accepted it for
        each topic."""
        client, inclusive = self._inner, start_inclusive
        opened = self._loop.open(
            lambda: client.reader(
                topics, start, start_inclusive=inclusive, schema=schema, **options
            )
        )
        return Reader(self._loop, opened)

    @overload
    def table_view(
        self,
        topics: str | Sequence[str],
        *,
        schema: None = None,
        **options: Unpack[TableViewOptions],
    ) -> TableView[bytes]: ...

    @overload
    def table_view(
        self,
        topics: str | Sequence[str],
        *,
        schema: Schema[ValueT],
        **options: Unpack[TableViewOptions],
    ) -> TableView[ValueT]: ...

    def table_view(
        self,
        topics: str | Sequence[str],
        *,
        schema: Schema[Any] | None = None,
        **options: Unpack[TableViewOptions],
    ) -> TableView[Any]:
        """Open a mapping of the keys of ``topics`` to their newest values: returns when it has
        everything that was published before."""
        client = self._inner
        return TableView(
            self._loop, self._loop.open(lambda: client.table_view(topics, schema=schema, **options))
        )

    def partitions(self, topic: str) -> int:
        """How many partitions ``topic`` has; 0 if it is not partitioned."""
        return self._loop.run(self._inner.partitions(topic))

    def close(self) -> None:
        """Close all producers and consumers, the connections, and the thread."""
        try:
            super().close()
        finally:
            # Also after an error, or the thread would live on without an owner.
            self._loop.stop()


def _connecting(open_client: Callable[P, Opening[geminga.client.Client]]) -> Callable[P, Client]:
    """A function that has the parameters of ``geminga.connect``, for type checkers too."""

    # Each client has a thread of its own: a callback that blocks holds up one client alone.
    def connect_in_thread(*args: P.args, **options: P.kwargs) -> Client:
        """Make a client of the cluster at ``service_url``, with the options of
        ``geminga.connect``; close it by ``with`` or ``close``."""
        # A failed opening stops the thread again: there is no client that could do it.
        loop = LoopThread()
        try:
            return Client(loop, loop.open(lambda: open_client(*args, **options)))
        except BaseException:
            loop.stop()
            raise

    return connect_in_thread


connect = _connecting(geminga.client.connect)
