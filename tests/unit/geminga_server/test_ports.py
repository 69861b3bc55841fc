"""Proves that what cannot be listened on is noticed before it is tried, and said in plain words."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from geminga_server.errors import ConfigError, ServerStartError
from geminga_server.ports import cannot_listen, free_port, require_distinct


def test_the_same_port_twice_is_refused_and_both_options_are_named() -> None:
    with pytest.raises(ConfigError, match="--port and --web-port are both 7000"):
        require_distinct({"--port": 7000, "--other": 7001, "--web-port": 7000})


def test_any_free_port_may_be_wanted_as_often_as_one_likes() -> None:
    require_distinct({"--port": 0, "--web-port": 0, "--other": 1})


def test_a_chosen_port_is_kept_and_any_other_is_free() -> None:
    port = free_port("127.0.0.1", 0)
    assert free_port("127.0.0.1", port) == port
    with socket.create_server(("127.0.0.1", port)) as listening:
        assert listening.getsockname()[1] == port


@pytest.mark.parametrize("port", [0, 6650])
def test_an_address_of_another_machine_is_refused_with_what_would_be_right(port: int) -> None:
    with pytest.raises(ServerStartError, match=rf"192\.0\.2\.1:{port}: .*address of this machine"):
        free_port("192.0.2.1", port)


def test_a_host_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ServerStartError, match=r"there is no host called no\.such\.invalid"):
        free_port("no.such.invalid", 0)


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(ServerStartError, match=rf"127\.0\.0\.1:{taken}: the port is in use"):
            free_port("127.0.0.1", taken)


def test_other_reasons_are_said_as_the_system_says_them() -> None:
    denied = PermissionError(errno.EACCES, "Permission denied")
    assert "a port from 1024 on" in cannot_listen("a", 80, denied)
    failed = OSError(errno.EIO, os.strerror(errno.EIO))
    assert cannot_listen("a", 80, failed) == "cannot listen on a:80: Input/output error"
    assert cannot_listen("a", 80, OSError("odd")) == "cannot listen on a:80: odd"
