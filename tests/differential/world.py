"""What a scenario has: a namespace of its own, clients on raw connections, REST, and words for what
clients usually do. All of it is written down, except what only prepares.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias

from tests.differential import web
from tests.differential.patience import patient
from tests.differential.plain import Json, shape
from tests.differential.transcript import Line, Transcript
from tests.differential.wire import WireClient

from geminga_protocol.pulsar import api_pb2 as api

TENANT = "diff"
CLUSTER = "standalone"
ONE_BUNDLE = {"bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}}
SETTLE_S = 8.0
POLL_S = 0.05

SubType: TypeAlias = api.CommandSubscribe.SubType.ValueType


class SetupFailed(AssertionError):
    """The broker did not let a scenario begin."""


class Client(WireClient):
    """A raw client with the words that scenarios use. Topics are named without their namespace."""

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, world.service_url, world.transcript)
        self._world = world

    async def lookup(self, topic: str = "t", **fields: Any) -> api.BaseCommand | None:
        """LOOKUP."""
        name = self._world.topic(topic)
        return await self.ask(api.CommandLookupTopic(topic=name, request_id=0, **fields))

    async def producer(
        self, producer_id: int = 1, topic: str = "t", **fields: Any
    ) -> api.BaseCommand | None:
        """PRODUCER."""
        name = self._world.topic(topic)
        return await self.ask(
            api.CommandProducer(topic=name, producer_id=producer_id, request_id=0, **fields)
        )

    async def subscribe(
        self,
        consumer_id: int = 1,
        subscription: str = "s",
        kind: SubType = api.CommandSubscribe.Exclusive,
        *,
        topic: str = "t",
        **fields: Any,
    ) -> api.BaseCommand | None:
        """SUBSCRIBE, from the earliest message unless told; consumers are named a1, a2 ..."""
        usual: dict[str, Any] = {
            "initialPosition": api.CommandSubscribe.Earliest,
            "consumer_name": f"{self.name}{consumer_id}",
        }
        return await self.ask(
            api.CommandSubscribe(
                topic=self._world.topic(topic),
                subscription=subscription,
                subType=kind,
                consumer_id=consumer_id,
                request_id=0,
                **(usual | fields),
            )
        )

    async def take_sorted(self, count: int) -> None:
        """Take the next ``count`` commands, which may come in any order."""
        with self._transcript.sorted():
            await self.take(count)

    def flow(self, permits: int, consumer_id: int = 1) -> None:
        """FLOW."""
        self.post(api.CommandFlow(consumer_id=consumer_id, messagePermits=permits))

    async def messages(self, count: int, consumer_id: int = 1) -> list[api.MessageIdData]:
        """FLOW for ``count`` entries, and take them; returns their ids."""
        self.flow(count, consumer_id)
        return await self.arriving(count)

    async def arriving(self, count: int) -> list[api.MessageIdData]:
        """Take the next ``count`` commands, and return the ids of those that are messages."""
        taken = await self.take(count)
        return [each.message.message_id for each in taken if each.type == api.BaseCommand.MESSAGE]

    async def acknowledge(
        self,
        *message_ids: api.MessageIdData,
        consumer_id: int = 1,
        cumulative: bool = False,
    ) -> api.BaseCommand | None:
        """ACK with a receipt."""
        kind = api.CommandAck.Cumulative if cumulative else api.CommandAck.Individual
        return await self.ask(
            api.CommandAck(consumer_id=consumer_id, ack_type=kind, message_id=message_ids)
        )

    def redeliver(self, *message_ids: api.MessageIdData, consumer_id: int = 1) -> None:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES: these, or all."""
        self.post(
            api.CommandRedeliverUnacknowledgedMessages(
                consumer_id=consumer_id, message_ids=message_ids
            )
        )

    async def seek(self, consumer_id: int = 1, **fields: Any) -> api.BaseCommand | None:
        """SEEK; a durable consumer is closed by it, and hears so."""
        return await self.ask(api.CommandSeek(consumer_id=consumer_id, request_id=0, **fields))

    async def unsubscribe(self, consumer_id: int = 1, **fields: Any) -> api.BaseCommand | None:
        """UNSUBSCRIBE."""
        return await self.ask(
            api.CommandUnsubscribe(consumer_id=consumer_id, request_id=0, **fields)
        )

    async def close_consumer(self, consumer_id: int = 1) -> api.BaseCommand | None:
        """CLOSE_CONSUMER."""
        return await self.ask(api.CommandCloseConsumer(consumer_id=consumer_id, request_id=0))

    async def close_producer(self, producer_id: int = 1) -> api.BaseCommand | None:
        """CLOSE_PRODUCER."""
        return await self.ask(api.CommandCloseProducer(producer_id=producer_id, request_id=0))

    async def last_message_id(self, consumer_id: int = 1) -> api.BaseCommand | None:
        """GET_LAST_MESSAGE_ID."""
        return await self.ask(api.CommandGetLastMessageId(consumer_id=consumer_id, request_id=0))


class World:
    """One scenario's part of a broker."""

    def __init__(self, scenario: str, service_url: str, web_url: str) -> None:
        self.namespace = f"{TENANT}/{scenario}"
        self.service_url = service_url
        self.web_url = web_url
        self.transcript = Transcript()
        self._clients: list[Client] = []

    async def __aenter__(self) -> Self:
        path = self.namespace_path()
        answer = await self._request("PUT", path, ONE_BUNDLE)
        if answer.status == 409:  # left by an earlier run on the same broker
            await self._request("DELETE", f"{path}?force=true")
            answer = await self._request("PUT", path, ONE_BUNDLE)
        if answer.status != 204:
            raise SetupFailed(f"{path}: {answer}")
        # No client may use a topic whose bundle the broker has not taken, as a lookup makes it do.
        await self._request("GET", f"/lookup/v2/topic/persistent/{self.namespace}/t")
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()

    def finish(self) -> list[Line]:
        """What was written down, and behind it what clients heard and did not ask for."""
        for client in self._clients:
            client.leftovers()
        return self.transcript.lines

    # Names

    def topic(self, name: str) -> str:
        """The whole name of a topic of this scenario; a whole name stays as it is."""
        return name if "://" in name else f"persistent://{self.namespace}/{name}"

    def topic_path(self, topic: str = "t", tail: str = "", domain: str = "persistent") -> str:
        """The path of a topic's REST resource."""
        return f"/admin/v2/{domain}/{self.namespace}/{topic}{tail}"

    def namespace_path(self, tail: str = "") -> str:
        """The path of the namespace's REST resource."""
        return f"/admin/v2/namespaces/{self.namespace}{tail}"

    # Clients

    async def silent_client(self, name: str = "a") -> Client:
        """A connection that has not said anything yet."""
        client = Client(name, self)
        await client.open()
        self._clients.append(client)
        return client

    async def client(self, name: str = "a", **connect: Any) -> Client:
        """A client that is connected."""
        client = await self.silent_client(name)
        with self.transcript.quiet():
            await client.connect(**connect)
        return client

    async def filled(
        self, bodies: Sequence[str | bytes], topic: str = "t", **metadata: Any
    ) -> list[api.MessageIdData]:
        """Publish these messages by a producer that is gone afterwards; returns their ids."""
        with self.transcript.quiet():
            client = await self.client("filler")
            await client.lookup(topic)
            await client.producer(topic=topic)
            for sequence_id, body in enumerate(bodies):
                client.send(1, sequence_id, body, **metadata)
            message_ids = await client.receipts(len(bodies))
            await client.close_producer()
            await client.close()
            self._clients.remove(client)
        for each in message_ids:
            self.transcript.plain.ledger(each.ledgerId)
        return message_ids

    def note(self, what: str, value: Json) -> None:
        """Write down something that the scenario worked out itself."""
        self.transcript.add("note", what, value)

    # REST

    async def _request(self, method: str, path: str, body: object = None) -> web.WebAnswer:
        return await asyncio.to_thread(web.request, self.web_url, method, path, body)

    async def rest(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        pick: Callable[[Any], Any] = lambda answer: answer,
    ) -> Any:
        """One request; of an answer without error, what ``pick`` takes of it is written down."""
        answer = await self._request(method, path, body)
        content = answer.json()
        plain = self.transcript.plain.json(pick(content) if answer.status < 300 else content)
        asked = self.transcript.plain.text(f"{method} {path}")
        self.transcript.add("rest", asked, answer.status, plain)
        return content

    async def rest_headers(self, method: str, path: str, *, prefixes: Sequence[str]) -> None:
        """One request; the status, the headers with these prefixes, and how the content looks."""
        answer = await self._request(method, path)
        plain = self.transcript.plain
        headers = {
            name: plain.text(value)
            for name, value in sorted(answer.headers.items())
            if name.startswith(tuple(prefixes))
        }
        self.transcript.add("rest", plain.text(f"{method} {path}"), answer.status, headers)
        text = plain.text(answer.content.decode("latin-1"))
        self.transcript.add("rest", "content", text)

    async def stats(
        self, pick: Callable[[Any], Any] = shape, topic: str = "t", tail: str = "/stats"
    ) -> Any:
        """A topic's stats, of which ``pick`` takes what matters: the shape unless told."""
        return await self.rest("GET", self.topic_path(topic, tail), pick=pick)

    async def settled(self, path: str, is_true: Callable[[Any], bool]) -> bool:
        """Ask for a resource, unwritten, until it is as wanted; False if it never is."""
        deadline = time.monotonic() + patient(SETTLE_S)
        while time.monotonic() < deadline:
            answer = await self._request("GET", path)
            if answer.status == 200 and is_true(answer.json()):
                return True
            await asyncio.sleep(POLL_S)
        return False

    async def settled_stats(self, is_true: Callable[[Any], bool], topic: str = "t") -> None:
        """Wait until a topic's stats are as wanted, and write down if they never are."""
        if not await self.settled(self.topic_path(topic, "/stats"), is_true):
            self.note("stats never were as awaited", topic)


def prepare(web_url: str) -> None:
    """Make the tenant that all scenarios live under."""
    body = {"adminRoles": [], "allowedClusters": [CLUSTER]}
    answer = web.request(web_url, "PUT", f"/admin/v2/tenants/{TENANT}", body)
    if answer.status not in (204, 409):
        raise SetupFailed(str(answer))


async def warm_up(service_url: str, web_url: str) -> None:
    """Use a topic a few times: a broker that just started is slower than the scenarios wait."""
    for attempt in range(3):
        async with World(f"warm-up-{attempt}", service_url, web_url) as world:
            await world.filled(["x"])
            client = await world.client()
            await client.subscribe()
            await client.messages(1)
