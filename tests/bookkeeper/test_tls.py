"""Proves that TLS is begun as BookKeeper begins it: its client secures its connections to our
bookies, and ours to Java's bookies; both sides show and check certificates."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from tests.bookkeeper.clusters import Cluster, running_cluster
from tests.bookkeeper.java_bookkeeper import JavaBookKeeper
from tests.bookkeeper.test_java_bookies import READ_BYTES, Listener
from tests.bookkeeper.words import words_of
from tests.unit.geminga.certificates import Authority

from geminga_server.tls.config import BookieClientTlsConfig

HOST = "127.0.0.1"
JAVAS_TLS = {
    "tlsProvider": "JDK",
    "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
    "tlsClientAuthentication": "true",
}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_bookkeepers_client_secures_its_connections_to_our_bookies(
    version: str,
    java: JavaBookKeeper,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {
        "CERTIFICATE_FILE": authority.issue("bookie", HOST),
        "TRUST_FILE": authority.trust_file,
        "REQUIRE_CLIENT_CERTIFICATE": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"GEMINGA_BOOKIE_TLS__{name}", str(value))
    certificate = str(authority.issue("client", HOST))
    client = {
        **JAVAS_TLS,
        "clientTrustStoreType": "PEM",
        "clientTrustStore": str(authority.trust_file),
        "clientKeyStoreType": "PEM",
        "clientKeyStore": certificate,
        "tlsCertificatePath": certificate,
        "tlsHostnameVerificationEnabled": "true",
    }
    with running_cluster(tmp_path, java, ours=3, javas=0) as cluster:
        written = java.run_program(
            cluster.zookeeper, version, "write", "50", "1000", settings=client
        )
        ledger = words_of(written)["ledger"]
        told = java.run_program(cluster.zookeeper, version, "read", ledger, settings=client)
        assert words_of(told) == {"last": "49", "length": "50000", "right": "50"}
        logs = [log.read_text() for log in tmp_path.glob("ours-*.log")]
        assert all("connection secured" in log for log in logs)


@pytest.fixture
def java_bookie(
    java: JavaBookKeeper, authority: Authority, tmp_path: Path
) -> Generator[Cluster, None, None]:
    """A cluster of one bookie of Java's, which has a certificate and wants one."""
    certificate = str(authority.issue("bookie", HOST))
    bookie = {
        **JAVAS_TLS,
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": str(authority.trust_file),
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": certificate,
        "tlsCertificatePath": certificate,
    }
    with running_cluster(tmp_path, java, ours=0, javas=1, settings=bookie) as cluster:
        yield cluster


async def test_our_client_secures_its_connections_to_java_bookies(
    java_bookie: Cluster, authority: Authority
) -> None:
    # A connection that could not be secured would be none.
    tls = BookieClientTlsConfig(
        trust_file=str(authority.trust_file),
        certificate_file=str(authority.issue("client", HOST)),
        check_hostname=True,
    )
    async with java_bookie.ledgers(tls=tls) as ledgers:
        writer = await ledgers.create(listener=Listener())
        writer.append_all([b"%d" % number for number in range(50)])
        await writer.close()
        reader = await ledgers.open(writer.ledger_id, recover=True)
        entries = await reader.read(0, 49, bytes_max=READ_BYTES)
        assert [bytes(entry) for entry in entries] == [b"%d" % number for number in range(50)]
