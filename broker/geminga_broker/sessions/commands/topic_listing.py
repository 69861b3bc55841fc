"""Lists of topics on a connection: GET_TOPICS_OF_NAMESPACE answers once, WATCH_TOPIC_LIST goes on
to report changes until it is closed.

Patterns are matched here as long as they are short and cannot take long; other clients filter the
whole list themselves. As upstream, only persistent topics are watched: clients see changes of the
non-persistent ones by asking again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from geminga_broker.errors import NotAllowed, PatternRefused, TooManyRequests
from geminga_broker.sessions.commands.command_group import CommandGroup, Handlers, as_task
from geminga_broker.sessions.session import Session
from geminga_cluster.persistent_topics import topics_named
from geminga_cluster.topic_lists import Names
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import (
    encode_success,
    encode_topics_of_namespace,
    encode_watch_topic_list_success,
    encode_watch_topic_update,
)
from geminga_protocol.pulsar.errors import InvalidPattern, UnsupportedPattern
from geminga_protocol.pulsar.system_topics import is_system_topic
from geminga_protocol.pulsar.topics.topic_lists import TopicFilter, topics_hash
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_server.authorization import Action, Resource

# Watchers of one connection: a client has one for each consumer with a pattern.
WATCHERS_MAX = 1_000
# Topics that are matched before other tasks get a turn of the event loop: each takes some 10 us.
TOPICS_AT_ONCE = 200


@dataclass(slots=True, eq=False)
class TopicListCommands(CommandGroup):
    """Answers which topics there are, and has the watchers of one connection."""

    # By the id that the client gave them. Those that are still being opened are in it, too.
    _watchers: dict[int, TopicWatcher] = field(default_factory=dict, init=False)

    async def get_topics(self, command: api.CommandGetTopicsOfNamespace) -> None:
        """GET_TOPICS_OF_NAMESPACE: the names, or that they are what the client has already."""
        namespace = NamespaceName.parse(command.namespace)
        await self.session.authorize(Action.LOOKUP, Resource("namespace", str(namespace)))
        config = self.session.context.config
        wanted: TopicFilter | None = None
        if (
            command.HasField("topics_pattern")
            and config.matches_patterns
            and len(command.topics_pattern) <= config.pattern_length_max
        ):
            # Java's patterns can do more than those that are matched here in bounded time.
            with suppress(UnsupportedPattern):  # the client filters the list itself
                wanted = TopicFilter(command.topics_pattern)
        discovery, topics = self.session.context.discovery, list[TopicName]()
        # The mode is one kind of topics, or all.
        if command.mode != api.CommandGetTopicsOfNamespace.NON_PERSISTENT:
            topics += await discovery.persistent_topics_of(namespace)
        # These take requests to the other brokers: only where they are wanted.
        if command.mode != api.CommandGetTopicsOfNamespace.PERSISTENT:
            topics += await discovery.non_persistent_topics_of(namespace)
        names = [str(topic) for topic in await _matching(topics, wanted)]
        hash_now = topics_hash(names)
        # A client that has the same list already is sent none: lists may be large. The hash is over
        # the names that the client would get, so it depends on the pattern too.
        is_changed = not (command.HasField("topics_hash") and command.topics_hash == hash_now)
        self.session.send(
            encode_topics_of_namespace(
                command.request_id,
                names if is_changed else (),
                topics_hash=hash_now,
                is_filtered=wanted is not None,
                is_changed=is_changed,
            )
        )

    async def watch(self, command: api.CommandWatchTopicList) -> None:
        """WATCH_TOPIC_LIST: the matching topics; from then on every change of them."""
        namespace = NamespaceName.parse(command.namespace)
        await self.session.authorize(Action.LOOKUP, Resource("namespace", str(namespace)))
        config = self.session.context.config
        refused = "Unable to create topic list watcher: "
        if not config.matches_patterns:
            raise NotAllowed(f"{refused}Evaluating subscription patterns is disabled.")
        if len(command.topics_pattern) > config.pattern_length_max:
            raise NotAllowed(f"{refused}Pattern longer than maximum: {config.pattern_length_max}")
        watcher = self._watchers.get(command.watcher_id)
        if watcher is None:
            watcher = await self._open_watcher(command, namespace)
        # No await from here to the answer: changes that come later are sent behind it.
        names = sorted(watcher.topics)
        hash_now = topics_hash(names)
        # A client that reconnects sends the hash of what it has: where it fits, nothing is sent.
        if command.HasField("topics_hash") and command.topics_hash == hash_now:
            names = []
        self.session.send(
            encode_watch_topic_list_success(command.request_id, watcher.id, names, hash_now)
        )

    async def _open_watcher(
        self, command: api.CommandWatchTopicList, namespace: NamespaceName
    ) -> TopicWatcher:
        if len(self._watchers) >= WATCHERS_MAX:
            raise TooManyRequests(f"a connection has {WATCHERS_MAX} topic list watchers at most")
        try:
            wanted = TopicFilter(command.topics_pattern)
        except InvalidPattern as error:
            raise PatternRefused(f"Invalid topics pattern: {error.reason}") from None
        watcher = TopicWatcher(self.session, command.watcher_id, namespace, wanted)
        # Before it is open: those that are being opened count against the limit, too. Commands of
        # one watcher id run one after the other, so no second one is opened for the id meanwhile.
        self._watchers[watcher.id] = watcher
        try:
            await watcher.open()
        except BaseException:
            self._watchers.pop(watcher.id, None)
            # It may follow the list already; without this it would be called for ever.
            watcher.close()
            raise
        return watcher

    async def close_watcher(self, command: api.CommandWatchTopicListClose) -> None:
        """WATCH_TOPIC_LIST_CLOSE; one for an unknown watcher succeeds, too."""
        watcher = self._watchers.pop(command.watcher_id, None)
        if watcher is not None:
            watcher.close()
        self.session.send(encode_success(command.request_id))

    def disconnected(self) -> None:
        """Close all watchers of the connection."""
        for watcher in self._watchers.values():
            watcher.close()
        self._watchers.clear()

    handlers: ClassVar[Handlers] = {
        api.BaseCommand.GET_TOPICS_OF_NAMESPACE: as_task(get_topics),
        api.BaseCommand.WATCH_TOPIC_LIST: as_task(watch, in_order_of="watcher_id"),
        api.BaseCommand.WATCH_TOPIC_LIST_CLOSE: as_task(close_watcher, in_order_of="watcher_id"),
    }


@dataclass(slots=True, eq=False)
class TopicWatcher:
    """One client's pattern over one namespace."""

    session: Session
    # The one that the client gave it.
    id: int
    namespace: NamespaceName
    wanted: TopicFilter
    # The names of the topics that match, once the watcher is open.
    topics: set[str] = field(default_factory=set)
    is_open: bool = False
    _is_following: bool = field(default=False, init=False)
    # Changes, (added, removed), that came while the first list was still being matched. Not sent to
    # the client: they are part of the first list that it gets.
    _early: list[tuple[Names, Names]] = field(default_factory=list, init=False)

    async def open(self) -> None:
        """Match the topics that there are; from then on changes are sent to the client."""
        names = await self.session.context.topic_lists.follow(self.namespace, self._changed)
        self._is_following = True
        # Matching gives others a turn: changes that come meanwhile are applied after it. From this
        # line on ``_changed`` may be called at each await.
        found = await _matching(topics_named(self.namespace, sorted(names)), self.wanted)
        self.topics = {str(each) for each in found}
        self.is_open = True
        # No await since ``topics`` was set: no change comes between these and the next ones.
        for added, removed in self._early:
            self._apply(added, removed)

    def close(self) -> None:
        """Send nothing more."""
        if self._is_following:
            self._is_following = False
            # The list is followed for all watchers of the namespace together, until the last one
            # leaves.
            self.session.context.topic_lists.leave(self.namespace, self._changed)

    def _changed(self, added: Names, removed: Names) -> None:
        if not self.is_open:
            self._early.append((added, removed))
            return
        came, went = self._apply(added, removed)
        if came or went:
            self.session.send(
                encode_watch_topic_update(self.id, came, went, topics_hash(self.topics))
            )

    def _apply(self, added: Names, removed: Names) -> tuple[list[str], list[str]]:
        """Add and remove topics; returns the names of those that the client is to know of."""
        created = topics_named(self.namespace, sorted(added))
        came = [str(each) for each in created if _matches(each, self.wanted)]
        # A topic that did not match is unknown to the client. Only what the client was told of is
        # taken back.
        deleted = map(str, topics_named(self.namespace, sorted(removed)))
        went = [name for name in deleted if name in self.topics]
        self.topics.update(came)
        self.topics.difference_update(went)
        return came, went


async def _matching(topics: Iterable[TopicName], wanted: TopicFilter | None) -> list[TopicName]:
    """Those of ``topics`` that match; other tasks get a turn in between."""
    found: list[TopicName] = []
    for number, topic in enumerate(topics, 1):
        if _matches(topic, wanted):
            found.append(topic)
        if number % TOPICS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


def _matches(topic: TopicName, wanted: TopicFilter | None) -> bool:
    """Whether clients see the topic in a list: the brokers' own topics are in none."""
    return not is_system_topic(topic) and (wanted is None or wanted.takes(topic))
