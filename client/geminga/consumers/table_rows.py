"""The rows of a table view, which change as messages arrive, and iterators over the changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from weakref import WeakSet

from geminga.consumers.receiver_queue import Lane, ReceiverQueue
from geminga.errors import ClientError, Closed
from geminga.messages import Message

log = logging.getLogger(__name__)


# Values change only within ``put``, which does not await: a program that looks at the table between
# two awaits of its own never sees an entry applied in part.
@dataclass(slots=True, eq=False, repr=False)
class TableRows:
    """Applies messages as they arrive, in the place of a receiver queue: no message waits."""

    # The newest value of each key that has one.
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    # Why no more will come.
    error: ClientError | None = None
    # The iterators over changes, as long as they are in use.
    watchers: WeakSet[Changes] = field(default_factory=WeakSet["Changes"])
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
            # A null message deletes its key, and so does an empty one, as in upstream's table view.
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


@dataclass(eq=False, repr=False)  # without slots: the table refers to it weakly
class Changes:
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


# Takes in the messages of all topics of one consumer. Both have ``put``, ``clear`` and ``end``.
Inbox = ReceiverQueue | TableRows
