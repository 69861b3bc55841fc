"""A real Apache Pulsar in a process of its own, with TLS, authentication and a proxy in front."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from tests.apache_java.java import pulsar_home
from tests.unit.geminga.certificates import Authority

KEY_BEGINS = "-----BEGIN PRIVATE KEY-----"
HOST = "127.0.0.1"
START_S = 180
SECRET = b"a secret that only this test knows"
PASSWORD = "sesame"  # of the user "basic-user", as `openssl passwd -apr1` writes it
HTPASSWD = "basic-user:$apr1$geminga1$af0xcZSiFcQXx7ChTFHX81\n"
CLIENT_METHODS = "org.apache.pulsar.client.impl.auth.Authentication"
PROVIDERS = "org.apache.pulsar.broker.authentication.AuthenticationProvider"


@dataclass(frozen=True)
class ApachePulsar:
    """Where it is, and what it trusts."""

    authority: Authority
    service_url: str
    service_url_tls: str
    web_url: str
    web_url_tls: str
    proxy_url: str


def token(role: str) -> str:
    """A JSON Web Token (RFC 7519) for a role, signed with HS256."""

    def encode(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    head = encode(json.dumps({"alg": "HS256"}).encode())
    text = f"{head}.{encode(json.dumps({'sub': role}).encode())}"
    return f"{text}.{encode(hmac.new(SECRET, text.encode(), hashlib.sha256).digest())}"


@contextmanager
def apache_pulsar(directory: Path) -> Generator[ApachePulsar]:
    """A standalone and a proxy with data below ``directory``. Raises ``NotRun``."""
    home = pulsar_home()
    authority = Authority(directory)
    binary, binary_tls, web, web_tls, bookie, proxy, proxy_web = free_ports(7)
    with ExitStack() as stack:
        config = configured(
            home / "conf" / "standalone.conf",
            directory / "standalone.conf",
            _settings(directory, authority)
            | {
                "brokerServicePort": binary,
                "brokerServicePortTls": binary_tls,
                "webServicePort": web,
                "webServicePortTls": web_tls,
            },
        )
        words = ["standalone", "-nfw", "-nss", "-a", HOST, "-c", str(config)]
        words += ["--metadata-dir", str(directory / "metadata"), "--bookkeeper-port", str(bookie)]
        words += ["--bookkeeper-dir", str(directory / "bookkeeper")]
        # Where the folder of a ZooKeeper is (by default one in PULSAR_HOME), Pulsar starts one.
        words += ["--zookeeper-dir", str(directory / "zookeeper")]
        log = directory / "broker.log"
        broker = stack.enter_context(running(home, words, log, PULSAR_STANDALONE_CONF=config))
        wait_for(broker, web, "/admin/v2/namespaces/public", "public/default", log)
        config = configured(
            home / "conf" / "proxy.conf",
            directory / "proxy.conf",
            _tokens("proxy")
            | {
                "authenticationProviders": f"{PROVIDERS}Token",
                "brokerServiceURL": f"pulsar://{HOST}:{binary}",
                "brokerWebServiceURL": f"http://{HOST}:{web}",
                "clusterName": "standalone",
                "brokerProxyAllowedHostNames": "*",
                "brokerProxyAllowedIPAddresses": "*",
                "brokerProxyAllowedTargetPorts": "*",
                "servicePort": proxy,
                "webServicePort": proxy_web,
                "bindAddress": HOST,
                "advertisedAddress": HOST,
            },
        )
        log = directory / "proxy.log"
        started = stack.enter_context(running(home, ["proxy"], log, PULSAR_PROXY_CONF=config))
        wait_for(started, proxy_web, "/metrics/", "", log)
        yield ApachePulsar(
            authority,
            f"pulsar://{HOST}:{binary}",
            f"pulsar+ssl://{HOST}:{binary_tls}",
            f"http://{HOST}:{web}",
            f"https://{HOST}:{web_tls}",
            f"pulsar://{HOST}:{proxy}",
        )


def _settings(directory: Path, authority: Authority) -> dict[str, object]:
    # Java wants the key in a file of its own, of a kind that all versions read.
    issued = authority.issue("broker", HOST, is_rsa=True).read_text()
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    certificate.write_text(issued[: issued.index(KEY_BEGINS)])
    key.write_text(issued[issued.index(KEY_BEGINS) :])
    passwords = directory / "htpasswd"
    passwords.write_text(HTPASSWD)
    return {
        "bindAddress": HOST,
        "advertisedAddress": HOST,
        "listeningInterface": "lo",
        "allowLoopback": "true",
        "httpServerEnabled": "false",
        "tlsCertificateFilePath": certificate,
        "tlsKeyFilePath": key,
        "tlsTrustCertsFilePath": authority.trust_file,
        "authenticationProviders": ",".join(f"{PROVIDERS}{n}" for n in ("Token", "Basic", "Tls")),
        "basicAuthConf": f"file://{passwords}",
        "superUserRoles": "admin,proxy",
        "proxyRoles": "proxy",
    } | _tokens("admin")


def _tokens(role: str) -> dict[str, object]:
    """Authenticates clients by tokens, and is ``role`` towards brokers itself."""
    return {
        "authenticationEnabled": "true",
        "tokenSecretKey": f"data:;base64,{base64.b64encode(SECRET).decode()}",
        "brokerClientAuthenticationPlugin": f"{CLIENT_METHODS}Token",
        "brokerClientAuthenticationParameters": f"token:{token(role)}",
    }


def configured(template: Path, path: Path, settings: Mapping[str, object]) -> Path:
    """Write a configuration: the one that comes with Pulsar, with these settings instead."""
    lines = template.read_text().splitlines()
    kept = [line for line in lines if line.partition("=")[0] not in settings]
    path.write_text(
        "\n".join([*kept, *(f"{name}={value}" for name, value in settings.items()), ""])
    )
    return path


@contextmanager
def running(
    home: Path, words: Iterable[str], log: Path, **configs: Path
) -> Generator[subprocess.Popen[bytes]]:
    """One of Pulsar's programs, until the block ends."""
    environment = dict(os.environ)
    environment["PULSAR_MEM"] = "-Xms256m -Xmx1g -XX:MaxDirectMemorySize=1g"
    environment["PULSAR_LOG_DIR"] = str(log.parent / "logs")
    environment.update({name: str(config) for name, config in configs.items()})
    with log.open("wb") as output:
        process = subprocess.Popen(
            [home / "bin" / "pulsar", *words],
            cwd=log.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(started: subprocess.Popen[bytes], port: int, path: str, word: str, log: Path) -> None:
    """Until a web service answers with ``word``."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and started.poll() is None:
        connection = http.client.HTTPConnection(HOST, port, timeout=5)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token('admin')}"})
            answer = connection.getresponse()
            if answer.status == 200 and word in answer.read().decode():
                return
        except OSError:
            pass
        finally:
            connection.close()
        Event().wait(0.2)
    raise AssertionError(f"it ended, or is not there after {START_S} s: {log.read_text()[-3000:]}")


def free_ports(count: int) -> list[int]:
    """Ports that were free at the same time."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
