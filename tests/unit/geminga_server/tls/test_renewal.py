"""Proves that servers secure connections with the files that they are told, take over files that
were replaced, and refuse clients without a certificate where one is required."""

from __future__ import annotations

import asyncio
import socket
import ssl
import warnings
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from tests.unit.geminga.certificates import Authority

from geminga_runtime.network import AsyncioNetwork
from geminga_server.errors import ServerStartError
from geminga_server.tls.config import TlsConfig
from geminga_server.tls.renewal import ServerTls

pytestmark = pytest.mark.real_loop  # real sockets, real files

HOST = "127.0.0.1"
# What a client sees of it depends on whether the server's alert came before its reset.
REFUSED = (OSError, asyncio.IncompleteReadError)


class Echo(asyncio.Protocol):
    """Sends back what comes, secured or not."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


@asynccontextmanager
async def serving(config: TlsConfig) -> AsyncGenerator[tuple[int, ServerTls]]:
    """An echo server with TLS: its port, and what renews its certificate."""
    async with ServerTls(config) as tls:
        listener = await AsyncioNetwork(tls.context).listen(Echo, HOST, 0)
        try:
            yield listener.port, tls
        finally:
            await listener.close()


async def shown(port: int, context: ssl.SSLContext, host: str = HOST) -> str:
    """The name in the certificate of the server at ``port``, which echoes."""
    reader, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname=host)
    try:
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        encoded = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        name = x509.load_der_x509_certificate(encoded).subject
        return str(name.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    finally:
        writer.close()


def trusting(authority: Authority, certificate: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.trust_file))
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def other_authority(directory: Path) -> Authority:
    (directory / "others").mkdir()
    return Authority(directory / "others")


async def test_certificates_that_were_replaced_are_shown_from_then_on(authority: Authority) -> None:
    certificate, renewed = authority.issue("first", HOST), authority.issue("second", HOST)
    config = TlsConfig(certificate_file=str(certificate), refresh_s=0.001)
    async with serving(config) as (port, _):
        assert await shown(port, trusting(authority)) == "first"
        renewed.rename(certificate)
        async with asyncio.timeout(20):
            while await shown(port, trusting(authority)) == "first":
                pass
        assert await shown(port, trusting(authority)) == "second"


async def test_clients_that_name_a_host_see_the_renewed_certificate_too(
    authority: Authority,
) -> None:
    certificate = authority.issue("first", "localhost")
    async with serving(TlsConfig(certificate_file=str(certificate))) as (port, tls):
        authority.issue("second", "localhost").rename(certificate)
        await tls.refresh()
        assert await shown(port, trusting(authority), "localhost") == "second"


async def test_a_connection_outlives_the_certificate_it_was_made_with(authority: Authority) -> None:
    certificate = authority.issue("first", HOST)
    async with serving(TlsConfig(certificate_file=str(certificate))) as (port, tls):
        reader, writer = await asyncio.open_connection(HOST, port, ssl=trusting(authority))
        authority.issue("second", HOST).rename(certificate)
        await tls.refresh()
        writer.write(b"still")
        assert await reader.readexactly(5) == b"still"
        writer.close()


async def test_half_replaced_files_change_nothing_and_are_logged_once(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = authority.issue("first", HOST), tmp_path / "key.pem"
    key.write_bytes(certificate.read_bytes())
    config = TlsConfig(certificate_file=str(certificate), key_file=str(key))
    async with serving(config) as (port, tls):
        renewed = authority.issue("second", HOST)
        certificate.write_bytes(renewed.read_bytes())
        await tls.refresh()
        await tls.refresh()
        assert await shown(port, trusting(authority)) == "first"
        assert [record.message for record in caplog.records] == ["tls files not taken over"]
        certificate.unlink()
        await tls.refresh()
        assert await shown(port, trusting(authority)) == "first"
        renewed.rename(certificate)
        key.write_bytes(certificate.read_bytes())
        await tls.refresh()
        assert await shown(port, trusting(authority)) == "second"


async def test_a_required_certificate_must_be_one_of_a_trusted_authority(
    tmp_path: Path, authority: Authority
) -> None:
    foreign = other_authority(tmp_path)
    config = TlsConfig(
        certificate_file=str(authority.issue("server", HOST)),
        trust_file=str(authority.trust_file),
        require_client_certificate=True,
    )
    async with serving(config) as (port, tls):
        mine = authority.issue("client", HOST)
        assert await shown(port, trusting(authority, mine)) == "server"
        theirs = foreign.issue("client", HOST)
        for certificate in (None, theirs):
            with pytest.raises(REFUSED):
                await shown(port, trusting(authority, certificate))
        # The authorities change with their file, too.
        authority.trust_file.write_bytes(foreign.trust_file.read_bytes())
        await tls.refresh()
        for_server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for_server.check_hostname, for_server.verify_mode = False, ssl.CERT_NONE
        for_server.load_cert_chain(theirs)
        assert await shown(port, for_server) == "server"
        for_server.load_cert_chain(mine)
        with pytest.raises(REFUSED):
            await shown(port, for_server)


async def test_a_client_is_asked_for_a_certificate_and_needs_none_unless_it_is_required(
    tmp_path: Path, authority: Authority
) -> None:
    config = TlsConfig(
        certificate_file=str(authority.issue("server", HOST)), trust_file=str(authority.trust_file)
    )
    async with serving(config) as (port, _):
        assert await shown(port, trusting(authority)) == "server"
        assert await shown(port, trusting(authority, authority.issue("client", HOST))) == "server"
        theirs = other_authority(tmp_path).issue("client", HOST)
        with pytest.raises(REFUSED):
            await shown(port, trusting(authority, theirs))


async def test_versions_and_ciphers_are_those_that_were_set(authority: Authority) -> None:
    config = TlsConfig(
        certificate_file=str(authority.issue("server", HOST)),
        protocols=("TLSv1.2",),
        ciphers=("ECDHE-ECDSA-AES256-GCM-SHA384",),
    )
    async with serving(config) as (port, _):
        _, writer = await asyncio.open_connection(HOST, port, ssl=trusting(authority))
        assert writer.get_extra_info("cipher")[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
        writer.close()
        newer = trusting(authority)
        newer.minimum_version = ssl.TLSVersion.TLSv1_3
        with pytest.raises(REFUSED):
            await shown(port, newer)


async def test_a_version_before_1_2_is_not_spoken(authority: Authority) -> None:
    config = TlsConfig(certificate_file=str(authority.issue("server", HOST)))
    old = trusting(authority)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with serving(config) as (port, _):
        with pytest.raises(REFUSED):
            await shown(port, old)


async def test_files_that_cannot_be_used_are_named(tmp_path: Path, authority: Authority) -> None:
    certificate, garbage = authority.issue("server", HOST), tmp_path / "garbage.pem"
    garbage.write_text("this is no certificate")
    for wrong in (garbage, tmp_path / "missing.pem"):
        for config in (
            TlsConfig(certificate_file=str(wrong)),
            TlsConfig(certificate_file=str(certificate), key_file=str(wrong)),
            TlsConfig(certificate_file=str(certificate), trust_file=str(wrong)),
        ):
            with pytest.raises(ServerStartError, match=wrong.name):
                config.server_context()


@pytest.mark.parametrize(
    "settings",
    [
        {"key_file": "key.pem"},
        {"trust_file": "ca.pem"},
        {"certificate_file": "server.pem", "require_client_certificate": True},
    ],
)
def test_settings_that_make_no_sense_together_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="tls"):
        TlsConfig(**settings)


async def test_a_client_that_never_ends_its_handshake_is_cut_off(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geminga_runtime.network.TLS_HANDSHAKE_TIMEOUT_S", 0.05)
    config = TlsConfig(certificate_file=str(authority.issue("server", HOST)))
    async with serving(config) as (port, _):
        with socket.create_connection((HOST, port)) as silent:
            silent.setblocking(False)  # noqa: FBT003  # socket's signature
            async with asyncio.timeout(20):
                assert await asyncio.get_running_loop().sock_recv(silent, 1) == b""
