"""Proves what a broker's process does around the broker: ports, and what the supervisor hears."""

from __future__ import annotations

import socket

import pytest

from magnetar_broker.part import free_port
from magnetar_server.errors import ServerStartError


def test_a_chosen_port_is_kept_and_any_other_is_free() -> None:
    assert free_port("127.0.0.1", 4711) == 4711
    port = free_port("127.0.0.1", 0)
    with socket.create_server(("127.0.0.1", port)) as listening:
        assert listening.getsockname()[1] == port


def test_an_address_of_another_machine_is_refused_with_what_would_be_right() -> None:
    with pytest.raises(ServerStartError, match=r"192\.0\.2\.1.*give an address of this"):
        free_port("192.0.2.1", 0)
