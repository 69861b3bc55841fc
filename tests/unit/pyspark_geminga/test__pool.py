"""Clients that a process keeps from one task to the next, whatever became of their connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import closing

import pytest

from geminga_protocol.framing import FrameReader
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import PING, parse_command
from pyspark_geminga._pool import task_client
from pyspark_geminga.access import Access

READ_BYTES = 1 << 16
WAIT_S = 60.0


class ForgetfulBroker(threading.Thread):
    """Answers one question on each connection. When the client is idle it sends a PING, closes the
    connection, and says so."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"pulsar://127.0.0.1:{self._server.getsockname()[1]}"
        self.is_idle, self.has_closed = threading.Event(), threading.Event()

    def run(self) -> None:
        with self._server:
            for _ in range(2):
                connection, _ = self._server.accept()
                with connection:
                    self._answer_once(connection)
                self.has_closed.set()

    def _answer_once(self, connection: socket.socket) -> None:
        frames = FrameReader(1 << 20)
        while chunk := connection.recv(READ_BYTES):
            buffer, bounds = frames.feed(chunk)
            for start, end in bounds:
                command, _ = parse_command(buffer, start, end)
                if command.type == BaseCommand.CONNECT:
                    connection.sendall(answers.encode_connected(21, 1 << 20))
                elif command.type == BaseCommand.PARTITIONED_METADATA:
                    request_id = command.partitionMetadata.request_id
                    connection.sendall(answers.encode_partitions(request_id, 3))
                    assert self.is_idle.wait(WAIT_S)
                    connection.sendall(PING)
                    return


@pytest.fixture
def broker() -> Generator[ForgetfulBroker]:
    started = ForgetfulBroker()
    started.start()
    yield started
    started.join(WAIT_S)


def test_a_connection_that_was_closed_between_two_tasks_fails_no_request(
    broker: ForgetfulBroker,
) -> None:
    """Between tasks nothing answers the broker: it closes the connection after a minute."""
    access = Access.of({"service.url": broker.url})
    first = task_client(access)
    with closing(first):
        assert first.run(first.client.partitions("t")) == 3
        broker.is_idle.set()
        assert broker.has_closed.wait(WAIT_S)
        second = task_client(access)
        assert second is first
        assert second.run(second.client.partitions("t")) == 3
