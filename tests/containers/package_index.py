"""A package index as companies have them: HTTPS, with a certificate that no system knows.

What it has it gets from the index that pip is set up with here. Builds in a network without a way
out can use no other, so a build that succeeds has used it. ``NameServer`` makes its name known
there: pip takes no certificates for addresses.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urldefrag, urljoin, urlsplit
from urllib.request import Request, urlopen

# Where a pip without settings looks for packages.
USUAL_INDEX = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
TIMEOUT_S = 60.0
HOST = "packages.test"
NAME_SERVER_PORT = 53
LINK = re.compile(r'href="([^"]+)"')


class PackageIndex:
    """Serves on a socket that is bound; ``certificate`` is what its clients must trust.

    That is kept in ``directory``: engines build again what they built with another one.
    """

    def __init__(self, bound: socket.socket, directory: Path) -> None:
        self.url = f"https://{HOST}:{bound.getsockname()[1]}/simple"
        self.asked: list[str] = []
        key, certificate = directory / "index.key", directory / "index.pem"
        if not certificate.exists():
            _make_certificate(key, certificate)
        self.certificate = certificate.read_text()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._upstream = _Upstream()
        self._server = _server(bound, context, self)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(self._server.server_close)
        self._stack.callback(self._server.shutdown)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """``/simple/NAME/`` is a page of links, ``/files/NUMBER/NAME`` what one leads to."""
        self.asked.append(request.path)
        match request.path.strip("/").split("/"):
            case ["simple", name]:
                page = self._upstream.page(name).encode()
                request.send_response(200)
                request.send_header("Content-Type", "text/html")
                request.send_header("Content-Length", str(len(page)))
                request.end_headers()
                request.wfile.write(page)
            case ["files", number, name]:
                self._upstream.send_file(int(number), name, request)
            case _:
                request.send_error(404)


class _Upstream:
    """The index that pip is set up with here."""

    def __init__(self) -> None:
        configured = _output("-m", "pip", "config", "get", "global.index-url")
        told = os.environ.get("PIP_INDEX_URL") or configured or _output("-c", USUAL_INDEX)
        self._url = told.rstrip("/")
        self._context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
        self._files: list[str] = []  # where each link led; its number is in our own link

    def page(self, name: str) -> str:
        """The links to all files of a package, each of which leads here."""
        url = f"{self._url}/{name}/"
        with self._open(url, Accept="text/html") as answer:
            text = answer.read().decode()
        return LINK.sub(lambda link: f'href="{self._own_link(url, link[1])}"', text)

    def _own_link(self, page: str, link: str) -> str:
        target, digest = urldefrag(urljoin(page, html.unescape(link)))
        self._files.append(target)
        name = urlsplit(target).path.rpartition("/")[2]
        return f"/files/{len(self._files) - 1}/{name}#{digest}"

    def send_file(self, number: int, name: str, request: BaseHTTPRequestHandler) -> None:
        """Pass a file on, or its metadata, which stand beside it (PEP 658)."""
        metadata = ".metadata" if name.endswith(".metadata") else ""
        with self._open(self._files[number] + metadata) as answer:
            request.send_response(200)
            request.send_header("Content-Length", answer.headers["Content-Length"])
            request.end_headers()
            shutil.copyfileobj(answer, request.wfile, 1024 * 1024)

    def _open(self, url: str, **headers: str) -> Any:
        headers["Accept-Encoding"] = "identity"
        return urlopen(Request(url, headers=headers), timeout=TIMEOUT_S, context=self._context)


def _server(bound: socket.socket, context: ssl.SSLContext, index: PackageIndex) -> HTTPServer:
    """A server that has the index answer each request in a thread of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.answer(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class
            """Say nothing."""

    server = ThreadingHTTPServer(bound.getsockname(), Handler, bind_and_activate=False)
    server.daemon_threads = True
    server.socket.close()
    bound.listen()
    # The handshake belongs to the thread of each connection.
    server.socket = context.wrap_socket(bound, server_side=True, do_handshake_on_connect=False)
    return server


class NameServer:
    """Answers every question for an IPv4 address with the same one, on a bound UDP socket."""

    def __init__(self, bound: socket.socket, address: str) -> None:
        self._socket = bound
        self._address = socket.inet_aton(address)
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # it wakes the thread, though there is no connection to shut
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        # +----+-------+-----------+---------+-----+-----+------+------+-------+
        # | id | flags | questions | answers |  0  |  0  | name | type | class |   type 1: address
        # | u16|  u16  |    u16    |   u16   | u16 | u16 |      | u16  |  u16  |
        # +----+-------+-----------+---------+-----+-----+------+------+-------+
        # An answer follows it: where its name stands, type, class, seconds it holds, size, address.
        while True:
            message, client = self._socket.recvfrom(512)
            if not message:
                return
            name_end = message.index(0, 12) + 1
            is_wanted = message[name_end : name_end + 2] == b"\0\1"
            head = message[:2] + struct.pack(">HHHHH", 0x8180, 1, is_wanted, 0, 0)
            answer = struct.pack(">HHHIH4s", 0xC00C, 1, 1, 60, 4, self._address)
            body = message[12 : name_end + 4]
            self._socket.sendto(head + body + (answer if is_wanted else b""), client)


def _output(*words: str) -> str:
    """What Python prints; empty where it fails."""
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    return ended.stdout.strip() if ended.returncode == 0 else ""


def _make_certificate(key: Path, certificate: Path) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650"),
            *("-subj", "/CN=package index of a test", "-addext", f"subjectAltName=DNS:{HOST}"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        capture_output=True,
        check=True,
    )
