"""Orders go to the bookie's HTTP; what it answers is told, also where it does not obey."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.unit.geminga_cli.bookie_admin.simulated import options_of

from geminga_cli.bookie_admin.errors import OrderRefused
from geminga_cli.bookie_admin.orders import force_gc, set_read_only, set_writable

Capture = pytest.CaptureFixture[str]
Asked = list[tuple[str, bytes]]


@contextmanager
def bookie(
    status: int, answer: object
) -> Generator[tuple[str, list[tuple[str, bytes]]], None, None]:
    """Answers every PUT so; its address, and what it was asked."""
    asked: Asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            asked.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Silent."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def test_a_collection_is_ordered(capsys: Capture) -> None:
    with bookie(200, "Triggered GC on BookieServer: b1") as (address, asked):
        assert force_gc(options_of("force-gc", "b1", "--http", f"http://{address}/")) == 0
    assert asked == [("/api/v1/bookie/gc", b"")]
    assert capsys.readouterr().out == "bookie b1 collects garbage now\n"


def test_the_mode_is_ordered_and_what_holds_then_is_told(capsys: Capture) -> None:
    with bookie(200, {"readOnly": True}) as (address, asked):
        assert set_read_only(options_of("set-readonly", "b1", "--http", address)) == 0
        assert set_writable(options_of("set-writable", "b1", "--http", address)) == 1
    path = "/api/v1/bookie/state/readonly"
    assert asked == [(path, b'{"readOnly": true}'), (path, b'{"readOnly": false}')]
    assert capsys.readouterr().out.splitlines() == [
        "bookie b1 is read-only",
        "bookie b1 is read-only, for another reason; its log says which",
    ]


@pytest.mark.parametrize(("status", "answer"), [(500, b"no"), (200, b"<html>"), (200, [1])])
def test_an_answer_that_is_none_is_a_refusal(status: int, answer: object) -> None:
    with (
        bookie(status, answer) as (address, _),
        pytest.raises(OrderRefused, match="b1"),
    ):
        set_read_only(options_of("set-readonly", "b1", "--http", address))


def test_the_command_names_the_address_at_which_no_bookie_answers() -> None:
    with pytest.raises(OrderRefused, match=r"127\.0\.0\.1:1"):
        force_gc(options_of("force-gc", "b1", "--http", "127.0.0.1:1"))
