"""A topic as a table: the newest value of every key, kept up to date."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
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
    """Made by ``Client.table_view``; closed by ``close``, by ``async with``, or by the client.

    A mapping of the keys to the values of their newest messages. A message without a value takes
    its key out of the table; one without a key is left out. ``async for key, value in view`` gives
    what changes from now on. Values are held in memory, all of them.
    """

    def __init__(self, topics: TopicGroup, rows: TableRows) -> None:
        self._topics = topics
        self._rows = rows

    @property
    def topics(self) -> list[str]:
        """The whole names of its topics at this moment, partitions each by itself."""
        return sorted(name for name, topic in self._topics.by_topic.items() if topic.is_open)

    def __getitem__(self, key: str) -> ValueT:
        """The newest value of ``key``, as far as it has come. Raises ``KeyError``."""
        return cast(ValueT, self._rows.values[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows.values)

    def __len__(self) -> int:
        return len(self._rows.values)

    def __aiter__(self) -> AsyncIterator[tuple[str, ValueT | None]]:
        """What changes from now on: keys and their new values, ``None`` for a key that is gone.

        Of a key that changes more often than is asked for, the newest value is given. Ends when
        the view is closed, and raises the ``ClientError`` that ended it otherwise.
        """
        changes = _Changes(self._rows.error)
        self._rows.watchers.add(changes)
        return cast(AsyncIterator[tuple[str, ValueT | None]], changes)

    async def refresh(self) -> None:
        """Wait until the table has everything that was published before this call.

        Raises ``ClientError``. Limit the wait with ``asyncio.timeout``.
        """
        self._topics.check_open()
        last = await self._topics.last_message_ids()
        targets = {topic: each.position for topic, each in last.items() if each.entry_id >= 0}

        def is_there() -> bool:
            return all(
                topic.last_position is not None and topic.last_position >= targets[name]
                for name, topic in self._topics.by_topic.items()
                if name in targets
            )

        await self._rows.wait_for(is_there)

    async def close(self) -> None:
        """Leave the brokers; the table stays as it is. Closing twice is harmless."""
        await self._topics.close()


class TableRows:
    """Takes messages in where a consumer has its receiver queue: nothing waits to be received."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.error: ClientError | None = None
        # What iterates over changes, for as long as it is in use.
        self.watchers: WeakSet[_Changes] = WeakSet()
        self._arrived = asyncio.Event()

    def put(self, lane: Lane, messages: Sequence[Message[Any]]) -> None:
        """Apply what came for a lane, in its order."""
        if messages:
            lane.on_taken(messages)
        for message in messages:
            self._apply(message)
        # Also without a message: an entry has come, and ``refresh`` counts entries.
        self._arrived.set()

    def _apply(self, message: Message[Any]) -> None:
        key = message.key
        if key is None:
            return
        value: Any = None
        if not message.is_null and message.data:
            try:
                value = message.value
            except Exception as error:  # noqa: BLE001  # a schema's, of whatever kind
                log.error(  # noqa: TRY400  # the reason is in the error, the place says nothing
                    "unreadable value",
                    extra={"key": key, "id": str(message.id), "reason": str(error)},
                )
                return
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value
        for watcher in self.watchers:
            watcher.changed(key, value)

    def clear(self, lane: Lane) -> int:
        """Nothing is held of what comes again."""
        del lane
        return 0

    def end(self, error: ClientError) -> None:
        """Nothing more will come."""
        self.error = error
        self._arrived.set()
        for watcher in self.watchers:
            watcher.end(error)

    async def wait_for(self, is_there: Callable[[], bool]) -> None:
        """Wait until something has come that makes it true. Raises the error of the end."""
        while not is_there():
            if self.error is not None:
                raise self.error
            self._arrived.clear()
            await self._arrived.wait()


class _Changes:
    """The changes of a table that were not given yet; never more than it has keys."""

    def __init__(self, error: ClientError | None) -> None:
        self._changed: dict[str, object] = {}
        self._error = error
        self._arrived = asyncio.Event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[str, object]:
        while not self._changed:
            if isinstance(self._error, Closed):
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        key = next(iter(self._changed))
        return key, self._changed.pop(key)

    def changed(self, key: str, value: object) -> None:
        self._changed[key] = value
        self._arrived.set()

    def end(self, error: ClientError) -> None:
        self._error = error
        self._arrived.set()
