"""Proves that connections are secured, that what is not to be trusted is refused, and that errors
say what to do. The broker is one in memory, behind a real socket with real certificates."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.geminga.certificates import Authority, server_context
from tests.unit.geminga.listening import listening_broker

import geminga
from geminga import ConnectionLost, InvalidServiceUrl, NotConnected, Tls, TlsFailed, connect

pytestmark = pytest.mark.real_loop  # real sockets

HOST = "127.0.0.1"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def certificate(authority: Authority) -> Path:
    return authority.issue("broker", HOST)


async def send(url: str, tls: Tls | None) -> None:
    async with (
        geminga.connect(url, tls=tls, operation_timeout_s=1) as client,
        client.producer("orders") as producer,
    ):
        await producer.send(b"secret")


async def test_messages_go_over_tls(authority: Authority, certificate: Path) -> None:
    async with listening_broker(server_context(certificate)) as broker:
        await send(broker.url, Tls(trust_file=authority.trust_file))
        assert broker.stored_bodies == [b"secret"]
        transport = broker.sessions[0].transport
        assert isinstance(transport, asyncio.Transport)
        assert isinstance(transport.get_extra_info("ssl_object"), ssl.SSLObject)


async def test_a_certificate_of_an_unknown_authority_is_refused(certificate: Path) -> None:
    async with listening_broker(server_context(certificate)) as broker:
        with pytest.raises(TlsFailed, match="authority's certificate with trust_file"):
            await send(broker.url, None)
        assert broker.received == []


async def test_a_certificate_for_another_host_is_refused(authority: Authority) -> None:
    other = authority.issue("other", "elsewhere.example")
    async with listening_broker(server_context(other)) as broker:
        with pytest.raises(TlsFailed, match=r"for another host.*checks_hostname=False"):
            await send(broker.url, Tls(trust_file=authority.trust_file))
        assert broker.received == []
        await send(broker.url, Tls(trust_file=authority.trust_file, checks_hostname=False))
        assert broker.stored_bodies == [b"secret"]


async def test_an_expired_certificate_is_refused(authority: Authority) -> None:
    expired = authority.issue("expired", HOST, timedelta(days=-1))
    async with listening_broker(server_context(expired)) as broker:
        with pytest.raises(TlsFailed, match="not valid at this time"):
            await send(broker.url, Tls(trust_file=authority.trust_file, checks_hostname=False))
        assert broker.received == []


async def test_any_certificate_will_do_for_a_client_that_says_so(authority: Authority) -> None:
    expired = authority.issue("expired", "elsewhere.example", timedelta(days=-1))
    async with listening_broker(server_context(expired)) as broker:
        await send(broker.url, Tls(allows_untrusted=True))
        assert broker.stored_bodies == [b"secret"]


async def test_a_broker_is_shown_the_clients_certificate(
    tmp_path: Path, authority: Authority, certificate: Path
) -> None:
    mine = authority.issue("me", "me.example")
    async with listening_broker(server_context(certificate, clients=authority)) as broker:
        await send(broker.url, Tls(authority.trust_file, certificate_file=mine))
        assert broker.stored_bodies == [b"secret"]
        (tmp_path / "others").mkdir()
        foreign = Authority(tmp_path / "others").issue("me", "me.example")
        for shown in (None, foreign):
            # Which of them depends on whether the broker's alert came before its reset.
            with pytest.raises((TlsFailed, ConnectionLost), match="needs certificate_file and key"):
                await send(broker.url, Tls(authority.trust_file, certificate_file=shown))


async def test_certificates_are_read_anew_for_each_connection(
    tmp_path: Path, authority: Authority, certificate: Path
) -> None:
    trusted = tmp_path / "trusted.pem"
    (tmp_path / "others").mkdir()
    shutil.copy(Authority(tmp_path / "others").trust_file, trusted)
    async with (
        listening_broker(server_context(certificate)) as broker,
        geminga.connect(broker.url, tls=Tls(trusted)) as client,
    ):
        with pytest.raises(TlsFailed):
            await client.producer("orders")
        shutil.copy(authority.trust_file, trusted)
        await client.producer("orders")


async def test_an_answer_that_is_no_tls_says_which_port_to_use() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, HOST, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TlsFailed, match="use its TLS port, or a URL without TLS"):
            await send(f"pulsar+ssl://{HOST}:{port}", None)


async def test_a_broker_that_hangs_up_at_a_handshake_may_speak_no_tls() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    server = await asyncio.start_server(hang_up, HOST, 0)
    async with server:
        url = f"pulsar+ssl://{HOST}:{server.sockets[0].getsockname()[1]}"
        async with connect(url, operation_timeout_s=0.1) as client:
            # Its time ends with an attempt, or between two: both say why the last one failed.
            ends = ConnectionLost, NotConnected
            with pytest.raises(ends, match="use its TLS port, or a URL without TLS"):
                await client.producer("orders")


async def test_the_next_broker_is_asked_where_one_is_not_to_be_trusted(
    authority: Authority, certificate: Path
) -> None:
    expired = authority.issue("expired", HOST, timedelta(days=-1))
    async with (
        listening_broker(server_context(expired)) as bad,
        listening_broker(server_context(certificate)) as good,
    ):
        hosts = ",".join(each.url.removeprefix("pulsar+ssl://") for each in (bad, good))
        for _ in range(4):  # clients begin at either of them
            await send(f"pulsar+ssl://{hosts}", Tls(authority.trust_file))
        assert good.stored_bodies == [b"secret"] * 4
        assert bad.received == []


@pytest.mark.parametrize(
    ("name", "words"),
    [("trust_file", "certificates in PEM form"), ("certificate_file", "belong together")],
)
async def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, name: str, words: str) -> None:
    garbage = tmp_path / "garbage.pem"
    tls = Tls(trust_file=garbage) if name == "trust_file" else Tls(certificate_file=garbage)
    for text in (None, "this is no certificate"):
        if text is not None:
            garbage.write_text(text)
        with pytest.raises(TlsFailed, match=f"(?s){name} .*garbage.pem.*{words}"):
            await send("pulsar+ssl://127.0.0.1:1", tls)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="certificate_file"):
        Tls(key_file="key.pem")
    with pytest.raises(ValueError, match="allows_untrusted"):
        Tls(trust_file="ca.pem", allows_untrusted=True)


async def test_tls_for_a_url_without_it_is_refused() -> None:
    with pytest.raises(InvalidServiceUrl, match=r"pulsar\+ssl"):
        geminga.connect("pulsar://localhost:6650", tls=Tls())


async def test_a_broker_at_an_ipv6_address_is_reached(authority: Authority) -> None:
    certificate = authority.issue("six", "::1")
    async with listening_broker(server_context(certificate), host="::1") as broker:
        await send(broker.url, Tls(authority.trust_file))
        assert broker.stored_bodies == [b"secret"]
