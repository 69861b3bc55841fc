"""Lists of topics on a connection: GET_TOPICS_OF_NAMESPACE, and WATCH_TOPIC_LIST, which goes on
telling. Patterns are matched here as far as they are short and cannot take long.

Upstream watches persistent topics only: those that are not persistent are seen by asking again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import ClassVar

from geminga_broker.errors import NotAllowed, PatternRefused, TooManyRequests
from geminga_broker.sessions.commands.command_group import CommandGroup, Handlers, as_task
from geminga_broker.sessions.session import Session
from geminga_cluster.persistent_topics import topic_named
from geminga_cluster.system_topics import is_system_topic
from geminga_cluster.topic_lists import Names
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import (
    encode_success,
    encode_topics_of_namespace,
    encode_watch_topic_list_success,
    encode_watch_topic_update,
)
from geminga_protocol.pulsar.errors import InvalidPattern, UnsupportedPattern
from geminga_protocol.pulsar.topic_lists import TopicFilter, topics_hash
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_server.authorization import Action, Resource

# Watchers of one connection: a client has one for each consumer with a pattern.
WATCHERS_MAX = 1_000
# Topics that are matched before others get a turn of the event loop: a topic takes some 10 us.
TOPICS_AT_ONCE = 200


class TopicListCommands(CommandGroup):
    """Answers which topics there are, and tells the watchers of one connection what changes."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._watchers: dict[int, TopicWatcher] = {}

    # Asking once

    async def _topics(self, command: api.CommandGetTopicsOfNamespace) -> None:
        namespace = NamespaceName.parse(command.namespace)
        await self._session.authorize(Action.LOOKUP, Resource.namespace(str(namespace)))
        wanted = self._filter_of(command)
        discovery, topics = self._session.context.discovery, list[TopicName]()
        if command.mode != api.CommandGetTopicsOfNamespace.NON_PERSISTENT:
            topics += await discovery.persistent_topics_of(namespace)
        # Other brokers are asked for these: only where they are wanted.
        if command.mode != api.CommandGetTopicsOfNamespace.PERSISTENT:
            topics += await discovery.non_persistent_topics_of(namespace)
        names = [str(topic) for topic in await _taken(topics, wanted)]
        sum_now = topics_hash(names)
        is_changed = not (command.HasField("topics_hash") and command.topics_hash == sum_now)
        self._session.send(
            encode_topics_of_namespace(
                command.request_id,
                names if is_changed else (),
                topics_hash=sum_now,
                is_filtered=wanted is not None,
                is_changed=is_changed,
            )
        )

    def _filter_of(self, command: api.CommandGetTopicsOfNamespace) -> TopicFilter | None:
        """What the client wants; None where it has to filter the list itself."""
        config = self._session.context.config
        is_tried = command.HasField("topics_pattern") and config.matches_patterns
        if not is_tried or len(command.topics_pattern) > config.pattern_length_max:
            return None
        try:
            return TopicFilter(command.topics_pattern)
        except UnsupportedPattern:
            return None

    # Watching

    async def _watch(self, command: api.CommandWatchTopicList) -> None:
        namespace = NamespaceName.parse(command.namespace)
        await self._session.authorize(Action.LOOKUP, Resource.namespace(str(namespace)))
        self._check_pattern(command.topics_pattern)
        watcher = self._watchers.get(command.watcher_id)
        if watcher is None:
            watcher = await self._begin(command, namespace)
        names = sorted(watcher.topics)
        sum_now = topics_hash(names)
        if command.HasField("topics_hash") and command.topics_hash == sum_now:
            names = []
        self._session.send(
            encode_watch_topic_list_success(command.request_id, watcher.id, names, sum_now)
        )

    def _check_pattern(self, pattern: str) -> None:
        config = self._session.context.config
        refused = "Unable to create topic list watcher: "
        if not config.matches_patterns:
            raise NotAllowed(f"{refused}Evaluating subscription patterns is disabled.")
        if len(pattern) > config.pattern_length_max:
            raise NotAllowed(f"{refused}Pattern longer than maximum: {config.pattern_length_max}")

    async def _begin(
        self, command: api.CommandWatchTopicList, namespace: NamespaceName
    ) -> TopicWatcher:
        if len(self._watchers) >= WATCHERS_MAX:
            raise TooManyRequests(f"a connection has {WATCHERS_MAX} topic list watchers at most")
        try:
            wanted = TopicFilter(command.topics_pattern)
        except InvalidPattern as error:
            raise PatternRefused(f"Invalid topics pattern: {error.reason}") from None
        watcher = TopicWatcher(self._session, command.watcher_id, namespace, wanted)
        self._watchers[watcher.id] = watcher
        try:
            await watcher.open()
        except BaseException:
            self._watchers.pop(watcher.id, None)
            watcher.close()
            raise
        return watcher

    async def _close(self, command: api.CommandWatchTopicListClose) -> None:
        watcher = self._watchers.pop(command.watcher_id, None)
        if watcher is not None:
            watcher.close()
        self._session.send(encode_success(command.request_id))

    def disconnected(self) -> None:
        """The connection is gone, and with it all its watchers."""
        for watcher in self._watchers.values():
            watcher.close()
        self._watchers.clear()

    handlers: ClassVar[Handlers] = {
        api.BaseCommand.GET_TOPICS_OF_NAMESPACE: as_task(_topics),
        api.BaseCommand.WATCH_TOPIC_LIST: as_task(_watch, in_order_of="watcher_id"),
        api.BaseCommand.WATCH_TOPIC_LIST_CLOSE: as_task(_close, in_order_of="watcher_id"),
    }


class TopicWatcher:
    """One client's pattern over one namespace; ``topics`` are those that match, once it is open."""

    def __init__(
        self, session: Session, watcher_id: int, namespace: NamespaceName, wanted: TopicFilter
    ) -> None:
        self.id = watcher_id
        self.topics: set[str] = set()
        self.is_open = False
        self._session = session
        self._lists = session.context.topic_lists
        self._namespace = namespace
        self._wanted = wanted
        self._is_following = False
        # What changed while the first list was still being looked through.
        self._early: list[tuple[Names, Names]] = []

    async def open(self) -> None:
        """Look through what is there; from then on changes are told."""
        names = await self._lists.follow(self._namespace, self._changed)
        self._is_following = True
        self.topics = {str(each) for each in await _taken(self._named(sorted(names)), self._wanted)}
        self.is_open = True
        for added, removed in self._early:
            self._take(added, removed)

    def close(self) -> None:
        """Tell nothing more."""
        if self._is_following:
            self._is_following = False
            self._lists.leave(self._namespace, self._changed)

    def _named(self, names: Iterable[str]) -> Iterable[TopicName]:
        found = (topic_named(self._namespace, name) for name in names)
        return (topic for topic in found if topic is not None)

    def _changed(self, added: Names, removed: Names) -> None:
        if not self.is_open:
            self._early.append((added, removed))
            return
        came, went = self._take(added, removed)
        if came or went:
            self._session.send(
                encode_watch_topic_update(self.id, came, went, topics_hash(self.topics))
            )

    def _take(self, added: Names, removed: Names) -> tuple[list[str], list[str]]:
        """Note a change; which of it matters here."""
        came = [str(each) for each in self._named(sorted(added)) if _is_taken(each, self._wanted)]
        went = [str(each) for each in self._named(sorted(removed)) if str(each) in self.topics]
        self.topics.update(came)
        self.topics.difference_update(went)
        return came, went


async def _taken(topics: Iterable[TopicName], wanted: TopicFilter | None) -> list[TopicName]:
    """Users' topics out of ``topics`` that are wanted; others get a turn in between."""
    found: list[TopicName] = []
    for number, topic in enumerate(topics, 1):
        if _is_taken(topic, wanted):
            found.append(topic)
        if number % TOPICS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


def _is_taken(topic: TopicName, wanted: TopicFilter | None) -> bool:
    return not is_system_topic(topic) and (wanted is None or wanted.takes(topic))
