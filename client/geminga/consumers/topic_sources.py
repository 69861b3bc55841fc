"""Which topics a consumer has: those that it names, or that match a pattern, by partitions."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from geminga._transport.connection import Connection
from geminga._transport.http_lookup import TopicLookup
from geminga._transport.lookup import TopicsMode
from geminga.errors import BrokerBusy, BrokerRefused
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_runtime.errors import GemingaError

log = logging.getLogger(__name__)

# So many topics are asked for their number of partitions at the same time. A pattern may match
# thousands, and a broker refuses what exceeds its bound for all clients together
# (``maxConcurrentLookupRequest``).
ASKED_AT_ONCE = 100


class NamedTopics:
    """Topics by their names; a partitioned one stands for all its partitions."""

    # Topics that are deleted do not leave the consumer: it ends with them.
    can_shrink = False

    def __init__(self, lookup: TopicLookup, names: Sequence[TopicName]) -> None:
        self._names = list(dict.fromkeys(names))  # a name that is given twice is one topic
        self._partitions = _Partitions(lookup)

    def __str__(self) -> str:
        first, *others = [str(name) for name in self._names]
        return f"{first} and {len(others)} more" if others else first

    @property
    def can_change(self) -> bool:
        """May a later call of ``topics`` give others? Known once there was one: topics without
        partitions never get any."""
        # 0 for each topic without partitions.
        return any(self._partitions.known.values())

    async def topics(self) -> list[TopicName]:
        """Ask for the current topics, each partition by itself. Raises ``ClientError``."""
        return await self._partitions.of(self._names)

    async def wait(self, refresh_s: float) -> None:
        """Return when it is time to ask again."""
        await asyncio.sleep(refresh_s)

    def close(self) -> None:
        """Nothing is open."""


class PatternTopics:
    """The topics of a namespace whose names match a regular expression.

    ``leaves_out`` says which topics are left out although they match. A broker that can
    reports at once when topics come or go. The client still asks for the list from
    time to time: a broker may read the expression slightly differently than Python.
    """

    can_change = True
    # Topics that are deleted leave the consumer.
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
        # The connection to the broker that reports changes.
        self._watched_on: Connection | None = None
        self._changed = asyncio.Event()
        self._namespace, local = namespace_and_rest(pattern.pattern)
        # Names are compared without their domain: a pattern may match topics of both domains, as
        # ``topics_mode`` says.
        self._text = f"{self._namespace}/{local}"
        self._pattern = re.compile(f"{re.escape(self._namespace)}/(?:{local})", pattern.flags)
        self._partitions = _Partitions(lookup)
        # The topics that matched in the last list, and the hash of that list. The hash is the
        # broker's, and goes back with the next request: for a list of the same hash the broker
        # sends no names (``CommandGetTopicsOfNamespaceResponse.changed``), and the last match stays
        # valid.
        self._matching: list[TopicName] = []
        self._hash = ""

    def __str__(self) -> str:
        return f"the topics that match {self._text}"

    async def topics(self) -> list[TopicName]:
        """Ask for the current topics, each partition by itself. Raises ``ClientError``."""
        # Cleared before the list is asked for: a report that comes during the request leads to
        # another round.
        self._changed.clear()
        # The watch begins before the list is asked for: a change between the two would be missed. A
        # connection that breaks sets ``_changed`` (``Connection.connection_lost``), which leads
        # here at once, to a new watch on another connection.
        if self._watched_on is None or not self._watched_on.is_open:
            pattern = f"persistent://{self._text}"
            try:
                self._watched_on = await self._lookup.watch_topics(
                    self._watcher_id, self._namespace, pattern, self._changed.set
                )
            except BrokerRefused as error:
                # The broker cannot read the pattern, or has too many of them: the list is still
                # asked for from time to time.
                log.info("topics not watched", extra={"of": str(self), "reason": str(error)})
        names, self._hash = await self._lookup.topics(self._namespace, self._mode, self._hash)
        if names is not None:
            # The list names partitions one by one; their number is asked for below, since
            # partitions without a message yet may be missing in it.
            bases = dict.fromkeys(TopicName.parse(name).base for name in names)
            self._matching = [
                base
                for base in bases
                if self._pattern.fullmatch(str(base).partition("://")[2])
                and not self._leaves_out(base)
            ]
        try:
            return await self._partitions.of(self._matching)
        except BaseException:
            # Their partitions are not known: the next list must not count as an unchanged one.
            self._hash = ""
            raise

    async def wait(self, refresh_s: float) -> None:
        """Return when it is time to ask again: when a broker reports a change, or later anyway."""
        with suppress(TimeoutError):
            async with asyncio.timeout(refresh_s):
                await self._changed.wait()

    def close(self) -> None:
        """Stop watching."""
        if self._watched_on is not None and self._watched_on.is_open:
            self._watched_on.unwatch_topics(self._watcher_id)
        self._watched_on = None


# Which topics there are: ``can_change`` and ``can_shrink`` say how that may change, ``str`` names
# the source in logs.
TopicSource = NamedTopics | PatternTopics


@dataclass(slots=True, eq=False)
class _Partitions:
    """How many partitions topics have, asked for many at a time."""

    lookup: TopicLookup
    # By topics, as of the last answers. 0 for a topic without partitions, which never gets any and
    # is not asked for again.
    known: dict[TopicName, int] = field(default_factory=dict[TopicName, int])

    async def of(self, names: Sequence[TopicName]) -> list[TopicName]:
        """The names, that of a partitioned topic replaced by those of its partitions.

        Raises ``ClientError``.
        """
        # Topics that are not asked for any more are forgotten, or a pattern over many short-lived
        # topics would fill the memory.
        self.known = {name: self.known[name] for name in names if name in self.known}
        # A name with an index is a partition itself.
        to_ask = [name for name in names if name.partition_index < 0 and self.known.get(name) != 0]
        for start in range(0, len(to_ask), ASKED_AT_ONCE):
            some = to_ask[start : start + ASKED_AT_ONCE]
            asking = [self.lookup.partitions(str(name)) for name in some]
            # All are awaited, also behind one that failed: none is left running.
            answers = await asyncio.gather(*asking, return_exceptions=True)
            for name, answer in zip(some, answers, strict=True):
                count = answer
                if isinstance(answer, BrokerBusy):
                    # Refused because so many were asked for together: alone it is answered.
                    count = await self.lookup.partitions(str(name))
                # The answers before it are kept in ``known``. The next round asks again, since
                # partitions may be added.
                if isinstance(count, BaseException):
                    raise count
                # Partitions never become fewer: a topic with fewer was deleted and created anew.
                self.known[name] = max(count, self.known.get(name, 0))
        # A dict for its order; a partition that is named beside its topic is found once.
        found: dict[TopicName, None] = {}
        for name in names:
            count = self.known.get(name, 0)
            found |= dict.fromkeys([name.partition(index) for index in range(count)] or [name])
        return list(found)


def namespace_and_rest(pattern: str) -> tuple[str, str]:
    """The namespace that a pattern names, ``public/default`` if it names none, and the pattern of
    the names in it. Raises ``ValueError`` for a namespace that is a pattern itself."""
    # A pattern may begin as a topic's name does, ``persistent://tenant/namespace/...``, or without
    # the domain, or with the name alone.
    path = pattern.removeprefix("^").partition("://")[2] or pattern.removeprefix("^")
    parts = path.split("/", 2)
    if len(parts) < 3:
        return "public/default", path
    namespace = f"{parts[0]}/{parts[1]}"
    try:
        return str(NamespaceName.parse(namespace)), parts[2]
    except GemingaError as error:
        raise ValueError(f"{pattern!r} names no namespace: {error}") from error
