"""A topic as a table: the newest value of every key, kept up to date; what users hold of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Generic, TypeVar, cast

from geminga.consumers.table_rows import Changes, TableRows
from geminga.consumers.topic_group import TopicGroup
from geminga.lifecycle import AsyncClosable

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
        # No copy: an iteration that awaits in between raises ``RuntimeError`` when a key comes or
        # goes, as that of any dict.
        return iter(self._rows.values)

    def __len__(self) -> int:
        return len(self._rows.values)

    def __aiter__(self) -> AsyncIterator[tuple[str, ValueT | None]]:
        """Iterate over changes from now on: keys and their new values, ``None`` for a deleted key.

        A key that changes several times before the iterator gets to it comes once, with its newest
        value. Iteration ends when the view is closed, and raises the ``ClientError`` that ended it
        otherwise.
        """
        changes = Changes(self._rows)
        # Weakly: an iterator that its user has dropped leaves by itself, and does not collect
        # changes for ever.
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
