"""A topic as a table: the newest value of every key, kept up to date.

``TableView`` is what users hold, ``TableRows`` applies messages as they arrive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar, cast
from weakref import WeakSet

from geminga.consumers.receiver_queue import Lane
from geminga.consumers.topic_group import TopicGroup
from geminga.errors import ClientError, Closed
from geminga.lifecycle import AsyncClosable
from geminga.messages import Message

log = logging.getLogger(__name__)

ValueT = TypeVar("ValueT")


class TableView(AsyncClosable, Mapping[str, ValueT], Generic[ValueT]):
    """A mapping of the keys of topics to the values of their newest messages. Made by
    ``Client.table_view``; closed by ``close``, by ``async with``, or by the client:

        async with client.table_view("prices", schema=geminga.JsonSchema(Price)) as prices:
            print(prices["apples"])
            async for key, price in prices:  # what changes from now on
                ...

    A message without a value deletes its key; a message without a key is ignored. All values are
    held in memory.
    """

    def __init__(self, topics: TopicGroup, rows: TableRows) -> None:
        self._topics = topics
        self._rows = rows

    @property
    def topics(self) -> list[str]:
        """The whole names of its current topics, each partition by itself."""
        return sorted(name for name, topic in self._topics.by_topic.items() if topic.is_open)

    def __getitem__(self, key: str) -> ValueT:
        """The newest value of ``key`` that has arrived. Raises ``KeyError``."""
        return cast(ValueT, self._rows.values[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows.values)

    def __len__(self) -> int:
        return len(self._rows.values)

    def __aiter__(self) -> AsyncIterator[tuple[str, ValueT | None]]:
        """Iterate over changes from now on: keys and their new values, ``None`` for a deleted key.

        A key that changes several times before the iterator gets to it comes once, with its newest
        value. Iteration ends when the view is closed, and raises the ``ClientError`` that ended it
        otherwise.
        """
        changes = _Changes(self._rows)
        self._rows.watchers.add(changes)
        return cast(AsyncIterator[tuple[str, ValueT | None]], changes)

    async def refresh(self) -> None:
        """Wait until the table has everything that was published before this call.

        Limit the wait with ``asyncio.timeout``. Raises ``ClientError``.
        """
        self._topics.check_open()
        # Asked for once: what is published after this call is not waited for, or a busy topic would
        # keep the caller waiting without end.
        last = await self._topics.last_message_ids()
        targets = {topic: each.position for topic, each in last.items() if each.entry_id >= 0}
        # By entries, not by messages: the last entry of a topic may have none, when compaction or
        # an earlier acknowledgement took all of them. Topics may leave the group meanwhile.
        while any(
            topic.last_position is None or topic.last_position < targets[name]
            for name, topic in self._topics.by_topic.items()
            if name in targets
        ):
            await self._rows.arrival()

    async def close(self) -> None:
        """Leave the brokers; the table stays as it is. Closing twice is harmless."""
        await self._topics.close()


@dataclass(slots=True, eq=False)
class TableRows:
    """Applies messages as they arrive, in the place of a receiver queue: no message waits."""

    # The newest value of each key that has one.
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    # Why no more will come.
    error: ClientError | None = None
    # The iterators over changes, as long as they are in use.
    watchers: WeakSet[_Changes] = field(default_factory=WeakSet["_Changes"])
    _arrived: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def put(self, lane: Lane, messages: Sequence[Message[Any]]) -> None:
        """Apply the messages of an entry, in their order."""
        if messages:
            # Before they are applied: the next ones may be on their way meanwhile.
            lane.on_taken(messages)
        for message in messages:
            key = message.key
            if key is None:
                continue
            value: Any = None
            if not message.is_null and message.data:
                try:
                    value = message.value
                except Exception as error:  # noqa: BLE001  # a schema of the user's may raise anything
                    # The key keeps its last readable value: one bad message must not end the view.
                    log.error(  # noqa: TRY400  # the reason is in the error, the place says nothing
                        "unreadable value",
                        extra={"key": key, "id": str(message.id), "reason": str(error)},
                    )
                    continue
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
            for watcher in self.watchers:
                watcher.waiting[key] = value
                watcher.arrived.set()
        # Also without a message: ``refresh`` waits for entries.
        self._arrived.set()

    def clear(self, lane: Lane) -> int:
        """Nothing is dropped: messages that come again are applied again."""
        del lane
        return 0

    def end(self, error: ClientError) -> None:
        """Note that nothing more will arrive."""
        self.error = error
        self._arrived.set()
        for watcher in self.watchers:
            watcher.arrived.set()  # it finds the error

    async def arrival(self) -> None:
        """Wait until something arrives, or raise the error that ended the view."""
        if self.error is not None:
            raise self.error
        # Nothing runs between this and the wait, so that no arrival is missed.
        self._arrived.clear()
        await self._arrived.wait()


@dataclass(eq=False)  # without slots: the table refers to it weakly
class _Changes:
    """An iterator over the changes of a table; at most one change of each key waits in it."""

    rows: TableRows
    # The new values by keys, in the order in which these first changed. The rows add to it, and
    # then set the event.
    waiting: dict[str, object] = field(default_factory=dict[str, object])
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[str, object]:
        while not self.waiting:
            if isinstance(self.rows.error, Closed):
                raise StopAsyncIteration
            if self.rows.error is not None:
                raise self.rows.error
            self.arrived.clear()
            await self.arrived.wait()
        # The oldest change first; one that came meanwhile for the same key has replaced its value
        # in place.
        key = next(iter(self.waiting))
        return key, self.waiting.pop(key)
