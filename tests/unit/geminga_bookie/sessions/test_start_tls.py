"""Proves that a bookie secures a connection when it is asked to, and lets nothing out in plain."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.unit.geminga.certificates import Authority
from tests.unit.geminga_bookie.fakes import make_add, make_entry
from tests.unit.geminga_bookie.host import Host
from tests.unit.geminga_bookie.v3_requests import add, read, request

from geminga_bookie.bookie import Bookie
from geminga_ledger.connections.single_request import SingleRequest, connect_with_tls
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v3 import encode_frame
from geminga_runtime.network import AsyncioNetwork
from geminga_server.tls.config import BookieClientTlsConfig, TlsConfig

pytestmark = pytest.mark.real_loop  # real sockets

HOST = "127.0.0.1"
START_TLS = encode_frame(request(pb.START_TLS))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def serving(authority: Authority | None) -> AsyncGenerator[Bookie]:
    """A bookie on a real port; with an authority, both it and its clients have a certificate."""
    tls: ssl.SSLContext | None = None
    if authority is not None:
        tls = TlsConfig(
            certificate_file=str(authority.issue("bookie", HOST)),
            trust_file=str(authority.trust_file),
            require_client_certificate=True,
        ).server_context()
    host = Host(bind_address=HOST, port=0)
    async with host.bookie(network=AsyncioNetwork(), tls=tls) as bookie:
        yield bookie


def client_tls(authority: Authority, *, is_known: bool = True) -> ssl.SSLContext:
    certificate = str(authority.issue("client", HOST)) if is_known else ""
    return BookieClientTlsConfig(
        trust_file=str(authority.trust_file), certificate_file=certificate
    ).context()


async def ask(bookie: Bookie, tls: ssl.SSLContext, frame: bytes) -> pb.Response:
    question = partial(SingleRequest, frame)
    transport, asking = await connect_with_tls(AsyncioNetwork(), question, (HOST, bookie.port), tls)
    try:
        async with asyncio.timeout(20):
            return await asking.answer
    finally:
        transport.close()


async def left(bookie: Bookie) -> None:
    """Wait until the bookie counts no connection any more."""
    async with asyncio.timeout(20):
        while bookie.limits.open_count:  # noqa: ASYNC110 - counting is all they do
            await asyncio.sleep(0)


async def test_requests_are_answered_over_a_secured_connection(authority: Authority) -> None:
    async with serving(authority) as bookie:
        tls = client_tls(authority)
        assert (await ask(bookie, tls, encode_frame(add(1, 0)))).status == pb.EOK
        answer = await ask(bookie, tls, encode_frame(read(1, 0)))
        assert answer.readResponse.body == make_entry(1, 0)
        await left(bookie)


async def test_a_connection_is_secured_once(authority: Authority) -> None:
    async with serving(authority) as bookie:
        assert (await ask(bookie, client_tls(authority), START_TLS)).status == pb.EBADREQ


async def test_a_client_whose_handshake_fails_is_counted_no_more(authority: Authority) -> None:
    async with serving(authority) as bookie:
        with pytest.raises(OSError):  # noqa: PT011 - a reset or an alert, as it happens
            await ask(bookie, client_tls(authority, is_known=False), encode_frame(add(1, 0)))
        await left(bookie)


async def test_bytes_behind_start_tls_end_the_connection(authority: Authority) -> None:
    async with serving(authority) as bookie:
        reader, writer = await asyncio.open_connection(HOST, bookie.port)
        writer.write(START_TLS)
        async with asyncio.timeout(20):
            size = int.from_bytes(await reader.readexactly(4))
            await reader.readexactly(size)
            writer.write(make_add(1, 0))  # no handshake
            assert await reader.read() in (b"", b"\x15\x03\x03\x00\x02\x02F")  # an alert at most
        writer.close()
        await left(bookie)


async def test_a_bookie_that_closes_does_not_wait_for_a_handshake(authority: Authority) -> None:
    async with asyncio.timeout(20), serving(authority) as bookie:
        reader, writer = await asyncio.open_connection(HOST, bookie.port)
        writer.write(START_TLS)
        await reader.readexactly(4)
    writer.close()


async def test_a_client_that_wants_tls_takes_nothing_else(authority: Authority) -> None:
    async with serving(None) as bookie:
        with pytest.raises(ConnectionRefusedError, match="serves no TLS"):
            await ask(bookie, client_tls(authority), encode_frame(add(1, 0)))
