"""Which topics a consumer has: those it was given, or that match, with all their partitions."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from geminga._transport.connection import Connection
from geminga._transport.lookup import TopicLookup, TopicsMode
from geminga.errors import BrokerBusy, BrokerRefused
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_runtime.errors import GemingaError

log = logging.getLogger(__name__)

# Questions after partitions that wait for their answers together.
ASKED_AT_ONCE = 100


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

    def __init__(self, lookup: TopicLookup, names: Sequence[TopicName]) -> None:
        self._names = list(dict.fromkeys(names))  # a name that is given twice is one topic
        self._partitions = _Partitions(lookup)

    def __str__(self) -> str:
        first, *others = [str(name) for name in self._names]
        return f"{first} and {len(others)} more" if others else first

    @property
    def can_change(self) -> bool:
        """Is one partitioned? Topics without partitions never get any."""
        return self._partitions.can_grow

    async def topics(self) -> list[TopicName]:
        """Those named, a partitioned one by its partitions. Raises ``ClientError``."""
        return await self._partitions.of(self._names)

    async def wait(self, refresh_s: float) -> None:
        """Return when it is time to ask for more partitions."""
        await asyncio.sleep(refresh_s)

    def close(self) -> None:
        """Nothing is open."""


class PatternTopics:
    """The topics of a namespace whose names match a regular expression.

    ``leaves_out`` names topics that match and are not consumed all the same.

    A broker that can tells at once when topics come or go; the list is asked for again all the
    same, now and then, for it may take the expression for a slightly different one.
    """

    can_change = True
    can_shrink = True

    def __init__(
        self,
        lookup: TopicLookup,
        pattern: re.Pattern[str],
        mode: TopicsMode,
        watcher_id: int,
        leaves_out: Callable[[TopicName], bool],
    ) -> None:
        self._lookup = lookup
        self._mode: TopicsMode = mode
        self._watcher_id = watcher_id
        self._leaves_out = leaves_out
        self._watched_on: Connection | None = None
        self._changed = asyncio.Event()
        self._namespace, local = namespace_and_rest(pattern.pattern)
        self._text = f"{self._namespace}/{local}"
        self._pattern = re.compile(f"{re.escape(self._namespace)}/(?:{local})", pattern.flags)
        self._partitions = _Partitions(lookup)
        self._matching: list[TopicName] = []
        self._hash = ""

    def __str__(self) -> str:
        return f"the topics that match {self._text}"

    async def topics(self) -> list[TopicName]:
        """Those that match now, a partitioned one by its partitions. Raises ``ClientError``."""
        self._changed.clear()
        # Before the list is asked for: what comes between the two would be missed.
        await self._watch()
        names, self._hash = await self._lookup.topics(self._namespace, self._mode, self._hash)
        if names is not None:
            bases = dict.fromkeys(TopicName.parse(name).base for name in names)
            self._matching = [base for base in bases if self._takes(base)]
        try:
            return await self._partitions.of(self._matching)
        except BaseException:
            self._hash = ""  # the next list counts as a new one
            raise

    def _takes(self, topic: TopicName) -> bool:
        is_match = self._pattern.fullmatch(str(topic).partition("://")[2]) is not None
        return is_match and not self._leaves_out(topic)

    async def _watch(self) -> None:
        if self._watched_on is not None and self._watched_on.is_open:
            return
        try:
            self._watched_on = await self._lookup.watch_topics(
                self._watcher_id, self._namespace, f"persistent://{self._text}", self._changed.set
            )
        except BrokerRefused as error:
            # It knows no such pattern, or too many: asking now and then is left.
            log.info("topics not watched", extra={"of": str(self), "reason": str(error)})

    async def wait(self, refresh_s: float) -> None:
        """Return when a broker says that topics came or went, and now and then anyway."""
        with suppress(TimeoutError):
            async with asyncio.timeout(refresh_s):
                await self._changed.wait()

    def close(self) -> None:
        """Watch no more."""
        if self._watched_on is not None and self._watched_on.is_open:
            self._lookup.unwatch_topics(self._watched_on, self._watcher_id)
        self._watched_on = None


class _Partitions:
    """How many partitions topics have, asked for many at a time."""

    def __init__(self, lookup: TopicLookup) -> None:
        self._lookup = lookup
        self._known: dict[TopicName, int] = {}

    @property
    def can_grow(self) -> bool:
        """Is a topic partitioned? The others never get any."""
        return any(self._known.values())

    async def of(self, names: Sequence[TopicName]) -> list[TopicName]:
        """The names, that of a partitioned topic replaced by those of its partitions.

        Raises ``ClientError``.
        """
        self._known = {name: self._known[name] for name in names if name in self._known}
        to_ask = [name for name in names if name.partition_index < 0 and self._known.get(name) != 0]
        for start in range(0, len(to_ask), ASKED_AT_ONCE):
            some = to_ask[start : start + ASKED_AT_ONCE]
            asking = [self._lookup.partitions(str(name)) for name in some]
            answers = await asyncio.gather(*asking, return_exceptions=True)
            for name, answer in zip(some, answers, strict=True):
                count = answer
                if isinstance(answer, BrokerBusy):
                    # Refused for those beside it, as it would be each time that all are asked.
                    count = await self._lookup.partitions(str(name))
                if isinstance(count, BaseException):
                    raise count
                # Partitions never become fewer: a lower number is that of a topic made anew.
                self._known[name] = max(count, self._known.get(name, 0))
        found: dict[TopicName, None] = {}
        for name in names:
            count = self._known.get(name, 0)
            found |= dict.fromkeys([name.partition(index) for index in range(count)] or [name])
        return list(found)


def namespace_and_rest(pattern: str) -> tuple[str, str]:
    """The namespace of a pattern, ``public/default`` if it names none, and the pattern of the names
    in it. Raises ``ValueError`` for a namespace that is a pattern itself."""
    path = pattern.removeprefix("^").partition("://")[2] or pattern.removeprefix("^")
    parts = path.split("/", 2)
    if len(parts) < 3:
        return "public/default", path
    namespace = f"{parts[0]}/{parts[1]}"
    try:
        return str(NamespaceName.parse(namespace)), parts[2]
    except GemingaError as error:
        raise ValueError(f"{pattern!r} names no namespace: {error}") from error
