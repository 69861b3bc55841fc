"""Which topics a consumer has: those it was given, with all their partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from geminga._transport.lookup import Lookup
from geminga_protocol.pulsar.topic_names import TopicName


class TopicSource(Protocol):
    """Tells which topics there are; ``str`` names it to people."""

    @property
    def can_change(self) -> bool:
        """Is it of use to ask again? Known once ``topics`` was asked."""
        ...

    @property
    def can_shrink(self) -> bool:
        """Do topics that are not there any more leave the consumer?"""
        ...

    async def topics(self) -> list[TopicName]:
        """The topics there are now, partitions each by itself. Raises ``ClientError``."""
        ...

    async def wait(self, refresh_s: float) -> None:
        """Return when it is time to ask again."""
        ...

    def close(self) -> None:
        """It will not be asked again."""
        ...


class NamedTopics:
    """Topics by their names; a partitioned one stands for all its partitions."""

    can_shrink = False

    def __init__(self, lookup: Lookup, names: Sequence[TopicName]) -> None:
        self._lookup = lookup
        self._names = names
        self._partitions: dict[TopicName, int] = {}

    def __str__(self) -> str:
        first, *others = [str(name) for name in self._names]
        return f"{first} and {len(others)} more" if others else first

    @property
    def can_change(self) -> bool:
        """Is one partitioned? Topics without partitions never get any."""
        return any(self._partitions.values())

    async def topics(self) -> list[TopicName]:
        """Those named, a partitioned one by its partitions. Raises ``ClientError``."""
        found: dict[TopicName, None] = {}  # a name that is given twice is one topic
        for name in self._names:
            found |= dict.fromkeys(await self._partitions_of(name))
        return list(found)

    async def wait(self, refresh_s: float) -> None:
        """Return when it is time to ask for more partitions."""
        await asyncio.sleep(refresh_s)

    def close(self) -> None:
        """Nothing is open."""

    async def _partitions_of(self, name: TopicName) -> list[TopicName]:
        known = self._partitions.get(name)
        if name.partition_index >= 0 or known == 0:
            return [name]
        partitions = await self._lookup.partitions(str(name))
        # A partition that is gone ends its consumer; the number alone is taken from no one.
        self._partitions[name] = max(partitions, known or 0)
        if not partitions and not known:
            return [name]
        return [name.partition(index) for index in range(self._partitions[name])]
