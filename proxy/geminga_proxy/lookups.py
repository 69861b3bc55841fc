"""What clients ask before they know their broker, forwarded to a broker.

That is which broker serves a topic, a topic's partitions and schemas, and the topics of a
namespace. Requests and answers are forwarded as they are, so that fields which brokers add one day
get through too; only the answer to a lookup is the proxy's own. Brokers take turns, over
connections that all clients share. A broker that cannot be reached, or does not answer in time, is
passed over; what a broker refuses is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from geminga._transport.connection import ConnectionOptions
from geminga._transport.connection_pool import ConnectionPool
from geminga._transport.service_urls import Route, parse_service_url
from geminga.errors import BrokerRefused, ClientError, NotConnected
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_lookup, encode_refusal
from geminga_protocol.pulsar.api_pb2 import BaseCommand, ServerError
from geminga_protocol.pulsar.commands import PART_NAMES, encode_command
from geminga_proxy.brokers import Brokers
from geminga_proxy.config import ProxyConfig
from geminga_proxy.errors import NoBroker
from geminga_runtime.network import Network
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# Brokers that one request is tried at: where so many cannot be reached, the next will not help.
BROKERS_TRIED_MAX = 5
# A broker that did not answer in its share of the time is tried after all others for so long: each
# of its turns would cost a client that share again. Longer than a client waits for an answer. A
# broker that hangs accepts connections, so only its silence tells.
STILL_S = 60.0
# Upstream's words.
TOO_MANY = "Too many concurrent lookup and partitionsMetadata requests"


@dataclass(slots=True)
class RequestCounts:
    """How many requests of one kind came, and how many of them were refused as too many."""

    asked: int = 0
    rejected: int = 0


# The requests that are forwarded, with the names that they are counted under. Anything else that a
# client asks is refused: it needs the client's own connection to a broker.
FORWARDED_COMMANDS: Mapping[int, str] = {
    BaseCommand.LOOKUP: "lookup",
    BaseCommand.PARTITIONED_METADATA: "partitions_metadata",
    BaseCommand.GET_TOPICS_OF_NAMESPACE: "get_topics_of_namespace",
    BaseCommand.GET_SCHEMA: "get_schema",
}


class Lookups(Service):
    """Answers clients' requests by asking brokers."""

    def __init__(self, brokers: Brokers, network: Network, config: ProxyConfig) -> None:
        super().__init__()
        # By the names in ``FORWARDED_COMMANDS``. Only counted up, for the metrics;
        # ``_open_requests`` is what bounds.
        self.counts = {name: RequestCounts() for name in FORWARDED_COMMANDS.values()}
        self._brokers = brokers
        self._is_tls = config.broker_tls.enabled
        self._requests_max = config.concurrent_lookup_requests_max
        self._redirects_max = config.lookup_redirects_max
        self._timeout_s = config.operation_timeout_s
        # One for each task of ``_answer`` that has not ended.
        self._open_requests = 0
        # Which broker is tried first, counted on with each request.
        self._turn = 0
        # How long one try may take, except the last: with as many tries as there may be, that one
        # has twice its share. With the worst case, five brokers of which four hang: four shares,
        # then two for the last.
        self._share_s = config.operation_timeout_s / (BROKERS_TRIED_MAX + 1)
        # Brokers that did not answer in time, by URL, and until when they are tried last. At most
        # as many as there are brokers: ``_in_turn`` drops the others.
        self._still_until: dict[str, float] = {}
        # Its connections are the proxy's own: all clients share them, and they outlive clients.
        self._pool = ConnectionPool(
            network,
            ConnectionOptions(
                connect_timeout_s=config.targets.broker_proxy_connect_timeout_s,
                ping_interval_s=config.keepalive_s,
                operation_timeout_s=config.operation_timeout_s,
            ),
        )

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._pool)

    def ask(
        self, command: BaseCommand, answer: Callable[[bytes], None]
    ) -> asyncio.Task[object] | None:
        """Call ``answer`` with the frame that answers ``command``, one of ``FORWARDED_COMMANDS``.

        Where too many requests are open, it is refused at once, and there is no task. The task may
        be cancelled when the client is gone.
        """
        counts = self.counts[FORWARDED_COMMANDS[command.type]]
        counts.asked += 1
        if self._open_requests >= self._requests_max:
            counts.rejected += 1
            answer(_refused(command, api.ServiceNotReady, TOO_MANY))
            return None
        # Before the task is made, so that requests of the same turn see it counted.
        self._open_requests += 1
        task = self.spawn(self._answer(command, answer), name="ask a broker")
        # Not in the task itself: one that is cancelled before it begins never runs. The callback
        # runs on every way out: answered, failed, cancelled.
        task.add_done_callback(self._answered)
        return task

    def _answered(self, _: object) -> None:
        self._open_requests -= 1

    async def _answer(self, command: BaseCommand, answer: Callable[[bytes], None]) -> None:
        """Ask brokers, and answer whatever comes of it."""
        # A copy: it gets a number of its own on each connection to a broker. Of the client's
        # request the caller keeps the original, whose number the answer needs.
        asked = BaseCommand()
        asked.CopyFrom(command)
        try:
            # Around all tries and redirects: a client waits no longer than for a broker.
            async with asyncio.timeout(self._timeout_s):
                if command.type == BaseCommand.LOOKUP:
                    frame = await self._owner(asked, command.lookupTopic.request_id)
                else:
                    found = await self._ask_any(asked)
                    # Under the number that the client gave its request.
                    number = getattr(command, PART_NAMES[command.type]).request_id
                    # The two numbers never meet: the one on the broker's connection is shared by
                    # many clients.
                    getattr(found, PART_NAMES[found.type]).request_id = number
                    frame = encode_command(found)
        # What a broker refused, it is answered with; everything else is a reason to try again.
        except BrokerRefused as error:
            frame = _refused(command, ServerError.Value(error.server_error), error.message)
        except (ClientError, NoBroker) as error:
            frame = _refused(command, api.ServiceNotReady, str(error))
        except TimeoutError:
            frame = _refused(command, api.ServiceNotReady, "no broker answered in time")
        # The only place that answers: a cancelled task answers nothing, as its client is gone.
        answer(frame)

    async def _owner(self, command: BaseCommand, request_id: int) -> bytes:
        """Look up a topic's owner, along redirects; the client is to come through the proxy."""
        # The listener's name is for clients that reach brokers themselves. The proxy reaches them
        # where they reach each other.
        command.lookupTopic.ClearField("advertised_listener_name")
        answer = await self._ask_any(command)
        # Bounded: brokers that disagree would send the request round in circles.
        for _ in range(self._redirects_max):
            response = answer.lookupTopicResponse
            if response.response == api.CommandLookupTopicResponse.Failed:
                # The broker has answered: its refusal goes to the client, and no other broker is
                # asked.
                raise BrokerRefused("UnknownError", "the lookup failed without a reason")
            # With TLS only addresses with TLS count, as ``BrokerView`` takes them.
            url = response.brokerServiceUrlTls if self._is_tls else response.brokerServiceUrl
            if not url:
                raise NotConnected("the topic's owner has no address that the proxy can use")
            if response.response == api.CommandLookupTopicResponse.Connect:
                # Both addresses are the one by which the proxy reaches the owner: the client names
                # it to the proxy, with TLS or without.
                return encode_lookup(
                    request_id, broker_url=url, broker_url_tls=url, is_through_proxy=True
                )
            # Handed on as the broker said: with authority, the broker that is asked next acquires
            # the bundle.
            command.lookupTopic.authoritative = response.authoritative
            answer = await self._ask(url, command)
        raise NotConnected("Reached max number of redirections")

    async def _ask_any(self, command: BaseCommand) -> BaseCommand:
        """Ask the broker whose turn it is, then those after it, until one answers.

        A broker is passed over where it cannot be reached, or does not answer in its share of the
        time. The last one has what is left of the request's time.
        """
        urls = self._in_turn()
        if not urls:
            raise NoBroker("no broker is there")
        # Each but the last has a bounded share, so that there is time left for the last.
        for url in urls[:-1]:
            try:
                async with asyncio.timeout(self._share_s):
                    return await self._ask(url, command)
            # It cannot be reached: the next one is asked at once.
            except NotConnected:
                continue
            except TimeoutError:
                # Only for its place in the order: while all hang, they are tried as before.
                self._still_until[url] = asyncio.get_running_loop().time() + STILL_S
                log.warning("broker did not answer in time: others go first", extra={"url": url})
        return await self._ask(urls[-1], command)

    def _in_turn(self) -> list[str]:
        """The brokers that one request is tried at, those that did not answer lately last."""
        now_s = asyncio.get_running_loop().time()
        urls = self._brokers.view.service_urls
        # Here, at each request, and not by a timer: an entry is only looked at here.
        self._still_until = {
            url: until
            for url, until in self._still_until.items()
            if now_s < until and url in urls  # brokers that are gone must not accumulate
        }
        self._turn += 1
        # Counted even where brokers come and go: the turn is only a place to begin at.
        first = self._turn % max(len(urls), 1)
        # A stable sort: brokers keep their turns among those that answer, and among the others.
        turns = sorted((*urls[first:], *urls[:first]), key=self._still_until.__contains__)
        return turns[:BROKERS_TRIED_MAX]

    async def _ask(self, url: str, command: BaseCommand) -> BaseCommand:
        # One address, as each URL of the view names one host.
        (address, *_) = parse_service_url(url)
        # Where connections to brokers use TLS, the network adds it, for lookups and splices alike.
        address = replace(address, is_tls=False)
        # Shared by all clients: a broker sees one connection of the proxy, not thousands.
        connection = await self._pool.get(Route(address))
        # Raises ``NotConnected`` where the connection is lost, ``BrokerRefused`` for an error.
        return await connection.request(command)


def _refused(command: BaseCommand, error: ServerError.ValueType, message: str) -> bytes:
    refusal = encode_refusal(command, error, message)
    assert refusal is not None, "these requests have ids"
    return refusal
