"""Deletes what removed functions leave behind: subscriptions, and the topics of their state.

A function may ask to keep its subscriptions. The leader deletes them once no instance consumes or
writes any more. As Pulsar's workers do, it gives up after some retries: a subscription that stays
loses nothing, but keeps its backlog.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Protocol
from urllib.parse import quote

import geminga
from geminga_functions.broker_calls import topic_url
from geminga_functions.instance.inputs import subscription_of
from geminga_functions.names import FunctionName
from geminga_protocol.functions.functions_pb2 import FunctionDetails, FunctionMetaData
from geminga_protocol.pulsar.errors import InvalidTopicName
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.service import Service
from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import RestCall, RestCalls

log = logging.getLogger(__name__)

# Brokers refuse deletions as long as instances are connected: they may run until the end of a
# lease, and take some time to stop.
TRIES_MAX = 20
RETRY_S = 1.0


class Functions(Protocol):
    """The log of the functions of a cluster of workers; ``KeyedLog`` is one."""

    # The functions that exist.
    records: Mapping[FunctionName, FunctionMetaData]
    # The functions that were removed within the last hour, and when.
    removed: Mapping[FunctionName, int]
    # Called after every change.
    listeners: list[Callable[[], None]]


class Cleanup(Service):
    """Follows ``functions``, and cleans up after removed ones as long as ``is_leader``.

    ``state_topics`` returns the topics of a function's state that exist, or raises ``ClientError``.
    """

    def __init__(
        self,
        functions: Functions,
        is_leader: Callable[[], bool],
        calls: RestCalls,
        web_url: str,
        state_topics: Callable[[FunctionName], Awaitable[Iterable[str]]],
    ) -> None:
        super().__init__()
        self._functions = functions
        self._is_leader = is_leader
        self._calls = calls
        self._web_url = web_url
        self._state_topics = state_topics
        # The functions before the last change: the metadata of removed ones are found here.
        self._known: Mapping[FunctionName, FunctionMetaData] = {}

    async def _open(self, stack: AsyncExitStack) -> None:  # noqa: ARG002 - nothing stays open
        self._known = dict(self._functions.records)
        self._functions.listeners.append(self._changed)

    def _changed(self) -> None:
        before, self._known = self._known, dict(self._functions.records)
        # ``_known`` is kept up to date all the same: this worker may lead at the next change.
        if not self._is_leader():
            return
        for name, metadata in before.items():
            if name not in self._known and name not in self._functions.removed:
                # Perhaps a broker has trimmed the topic. Nothing of the function is deleted.
                log.error(
                    "the log has lost a function that no worker deleted",
                    extra={"function": str(name)},
                )
            elif name not in self._known:
                work = self._clean(name, metadata.functionDetails)
                self.spawn(work, name=f"what {name} leaves")

    async def _clean(self, name: FunctionName, details: FunctionDetails) -> None:
        # The topics of state are deleted in any case; only subscriptions can be kept.
        left = deletions(details, self._web_url) if details.source.cleanupSubscription else []
        for _ in range(TRIES_MAX):
            left = [each for each in left if not await self._has_done(each)]
            try:
                topics = await self._state_topics(name)
            except geminga.ClientError:
                has_state = True  # for all that is known
            else:
                calls = [RestCall("DELETE", topic_url(self._web_url, each, "")) for each in topics]
                # Brokers refuse to delete a topic that an instance still has open. A list, not a
                # generator: every topic is tried, even after one that could not be deleted.
                has_state = not all([await self._has_done(each) for each in calls])
            if not has_state and not left:
                return
            # Brokers refuse it as long as instances are connected, which have only just been told
            # to stop.
            await asyncio.sleep(RETRY_S)
            if name in self._functions.records:
                return  # it was created again, and continues with the subscriptions and the state
        log.warning(
            "subscriptions or topics of state of a deleted function are left",
            extra={"function": str(name), "urls": [each.url for each in left]},
        )

    async def _has_done(self, call: RestCall) -> bool:
        try:
            answer = await self._calls.call(call)
        except ServerUnreachable:
            return False
        # 404: an earlier attempt may have succeeded without an answer.
        return answer.is_success or answer.status == 404


def deletions(details: FunctionDetails, web_url: str) -> list[RestCall]:
    """The requests that delete the subscriptions of a function. Pure.

    For a pattern, one request deletes the subscription of all topics in a namespace.
    """
    # The name may contain slashes, which are one part of the path here.
    subscription = quote(subscription_of(details), safe="")
    calls: list[RestCall] = []
    for topic, spec in sorted(details.source.inputSpecs.items()):
        try:
            name = TopicName.parse(topic)
        except InvalidTopicName:
            continue  # no consumer could have subscribed to it
        if spec.isRegexPattern:
            namespace = f"{web_url.rstrip('/')}/admin/v2/namespaces/{quote(str(name.namespace))}"
            calls.append(RestCall("POST", f"{namespace}/unsubscribe/{subscription}"))
        else:
            url = topic_url(web_url, str(name), f"/subscription/{subscription}")
            calls.append(RestCall("DELETE", url))
    return calls
