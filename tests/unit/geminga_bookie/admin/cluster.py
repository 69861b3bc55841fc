"""Two bookies, the first with its admin, and a client that writes ledgers, all simulated."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from geminga_bookie.admin.access import AdminAccess
from geminga_bookie.admin.app import BookieAdmin
from geminga_bookie.bookie import Bookie
from geminga_bookie.config import BookieConfig
from geminga_bookie.index.memory_store import MemoryStore
from geminga_ledger import LedgerError, Ledgers
from geminga_protocol.records.bookies.bookie_info import READ_ONLY_PATH
from geminga_protocol.records.ledgers.ledger_metadata import INSTANCE_ID_PATH
from geminga_runtime.coordination import Coordination
from geminga_server.authorization import Authorize, Resource, allow_all
from geminga_server.http.server import Message, Receive, Scope, Send
from geminga_simulation.simulate import simulate
from geminga_simulation.world import World

RESOURCE = Resource("cluster", "bookie")


class Silent:
    """A writer's listener."""

    def entries_confirmed(self, last_confirmed: int) -> None:
        """Nothing."""

    def writer_failed(self, error: LedgerError) -> None:
        """It should not."""
        raise AssertionError(error)


class Abandoned(Silent):
    """The listener of a writer that is left open till the connections close."""

    def writer_failed(self, error: LedgerError) -> None:
        """Then it fails."""


@dataclass(slots=True)
class Answered:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as words."""
        return self.body.decode()

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


async def elsewhere(_scope: Scope, _receive: Receive, send: Send) -> None:
    """The part's own application."""
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@dataclass(slots=True)
class Cluster:
    """What a test gets."""

    bookies: list[Bookie]
    access: AdminAccess
    ledgers: Ledgers
    coordination: Coordination
    authorize: Authorize = allow_all

    async def ask(self, method: str, target: str, body: bytes = b"") -> Answered:
        """One request to the first bookie's admin."""
        admin = BookieAdmin(self.access, elsewhere, resource=RESOURCE, authorize=self.authorize)
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
        }
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await admin(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        assert not sent[-1].get("more_body")
        return Answered(sent[0]["status"], headers, b"".join(each["body"] for each in sent[1:]))

    async def get(self, target: str) -> Answered:
        """GET."""
        return await self.ask("GET", target)

    async def put(self, target: str, content: object = None) -> Answered:
        """PUT, with JSON where there is content."""
        return await self.ask(
            "PUT", target, b"" if content is None else json.dumps(content).encode()
        )

    async def write(self, *payloads: bytes, copies: int = 2, is_open: bool = False) -> int:
        """A new ledger with these entries; its id."""
        writer = await self.ledgers.create(
            listener=Abandoned() if is_open else Silent(),
            ensemble_size=copies,
            write_quorum=copies,
            ack_quorum=copies,
        )
        writer.append_all(payloads)
        await writer.drained()
        if not is_open:
            await writer.close()
        return writer.ledger_id


Scenario = Callable[[Cluster], Awaitable[None]]


def run(scenario: Scenario) -> None:
    """Run ``scenario`` with a cluster of its own."""

    async def main() -> None:
        async with World() as world, cluster_in(world) as cluster:
            await scenario(cluster)

    simulate(1, main)


@asynccontextmanager
async def cluster_in(world: World) -> AsyncGenerator[Cluster, None]:
    """The cluster."""
    async with AsyncExitStack() as stack:
        host = world.host("client")
        session = await stack.enter_async_context(host.coordination())
        await session.create(INSTANCE_ID_PATH, b"simulated", make_parents=True)
        await session.create(READ_ONLY_PATH, make_parents=True)
        bookies: list[Bookie] = []
        for name in ("b1", "b2"):
            machine = world.host(name)
            bookie = Bookie(
                BookieConfig(bind_address=name, bookie_id=name),
                journal_disks=[machine.disk("journal")],
                ledger_disks=[machine.disk("ledgers")],
                index=MemoryStore(),
                network=machine.network,
                coordination=await stack.enter_async_context(machine.coordination()),
                clock=machine.clock,
            )
            bookies.append(await stack.enter_async_context(bookie))
        machine = world.host("b1")
        access = AdminAccess(
            bookies[0],
            coordination=session,
            network=machine.network,
            clock=machine.clock,
            random=machine.random,
            index_files=lambda: ["000004.sst"],
            configuration={"port": "3181", "sync": "True"},
        )
        await stack.enter_async_context(access)
        ledgers = Ledgers(session, host.network, host.clock, host.random)
        await stack.enter_async_context(ledgers)
        yield Cluster(bookies, access, ledgers, session)
