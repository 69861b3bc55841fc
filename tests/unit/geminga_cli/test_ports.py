"""Proves that a reserved port can be listened on, again and again, and is not given again."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from geminga_cli.ports import ReservedPort, why_unusable

HOST = "127.0.0.1"


def listening(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((HOST, port))
        sock.listen()
    except OSError:
        sock.close()
        raise
    return sock


def test_a_program_can_listen_on_its_reserved_port() -> None:
    with (
        ReservedPort(HOST, 0) as reserved,
        listening(reserved.port) as server,
        socket.create_connection((HOST, reserved.port)) as client,
    ):
        server.accept()[0].close()
        assert client.recv(1) == b""


def test_the_port_is_still_there_when_its_program_comes_back() -> None:
    with ReservedPort(HOST, 0) as reserved:
        for _ in range(3):
            listening(reserved.port).close()


def test_a_connection_to_a_port_that_is_only_reserved_is_refused() -> None:
    with ReservedPort(HOST, 0) as reserved, pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, reserved.port))


def test_ports_reserved_at_the_same_time_all_differ() -> None:
    held = [ReservedPort(HOST, 0) for _ in range(200)]
    assert len({reserved.port for reserved in held}) == 200
    for reserved in held:
        reserved.close()


def test_a_port_that_a_program_listens_on_cannot_be_reserved() -> None:
    with listening(0) as server, pytest.raises(OSError, match="in use"):
        ReservedPort(HOST, server.getsockname()[1])


def test_an_address_of_another_machine_cannot_be_reserved() -> None:
    with pytest.raises(OSError, match="Cannot assign") as refused:
        ReservedPort("192.0.2.1", 0)
    assert why_unusable(refused.value) == "this machine has no such address"


def test_reasons_are_plain_words() -> None:
    assert why_unusable(OSError(errno.EADDRINUSE, "x")) == "it is in use"
    assert why_unusable(OSError(errno.EIO, os.strerror(errno.EIO))) == "Input/output error"
    assert why_unusable(OSError("odd")) == "odd"
