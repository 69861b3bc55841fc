"""A session reads nothing of a client before it is known that the client may use the bookie."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

import pytest
from tests.unit.geminga_bookie.fakes import MemoryNetwork, make_add
from tests.unit.geminga_bookie.host import Host
from tests.unit.geminga_bookie.sessions.test_session import added, settle

from geminga_bookie.sessions.connection import AUTHORIZATION_TIMEOUT_S
from geminga_protocol.bookkeeper.v2 import parse_response
from geminga_runtime.coordination import CoordinationError
from geminga_runtime.errors import GemingaError
from geminga_runtime.network import AsyncioNetwork
from geminga_server.authorization import Action, NotAuthorized, Principal, Resource
from geminga_server.run import uvloop_factory


class LateAuthorizer:
    """Answers when it is told to: that everything is allowed, or with an error."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_asked = asyncio.Event()

    async def authorize(self, principal: Principal, action: Action, resource: Resource) -> None:
        del principal, action, resource
        self.is_asked.set()
        await self.answer


async def test_a_client_is_read_once_it_is_known_to_be_allowed() -> None:
    host, authorizer = Host(), LateAuthorizer()
    async with host.bookie(authorizer.authorize) as bookie:
        client = host.network.connect_client()
        client.send(make_add(1, 1))
        await settle()
        assert not client.is_read()
        assert not bookie.storage.write_cache.active_bytes
        authorizer.answer.set_result(None)
        assert await client.answers(1) == [added(1, 1)]
        assert client.is_read()
        assert await client.ask(make_add(1, 0)) == [added(1, 0)]


@pytest.mark.real_loop
@pytest.mark.parametrize("loop_factory", [uvloop_factory(), asyncio.new_event_loop])
def test_a_request_that_comes_with_its_connection_waits_too(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario() -> None:
        host, authorizer = Host(port=0), LateAuthorizer()
        host.network = cast(MemoryNetwork, AsyncioNetwork())
        async with host.bookie(authorizer.authorize) as bookie, asyncio.timeout(60):
            # Both are there before the loop accepts: nothing is awaited in between.
            with socket.create_connection(("127.0.0.1", bookie.port)) as client:
                client.sendall(make_add(1, 0))
                client.settimeout(0)
                await authorizer.is_asked.wait()
                await settle()
                assert not bookie.storage.write_cache.active_bytes
                authorizer.answer.set_result(None)
                answer = await asyncio.get_running_loop().sock_recv(client, 1024)
                assert parse_response(answer, 4, len(answer))[:2] == added(1, 0)[:2]

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())


@pytest.mark.parametrize(
    "error",
    [
        NotAuthorized("user", Action.ADMINISTER, "bookie bookie-1"),
        CoordinationError("ZooKeeper is away"),
    ],
)
async def test_a_client_not_known_to_be_allowed_is_not_served(error: GemingaError) -> None:
    host, authorizer = Host(), LateAuthorizer()
    async with host.bookie(authorizer.authorize) as bookie:
        client = host.network.connect_client()
        authorizer.answer.set_exception(error)
        await settle()
        assert client.transport.has_ended
        assert not client.is_read()
        assert len(bookie.back_pressure.connections) == 0


async def test_a_client_is_not_served_when_authorization_does_not_answer() -> None:
    host = Host()
    async with host.bookie(LateAuthorizer().authorize):
        client = host.network.connect_client()
        await asyncio.sleep(AUTHORIZATION_TIMEOUT_S)
        await settle()
        assert client.transport.has_ended
        assert not client.is_read()
