"""The channels of one client, and what they share: connections, lookups, ids and names."""

from __future__ import annotations

import asyncio
import itertools
import string
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from geminga._transport.connection import ConnectionOptions
from geminga._transport.connection_pool import ConnectionPool
from geminga._transport.http_lookup import HttpLookup, TopicLookup, WebOptions
from geminga._transport.lookup import REDIRECTS_MAX, Lookup
from geminga._transport.service_urls import DEFAULT_PORTS, WEB_DEFAULT_PORTS, parse_service_url
from geminga.authentication import Authentication
from geminga.errors import ClientError, InvalidServiceUrl
from geminga.tls import Tls
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.backoff import Backoff
from geminga_runtime.network import Network
from geminga_runtime.service import Service

# Of the names of consumers that were given none: 26^8 of them, so that two are hardly ever alike.
NAME_LETTERS = 8


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Times of a client, in seconds, and how many brokers a lookup is sent on to."""

    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    # The delay before a producer or consumer attaches again doubles from the first to the limit.
    # The limit is short, because a broker or bookie that was killed is back within seconds.
    reconnect_first_s: float = 0.1
    reconnect_limit_s: float = 5.0
    # A producer or consumer that no broker accepted again for so long is given up; ``None``, as
    # upstream's clients: never.
    reconnect_timeout_s: float | None = None
    lookup_redirects_max: int = REDIRECTS_MAX


@dataclass(frozen=True, slots=True)
class Access:
    """How a client gets into a cluster."""

    # Which certificates secure its connections; ``None``: what the system trusts.
    tls: Tls | None = None
    # How it shows who it is; ``None``: it does not.
    authentication: Authentication | None = None
    # Which of the addresses that a broker advertises it wants; ``None``: the usual ones.
    listener_name: str | None = None


OPEN = Access()

AnswerT = TypeVar("AnswerT")


class Channels(Service):
    """The channels of one client, and what they share: connections, lookup, ids.

    Closing it closes the owners of several channels (``owners``) and every other open channel, by
    what its owner wants called (the owner may have more to send), then the connections. Making it
    raises ``InvalidServiceUrl``.
    """

    def __init__(
        self,
        service_url: str,
        options: ClientOptions,
        *,
        network: Network,
        random: Random,
        access: Access = OPEN,
    ) -> None:
        super().__init__()
        self.options = options
        addresses = parse_service_url(service_url, DEFAULT_PORTS | WEB_DEFAULT_PORTS)
        scheme = service_url.partition("://")[0]
        is_web = scheme in WEB_DEFAULT_PORTS
        tls, method = access.tls, access.authentication
        # One scheme holds for all addresses of a URL. Options of TLS for a URL without it would be
        # ignored in silence, and credentials sent unencrypted.
        if tls is not None and not addresses[0].is_tls:
            wanted = "https://" if is_web else "pulsar+ssl://"
            raise InvalidServiceUrl(service_url, f"with tls= it has to begin with {wanted}")
        # Made before the lookup, which asks over its connections unless it asks over HTTP.
        self.pool = ConnectionPool(network, options.connection, tls, method)
        timeout_s = options.connection.operation_timeout_s
        redirects_max = options.lookup_redirects_max
        web = WebOptions(tls or Tls(), method, access.listener_name, timeout_s, redirects_max)
        # The scheme of the URL decides how brokers are asked; topics themselves are reached by
        # ``pool`` in both cases.
        self.lookup: TopicLookup = (
            HttpLookup(tuple(f"{scheme}://{each}" for each in addresses), web, random)
            if is_web
            else Lookup(self.pool, addresses, random, access.listener_name, redirects_max)
        )
        # Chooses names and partitions; seeded in simulations.
        self.random = random
        # Numbers for producers, consumers and watchers: no two of this client share one.
        self.ids = itertools.count()
        # What has several channels, or none, and how it is closed when the client closes. An owner
        # enters itself, and leaves once it is closed.
        self.owners: dict[object, Callable[[], Awaitable[None]]] = {}
        # What closes each open channel, by the ids of these.
        self._closes: dict[int, Callable[[], Awaitable[None]]] = {}

    def random_name(self) -> str:
        """A name for a consumer that was given none."""
        return "".join(self.random.choices(string.ascii_lowercase, k=NAME_LETTERS))

    async def partitions(self, topic: TopicName, *, creates: bool = True) -> int:
        """How many partitions a topic has, 0 without; asks again while that may help.

        A topic that does not exist may be made, as its namespace says; without ``creates`` it is
        not. Raises ``TopicNotFound``, or the last ``ClientError`` when the time of an operation is
        over.
        """
        return await self.retrying(lambda: self.lookup.partitions(str(topic), creates=creates))

    async def schema(self, topic: TopicName, version: bytes | None = None) -> api.Schema:
        """That version of a topic's schema, or the newest one; asks again while that may help.

        Raises ``TopicNotFound`` where there is none, or the last ``ClientError`` when the time of
        an operation is over.
        """
        return await self.retrying(lambda: self.lookup.schema(str(topic), version))

    async def retrying(self, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """Ask until there is an answer, or an error that asking again cannot mend; raises the last
        error when the time of an operation is over."""
        loop = asyncio.get_running_loop()
        # The deadline bounds the attempts, and each attempt has the timeout of its request: the
        # last one may end later.
        deadline_s = loop.time() + self.options.connection.operation_timeout_s
        backoff = self.backoff()
        while True:
            try:
                return await ask()
            except ClientError as error:
                # Looked at only after an attempt: a loop that was blocked past the deadline makes
                # one first.
                if not error.retry or loop.time() >= deadline_s:
                    raise
            await asyncio.sleep(backoff.next_s())

    def backoff(self) -> Backoff:
        """The delays between attempts to attach one channel."""
        options = self.options
        return Backoff(options.reconnect_first_s, options.reconnect_limit_s, self.random)

    def run(
        self,
        channel_id: int,
        title: str,
        close: Callable[[], Awaitable[None]],
        work: Coroutine[object, None, None],
    ) -> asyncio.Task[object]:
        """Run the task of a channel; until it ends, ``close`` is called when the client closes."""
        task = self.spawn(work, name=f"{title}, {channel_id}")
        self._closes[channel_id] = close
        # Also for a task that is cancelled before its first step.
        task.add_done_callback(lambda _: self._closes.pop(channel_id, None))
        return task

    async def _open(self, stack: AsyncExitStack) -> None:
        # The pool closes last, behind the tasks of the channels, which use its connections.
        await stack.enter_async_context(self.pool)

    async def _close(self) -> None:
        # Before the tasks end that keep them attached: what was sent may need a new connection. All
        # at a time, since each may wait for a broker that does not answer.
        closes = [*self.owners.values(), *self._closes.values()]
        # A copy: each channel leaves ``_closes`` as it ends. A channel of an owner is closed twice,
        # which is harmless.
        await asyncio.gather(*[close() for close in closes])
        await super()._close()
