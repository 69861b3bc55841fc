"""Checks of the addresses to listen on, made before anything else is started, and the words for
operators when one of them cannot be used."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from itertools import combinations

from geminga_server.errors import ConfigError, ServerStartError

OWN_ADDRESS = "give an address of this machine with --bind-address (0.0.0.0: all it has)"


def require_distinct(ports: Mapping[str, int]) -> None:
    """Raise ``ConfigError`` where two ports are the same, and not 0, which is any free one.

    ``ports`` are by the options that choose them. Different addresses could share a port, but the
    same port twice is a typing mistake far more often, and a client would then find the one service
    where the other should be.
    """
    for (one, port), (other, same) in combinations(ports.items(), 2):
        if port == same != 0:
            raise ConfigError(
                f"{one} and {other} are both {port}: give each a port of its own, or 0 for a free "
                "one"
            )


def free_port(host: str, port: int) -> int:
    """``port``, or for 0 one that is free now, where this process can listen on ``host``.

    For callers that need the number before they listen. Another process may take the port
    meanwhile. Raises ``ServerStartError``.
    """
    try:
        socket.getaddrinfo(host, port)  # create_server's error does not tell that it knows no host
        # Closed again at once: only the number is taken. A listener that was never connected to
        # leaves its port free without delay.
        with socket.create_server((host, port), family=family_of(host)) as probe:
            return int(probe.getsockname()[1])
    except OSError as error:
        raise ServerStartError(cannot_listen(host, port, error)) from error


def family_of(host: str) -> socket.AddressFamily:
    """IPv6 for a literal address of it, IPv4 for all else, names included."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def cannot_listen(host: str, port: int, error: OSError) -> str:
    """Why listening failed with ``error``, and what would be right, in words for operators."""
    reason = error.strerror or str(error)
    # First: its ``errno`` is one of the resolver's numbers, which may equal one of those below.
    if isinstance(error, socket.gaierror):
        reason = f"there is no host called {host}; {OWN_ADDRESS}"
    elif error.errno == errno.EADDRNOTAVAIL:
        reason = f"this machine has no such address; {OWN_ADDRESS}"
    elif error.errno == errno.EADDRINUSE:
        reason = "the port is in use; free it, or choose another (0 takes any free one)"
    elif error.errno == errno.EACCES:
        reason = "not permitted; choose a port from 1024 on"
    return f"cannot listen on {host}:{port}: {reason}"
