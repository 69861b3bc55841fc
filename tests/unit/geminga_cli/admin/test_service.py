"""Proves how brokers are asked: what is sent, what comes of the answer, when to follow."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from geminga_cli.admin.errors import AdminRefused, BrokerUnreachable, InvalidUse
from geminga_cli.admin.service import REDIRECTS_MAX, AdminService, FormPart, TlsOptions

TIMEOUT_S = 10.0


class Handler(BaseHTTPRequestHandler):
    """Answers by the last part of the path; notes what was asked."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[tuple[str, str, Any, str | None]]] = []
    media_types: ClassVar[list[str | None]] = []
    answers: ClassVar[dict[str, tuple[int, dict[str, str], bytes]]] = {
        "json": (200, {}, b'{"a": 1}'),
        "nothing": (204, {}, b""),
        "word": (200, {}, b"4.0.6"),
        "refused": (409, {}, b'{"reason": "It exists"}'),
        "named": (404, {}, b'{"reason": "No \\u001b[2J\\u009b1A in\\nall topics"}'),
        "mute": (503, {}, b""),
        "page": (502, {}, b"<html>a proxy</html>"),
        "moved": (307, {"Location": "/admin/v2/json?x=1"}, b""),
        "circle": (307, {"Location": "/admin/v2/circle"}, b""),
    }

    def answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) or None
        self.media_types.append(self.headers.get("Content-Type"))
        content: Any = body
        if body is not None and self.headers.get_content_type() == "application/json":
            content = json.loads(body)
        self.asked.append((self.command, self.path, content, self.headers.get("Authorization")))
        status, headers, answered = self.answers[self.path.partition("?")[0].split("/")[-1]]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answered)))
        self.end_headers()
        self.wfile.write(answered)

    do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - its base class's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base class
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    Handler.asked.clear()
    Handler.media_types.clear()
    server = HTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.fixture
def service(url: str) -> Iterator[AdminService]:
    with AdminService(url, auth_params="token:abc", timeout_s=TIMEOUT_S) as service:
        yield service


def test_answers_are_json_or_words_or_nothing(service: AdminService) -> None:
    assert service.ask("GET", "json", {"force": True, "n": 3}) == {"a": 1}
    assert service.ask("PUT", "nothing", content=0) is None
    assert service.ask("GET", "/other/word") == "4.0.6"
    assert Handler.asked == [
        ("GET", "/admin/v2/json?force=true&n=3", None, "Bearer abc"),
        ("PUT", "/admin/v2/nothing", 0, "Bearer abc"),
        ("GET", "/other/word", None, "Bearer abc"),
    ]


def test_a_refusal_has_the_brokers_own_words(service: AdminService) -> None:
    with pytest.raises(AdminRefused, match=r"It exists \(HTTP 409\)"):
        service.ask("GET", "refused")
    with pytest.raises(AdminRefused, match=r"Service Unavailable \(HTTP 503\)"):
        service.ask("GET", "mute")
    with pytest.raises(AdminRefused, match=r"Bad Gateway \(HTTP 502\)"):
        service.ask("GET", "page")


def test_a_reason_keeps_its_lines_and_moves_no_cursor(service: AdminService) -> None:
    with pytest.raises(AdminRefused) as refusal:
        service.ask("GET", "named")
    assert str(refusal.value) == "No \\x1b[2J\\x9b1A in\nall topics (HTTP 404)"


def test_another_broker_is_asked_where_one_is_named(service: AdminService) -> None:
    assert service.ask("POST", "moved", content=[1]) == {"a": 1}
    assert Handler.asked[-1] == ("POST", "/admin/v2/json?x=1", [1], "Bearer abc")


def test_brokers_that_name_each_other_are_left(service: AdminService) -> None:
    with pytest.raises(AdminRefused, match="HTTP 307"):
        service.ask("GET", "circle")
    assert len(Handler.asked) == REDIRECTS_MAX + 1


def test_where_no_broker_is_the_url_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with (
            AdminService(url, timeout_s=TIMEOUT_S) as service,
            pytest.raises(BrokerUnreachable, match=url),
        ):
            service.ask("GET", "json")


@pytest.mark.parametrize("url", ["localhost:8080", "pulsar://localhost:6650", "http://", ""])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidUse, match="should be a URL"):
        AdminService(url, timeout_s=TIMEOUT_S)


def test_a_token_is_read_from_its_file(url: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    with AdminService(url, auth_params=f"token:file://{file}", timeout_s=TIMEOUT_S) as service:
        service.ask("GET", "json")
    assert Handler.asked[-1][3] == "Bearer secret"


@pytest.mark.parametrize("params", ["abc", "token:file:///nowhere/at/all"])
def test_credentials_that_cannot_be_used_are_refused(params: str) -> None:
    with pytest.raises(InvalidUse, match="token"):
        AdminService("http://localhost", auth_params=params, timeout_s=TIMEOUT_S)


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "authorities"
    file.write_text("none")
    with pytest.raises(InvalidUse, match="holds no certificates"):
        TlsOptions(file).context()


def form_in(body: bytes, media_type: str) -> dict[str, tuple[str | None, bytes]]:
    """The parts of a form as Python's own parser of mail reads them: file name and content."""
    message = message_from_bytes(f"Content-Type: {media_type}\r\n\r\n".encode() + body)
    return {
        str(part.get_param("name", header="content-disposition")): (
            part.get_filename(),
            bytes(part.get_payload(decode=True)),
        )
        for part in message.get_payload()
        if isinstance(part, Message)
    }


def test_a_form_is_sent_with_its_files_and_again_to_where_it_is_referred(
    service: AdminService, tmp_path: Path
) -> None:
    file = tmp_path / 'a "b".zip'
    file.write_bytes(bytes(range(256)) * 4096)
    parts = [FormPart("config", '{"a": "\u00e4"}', "application/json"), FormPart("data", file)]
    assert service.submit("POST", "moved", parts) == {"a": 1}
    assert [path for _, path, _, _ in Handler.asked] == ["/admin/v2/moved", "/admin/v2/json?x=1"]
    for (_, _, body, token), media_type in zip(Handler.asked, Handler.media_types, strict=True):
        assert token == "Bearer abc"
        assert form_in(body, str(media_type)) == {
            "config": (None, '{"a": "\u00e4"}'.encode()),
            "data": (file.name, file.read_bytes()),
        }


def test_a_file_that_cannot_be_sent_is_said_to_be_so(service: AdminService, tmp_path: Path) -> None:
    with pytest.raises(InvalidUse, match=r"nothere\.zip"):
        service.submit("POST", "json", [FormPart("data", tmp_path / "nothere.zip")])
    assert Handler.asked == []


def test_an_answer_is_written_into_a_file(service: AdminService, tmp_path: Path) -> None:
    service.download("json", {"path": "a/b"}, tmp_path / "answer")
    assert (tmp_path / "answer").read_bytes() == b'{"a": 1}'
    assert Handler.asked[0][1] == "/admin/v2/json?path=a%2Fb"


def test_a_refusal_leaves_no_file(service: AdminService, tmp_path: Path) -> None:
    with pytest.raises(AdminRefused, match="It exists"):
        service.download("refused", {}, tmp_path / "answer")
    assert not (tmp_path / "answer").exists()
