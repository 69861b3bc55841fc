"""The policies of single topics: read for the namespaces in use, and changed.

A namespace of which no topic has policies has no topic ``__change_events``, and costs a watch on
the node that this topic would have. Where there is one, its log is followed as long as topics of
the namespace are loaded here, or were asked about recently. The first change of a policy creates
the topic.

A change that one broker stores is read by all others some milliseconds later. A broker that answers
or changes policies through REST first reads all that is stored, so that it sees every change that
was confirmed before, on whichever broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from random import Random
from weakref import WeakValueDictionary

from geminga import BytesSchema, Client, ClientError, Opening, SchemaInfo
from geminga_broker.errors import ServiceNotReady
from geminga_broker.policies.errors import InvalidPolicy
from geminga_broker.schemas.registry import decode_version
from geminga_broker.schemas.rules.avro import parse_avro
from geminga_broker.schemas.storage import StoredSchema
from geminga_broker.topic_policies.event_log import EventLog, PolicyEvent
from geminga_broker.topic_policies.events import (
    GLOBAL,
    EventSchema,
    encode_event,
    events_topic,
    key_of,
    own_schema,
)
from geminga_cluster.errors import NamespaceNotFound
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.persistent_topics import topic_path
from geminga_cluster.watched import watched_values
from geminga_protocol.pulsar.enums import SchemaType
from geminga_protocol.pulsar.errors import InvalidTopicName
from geminga_protocol.pulsar.system_topics import CHANGE_EVENTS, is_system_topic
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.partitioned_topics import partitioned_topic_path
from geminga_protocol.records.cluster.topic_policies import NO_TOPIC_POLICIES, TopicPolicies, nearer
from geminga_runtime.coordination import Coordination
from geminga_runtime.service import Service

# The log of a namespace of which no topic is loaded here is followed for so long after it was last
# asked for: administrators of topics seldom ask once. Also the period of the check, so that a log
# is left after one to two minutes.
UNUSED_S = 60.0

# Called when the policies of these topics of a namespace changed; None: those of any may have.
OnChanged = Callable[[NamespaceName, Collection[TopicName] | None], None]
Change = Callable[[TopicPolicies], TopicPolicies]
SchemaVersion = Callable[[TopicName, int], Awaitable[StoredSchema]]


class TopicPolicyStore(Service):
    """The policies of the topics of all namespaces in use.

    ``configuration`` is the configuration store, by default ``coordination``. ``connect`` makes a
    client of this cluster, ``schema_version`` reads versions of schemas, ``in_use`` returns the
    namespaces of the topics that are loaded. ``cluster`` is the name of this cluster.
    """

    def __init__(
        self,
        coordination: Coordination,
        namespaces: Namespaces,
        *,
        configuration: Coordination | None = None,
        cluster: str,
        random: Random,
        connect: Callable[[], Opening[Client]],
        schema_version: SchemaVersion,
        in_use: Callable[[], Iterable[NamespaceName]],
    ) -> None:
        super().__init__()
        self._namespaces = namespaces
        self._cluster = cluster
        self._random = random
        self._connect = connect
        self._schema_version = schema_version
        self._in_use = in_use
        # Whether the nodes of ``__change_events`` exist, of the two kinds that ``_paths`` gives.
        self._nodes = tuple(
            # Topics have to be loaded while the configuration store is not reachable: what was
            # missing there before counts as missing.
            watched_values(each, lambda _: True, holds_missing=each is not coordination)
            for each in (coordination, configuration or coordination)
        )
        for nodes in self._nodes:
            nodes.follow(self._node_changed)
        # One client for all logs and changes, connected with the first of them. None as long as no
        # namespace in use has policies of topics: most brokers need no connection to themselves.
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        # A namespace that has a log is in ``_asked_s`` as well.
        self._logs: dict[NamespaceName, EventLog] = {}
        # When each log was last asked for, in seconds of the loop's clock.
        self._asked_s: dict[NamespaceName, float] = {}
        # By key: held from reading a topic's policies until their change is read back. Each event
        # has all policies of a topic, so that two changes at a time would lose one of them.
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # Called when policies of topics change. They only note which, so that one follower cannot
        # delay the next.
        self.followers: list[OnChanged] = []

    async def _open(self, stack: AsyncExitStack) -> None:
        # The logs are opened one by one later, so that no exit stack of theirs closes them. The
        # client is closed last there: the logs read through it.
        stack.push_async_callback(self._leave_all)
        self.spawn_every(UNUSED_S, self._leave_unused, name="leave unused policies of topics")

    # Reading

    async def refresh(self, namespace: NamespaceName) -> None:
        """Begin to follow the policies of a namespace's topics if there are any by now, or stop
        where there are none any more. Raises ``CoordinationError``, ``ClientError``."""
        await self._log_of(namespace)

    async def ready(self, namespace: NamespaceName) -> None:
        """Return when the policies of a namespace's topics are read. Raises ``CoordinationError``,
        ``ServiceNotReady``, ``ClientError``."""
        found = await self._log_of(namespace)
        if found is not None:
            await found.read()

    def known(self, topic: TopicName) -> TopicPolicies:
        """The policies of ``topic`` as they were read last: those for this cluster before those
        for all. Does not wait."""
        found = self._logs.get(topic.namespace)
        # This is called for every topic that is loaded, and most namespaces have no such policies.
        if found is None or not found.events or is_system_topic(topic):
            return NO_TOPIC_POLICIES
        # No await between the two: both are of one state of the log.
        local, for_all = (found.events.get(key_of(topic, is_global=each)) for each in (False, True))
        return nearer(_policies(local), _policies(for_all))

    async def local(self, topic: TopicName) -> TopicPolicies:
        """The policies of ``topic`` for this cluster alone, as they are stored now. Raises as
        ``ready``."""
        found = await self._log_of(topic.namespace)
        if found is None:
            return NO_TOPIC_POLICIES
        # What another broker has confirmed before this call is seen: REST answers with it.
        await found.catch_up()
        return _policies(found.events.get(key_of(topic)))

    # Changing

    async def change(self, topic: TopicName, change: Change) -> None:
        """Replace the policies of ``topic`` for this cluster by what ``change`` makes of them;
        return when that is stored, and read by this broker.

        Only the broker that owns the topic may call it: of two brokers that change the policies of
        one topic at the same time, the later one would overwrite the change of the other. Raises as
        ``ready``, and what ``change`` raises.
        """
        # Of the partitioned topic, for a partition: all partitions share one event.
        key = key_of(topic)
        lock = self._changing.get(key)
        if lock is None:
            lock = self._changing[key] = asyncio.Lock()
        async with lock:
            found = await self._log_of(topic.namespace)
            former = None
            if found is not None:
                await found.catch_up()
                # The event, not the merged policies: what holds for all clusters must not be
                # written into this one's.
                former = found.events.get(key)
            changed = change(_policies(former))
            # Nothing is stored for it: the topic of events is created by the first change that
            # changes something.
            if changed == _policies(former):
                return
            schema, payload = self._event(topic, changed, former)
            # Still under the lock: the next change has to see this one.
            await self._publish(topic.namespace, schema, {key: payload})

    async def delete(self, topic: TopicName) -> None:
        """Remove all policies of ``topic``, which is being deleted. Raises as ``ready``."""
        # Partitions have the policies of their partitioned topic, which are removed with that.
        if topic.partition_index >= 0 or is_system_topic(topic):
            return
        try:
            if (await self._namespaces.policies(topic.namespace)).deleted:
                return  # the namespace's ``__change_events`` is deleted, too
        except NamespaceNotFound:
            return
        found = await self._log_of(topic.namespace)
        if found is None:
            return
        await found.catch_up()
        # Both, as the topic is deleted for good.
        keys = (key_of(topic, is_global=is_global) for is_global in (True, False))
        # Only what is there: a removal is an event too, and would be stored for each topic that is
        # deleted.
        if gone := [key for key in keys if key in found.events]:
            await self._publish(topic.namespace, own_schema(), dict.fromkeys(gone))

    def _event(
        self, topic: TopicName, policies: TopicPolicies, former: PolicyEvent | None
    ) -> tuple[EventSchema, bytes]:
        """Encode an event. Raises ``InvalidPolicy`` where ``policies`` fit into no schema."""
        # The schema of the event before has a place for policies that this broker does not know,
        # but perhaps none for some that it knows.
        own = own_schema()
        # The former schema first. With a newer broker's schema its own policies survive a change
        # that this broker makes.
        for schema in (own if former is None else former.schema, own):
            with suppress(ValueError):
                return schema, encode_event(schema.type, topic, policies, cluster=self._cluster)
        raise InvalidPolicy(f"{topic} says what {CHANGE_EVENTS} has no place for: {policies}")

    async def _publish(
        self, namespace: NamespaceName, schema: EventSchema, messages: Mapping[str, bytes | None]
    ) -> None:
        """Store ``messages`` by their keys, and return when this broker has read them."""
        info = SchemaInfo(SchemaType.AVRO, "PulsarEvent", schema.definition, schema.properties)
        try:
            client = await self._connected()
            # Opened for each change: changes are rare, and an idle producer would have to be kept
            # alive.
            async with client.producer(
                str(events_topic(namespace)), schema=BytesSchema(info), batching=None
            ) as producer:
                for key, payload in messages.items():
                    # As upstream, removals of policies for all clusters go to this one only. One
                    # after the other, with the receipt awaited. A failure in between leaves a part
                    # done; deletion is repeated with its topic.
                    await producer.send(payload, key=key, replicate_to=[self._cluster])
        # The change may be stored all the same: a caller that repeats it reads what is stored
        # first.
        except ClientError as error:
            raise ServiceNotReady(f"the policies of topics were not stored: {error}") from error
        # The topic may have been created by this: its nodes are remembered as missing.
        self._forget_nodes(namespace)
        found = await self._log_of(namespace)
        if found is None:
            raise ServiceNotReady(f"the policies of {namespace} were deleted meanwhile")
        await found.catch_up()

    # The logs

    async def _log_of(self, namespace: NamespaceName) -> EventLog | None:
        """The log of a namespace, opened if need be; None where none of its topics ever had
        policies."""
        # Either node means that there is a topic of events. The log's is there as soon as it is
        # loaded; that of the partitions comes first where brokers create it with partitions.
        for nodes, path in zip(self._nodes, _paths(namespace), strict=True):
            # Remembered and watched: this asks ZooKeeper only for the first time, or after
            # ``forget``.
            if await nodes.get(path):
                break
        else:
            self._leave(namespace)
            return None
        # Keeps the log of a namespace without loaded topics for some time. Noted before the wait
        # below, so that ``_leave_unused`` does not close the log that is being opened.
        self._asked_s[namespace] = asyncio.get_running_loop().time()
        if namespace not in self._logs:
            client = await self._connected()
            # Another call may have opened it while this one waited for the connection.
            if namespace not in self._logs:
                # In the mapping before it is entered, which does not wait: a second caller finds
                # it.
                self._logs[namespace] = found = self._new_log(client, namespace)
                await found.__aenter__()
        return self._logs[namespace]

    def _new_log(self, client: Client, namespace: NamespaceName) -> EventLog:
        events = events_topic(namespace)

        async def schema_of(version: bytes) -> EventSchema:
            info = (await self._schema_version(events, decode_version(version))).info
            return EventSchema(info.definition, info.properties, parse_avro(info.definition))

        def changed(keys: Collection[str]) -> None:
            # A set: a topic may have one event for this cluster and one for all.
            topics = set[TopicName]()
            for key in keys:
                with suppress(InvalidTopicName):  # clients may write anything to this topic
                    topics.add(TopicName.parse(key.removeprefix(GLOBAL)))
            self._notify(namespace, topics)

        def missing() -> None:
            self._forget_nodes(namespace)
            self._notify(namespace, None)

        return EventLog(
            client, namespace, schema_of, self._random, on_changed=changed, on_missing=missing
        )

    async def _connected(self) -> Client:
        # Held while connecting, so that there is one client.
        async with self._connecting:
            if self._client is None:
                # If that fails, the next caller tries again.
                self._client = await self._connect()
            return self._client

    def _notify(self, namespace: NamespaceName, topics: Collection[TopicName] | None) -> None:
        for on_changed in self.followers:
            on_changed(namespace, topics)

    def _node_changed(self, path: str | None) -> None:
        """Notify followers that a ``__change_events`` was created or deleted; with None, which
        follows a lost ZooKeeper session, that any may have been."""
        if path is not None:
            self._notify(NamespaceName(*path.split("/")[-4:-2]), None)
            return
        for namespace in dict.fromkeys((*self._in_use(), *self._logs)):
            self._notify(namespace, None)

    def _forget_nodes(self, namespace: NamespaceName) -> None:
        # Both kinds: which of them was created, or deleted, is not known here. The next ``get``
        # asks ZooKeeper.
        for nodes, path in zip(self._nodes, _paths(namespace), strict=True):
            nodes.forget(path)

    def _leave(self, namespace: NamespaceName) -> None:
        """Stop following a namespace. Its log is closed in the background, for callers cannot
        wait."""
        # Taken out at once: a caller that comes next opens a new log beside the one that is
        # closing.
        found = self._logs.pop(namespace, None)
        self._asked_s.pop(namespace, None)
        if found is not None:
            leaving = found.__aexit__(None, None, None)
            self.spawn(leaving, name=f"leave the policies of topics of {namespace}")

    async def _leave_unused(self) -> None:
        # A namespace with loaded topics is followed for their sake, whenever it was last asked for.
        in_use = set(self._in_use())
        # The loop's clock: in simulations it is that of the virtual time.
        asked_since_s = asyncio.get_running_loop().time() - UNUSED_S
        for namespace, asked_s in list(self._asked_s.items()):
            if namespace not in in_use and asked_s < asked_since_s:
                self._leave(namespace)

    async def _leave_all(self) -> None:
        for namespace in list(self._logs):
            await self._logs.pop(namespace).__aexit__(None, None, None)
        if self._client is not None:
            await self._client.close()


def _policies(event: PolicyEvent | None) -> TopicPolicies:
    return NO_TOPIC_POLICIES if event is None else event.policies


def _paths(namespace: NamespaceName) -> tuple[str, str]:
    """The nodes of ``__change_events``: of its log in the cluster's ZooKeeper; or, where brokers
    created it with partitions, of the partitioned topic in the configuration store."""
    events = events_topic(namespace)
    domain, local = events.domain, events.encoded_local
    return topic_path(events), partitioned_topic_path(str(namespace), domain, local)
