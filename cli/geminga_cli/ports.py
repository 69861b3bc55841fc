"""TCP ports that are chosen for a program before it starts, and kept for it while it is down."""

from __future__ import annotations

import errno
import socket
import sys
from types import TracebackType
from typing import Self

from geminga_cli.errors import UnusablePort
from geminga_server.ports import OWN_ADDRESS

REASONS = {
    errno.EADDRINUSE: "it is in use",
    errno.EACCES: "not permitted",
    errno.EADDRNOTAVAIL: "this machine has no such address",
}


class ReservedPort:
    """Holds ``host:port`` (0: any free port) by binding without listening.

    On Linux a program that sets SO_REUSEADDR, as Java and asyncio do, can listen on a port that
    is held so, while nobody who asks for *any* free port is given it. Other systems do not allow
    that: there the port is only looked up, and somebody else may be quicker.

    Raises ``OSError`` where the port is taken.
    """

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self.port = int(self._socket.getsockname()[1])
        except OSError:
            self._socket.close()
            raise
        if sys.platform != "linux":
            self._socket.close()

    def close(self) -> None:
        """Let the port go."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def reserve(host: str, port: int, option: str) -> ReservedPort:
    """``ReservedPort``, but raises ``UnusablePort``: ``option`` is the one that chooses another."""
    try:
        return ReservedPort(host, port)
    except OSError as error:
        remedy = f"free it, or choose another with {option}"
        if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            remedy = OWN_ADDRESS
        raise UnusablePort(host, port, why_unusable(error), remedy) from error


def why_unusable(error: OSError) -> str:
    """In plain words, why an address could not be listened on."""
    return REASONS.get(error.errno or 0, error.strerror or str(error))
