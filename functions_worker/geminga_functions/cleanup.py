"""Deletes what functions, sources and sinks leave behind: their subscriptions, unless they keep
them, and the topics of their state.

The leader does it, once nothing of the function consumes or writes any more. As with Pulsar's
workers it is tried a few times and then left: a subscription that is kept loses nothing, and keeps
its backlog.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
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

# Consumers of the last instances may be there for as long as a lease, and instances may take their
# time to stop.
TRIES_MAX = 20
RETRY_S = 1.0


class Functions(Protocol):
    """The functions of a cluster of workers, as far as they are known."""

    @property
    def records(self) -> Mapping[FunctionName, FunctionMetaData]:
        """At this moment."""
        ...

    @property
    def removed(self) -> Mapping[FunctionName, int]:
        """Those that were deleted within the last hour, and when."""
        ...

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` after every change from now on."""
        ...


class Cleanup(Service):
    """Watches ``functions``, and deletes at brokers where ``is_leader``.

    ``state_topics`` gives the topics of a function's state that there are, or raises
    ``ClientError``.
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
        self._known: Mapping[FunctionName, FunctionMetaData] = {}

    async def _open_parts(self) -> None:
        await super()._open_parts()
        self._known = dict(self._functions.records)
        self._functions.listen(self._changed)

    def _changed(self) -> None:
        before, self._known = self._known, dict(self._functions.records)
        if not self._is_leader():
            return
        for name, metadata in before.items():
            if name not in self._known and name not in self._functions.removed:
                # A broker has trimmed the topic, say: what belongs to the function stays.
                log.error(
                    "the log has lost a function that no worker deleted",
                    extra={"function": str(name)},
                )
            elif name not in self._known:
                work = self._clean(name, metadata.functionDetails)
                self.spawn(work, name=f"what {name} leaves")

    async def _clean(self, name: FunctionName, details: FunctionDetails) -> None:
        left = deletions(details, self._web_url) if details.source.cleanupSubscription else []
        for _ in range(TRIES_MAX):
            left = [each for each in left if not await self._has_done(each)]
            if await self._has_no_state(name) and not left:
                return
            await asyncio.sleep(RETRY_S)
            if name in self._functions.records:
                return  # it was created again, and goes on where the one before ended
        log.warning(
            "subscriptions or topics of state of a deleted function are left",
            extra={"function": str(name), "urls": [each.url for each in left]},
        )

    async def _has_no_state(self, name: FunctionName) -> bool:
        """Delete the topics of its state; says whether there are none any more. Brokers refuse it
        for those that an instance still has open."""
        try:
            topics = await self._state_topics(name)
        except geminga.ClientError:
            return False
        calls = [RestCall("DELETE", topic_url(self._web_url, each, "")) for each in topics]
        return all([await self._has_done(each) for each in calls])

    async def _has_done(self, call: RestCall) -> bool:
        try:
            answer = await self._calls.call(call)
        except ServerUnreachable:
            return False
        return answer.is_success or answer.status == 404


def deletions(details: FunctionDetails, web_url: str) -> list[RestCall]:
    """What brokers are asked for; of a pattern, the subscriptions of all its namespace. Pure."""
    subscription = quote(subscription_of(details), safe="")
    calls: list[RestCall] = []
    for topic, spec in sorted(details.source.inputSpecs.items()):
        try:
            name = TopicName.parse(topic)
        except InvalidTopicName:
            continue  # nothing could consume it
        if spec.isRegexPattern:
            namespace = f"{web_url.rstrip('/')}/admin/v2/namespaces/{quote(str(name.namespace))}"
            calls.append(RestCall("POST", f"{namespace}/unsubscribe/{subscription}"))
        else:
            url = topic_url(web_url, str(name), f"/subscription/{subscription}")
            calls.append(RestCall("DELETE", url))
    return calls
