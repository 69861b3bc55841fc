"""`geminga health` believes what a part says of itself, and knows which part a container runs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from geminga_cli.commands.health import main, part_of
from geminga_cli.main import COMMANDS


@contextmanager
def answering(*answers: bytes) -> Generator[tuple[int, list[bytes]]]:
    """A port whose clients are answered with these bytes, one after the other; what they said."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for answer in answers:
                connection, _ = listening.accept()
                with connection:
                    heard.append(connection.recv(4096))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1], heard
        finally:
            thread.join()


@pytest.mark.parametrize(
    ("part", "asked"),
    [
        ("standalone", b"GET /admin/v2/brokers/health HTTP/1.0"),
        ("cluster", b"GET /admin/v2/brokers/health HTTP/1.0"),
        ("broker", b"GET /admin/v2/brokers/health HTTP/1.0"),
        ("bookie", b"GET /health HTTP/1.0"),
        ("autorecovery", b"GET /health HTTP/1.0"),
    ],
)
def test_a_part_is_asked_where_it_tells_its_health(part: str, asked: bytes) -> None:
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as (port, heard):
        assert main([part, "--port", str(port)]) == 0
    assert heard[0].splitlines()[0] == asked


def test_an_unhealthy_parts_reason_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\nread-only") as (port, _):
        assert main(["bookie", "--port", str(port)]) == 1
    assert capsys.readouterr().err == "geminga: the bookie is not healthy: read-only\n"


@pytest.mark.parametrize(("answer", "code"), [(b"imok", 0), (b"", 1), (b"not serving", 1)])
def test_a_zookeeper_is_asked_in_its_own_words(answer: bytes, code: int) -> None:
    with answering(answer) as (port, heard):
        assert main(["zookeeper", "--port", str(port)]) == code
    assert heard == [b"ruok"]


@pytest.mark.parametrize("part", ["broker", "zookeeper"])
def test_a_part_that_does_not_listen_is_not_healthy(
    part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert main([part, "--port", str(port)]) == 1
    assert f"127.0.0.1:{port}: " in capsys.readouterr().err


def test_a_part_that_is_nearly_up_is_waited_for() -> None:
    refusal = b"HTTP/1.1 503 Not yet\r\n\r\nnot yet"
    yes = b"HTTP/1.1 200 OK\r\n\r\n"
    with answering(refusal, refusal, yes) as (port, heard):
        assert main(["broker", "--port", str(port), "--wait", "30"]) == 0
    assert len(heard) == 3
    with answering(refusal) as (port, heard):
        assert main(["broker", "--port", str(port)]) == 1
    assert len(heard) == 1


@pytest.mark.parametrize(("answer", "told"), [(b"SSH-2.0\r\n", "SSH-2.0"), (b"", "says nothing")])
def test_what_is_no_answer_is_not_healthy(
    answer: bytes, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(answer) as (port, _):
        assert main(["broker", "--port", str(port)]) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("/opt/venv/bin/python /opt/venv/bin/geminga broker --port 1", "broker"),
        ("/sbin/docker-init -- geminga standalone --data-dir /data", "standalone"),
        ("/sbin/docker-init -- geminga cluster up", "cluster"),
        ("/opt/venv/bin/python /opt/venv/bin/geminga bookie-admin cookie", None),
        ("/sbin/init bookie", None),
    ],
)
def test_a_containers_part_is_known_by_its_first_process(
    words: str, part: str | None, tmp_path: Path
) -> None:
    command_line = tmp_path / "cmdline"
    command_line.write_bytes(words.replace(" ", "\0").encode() + b"\0")
    assert part_of(command_line) == part


def test_it_is_a_command() -> None:
    assert COMMANDS["health"].module == "geminga_cli.commands.health"
