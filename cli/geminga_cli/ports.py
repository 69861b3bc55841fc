"""Reserves TCP ports for programs before they start, and while they are restarted."""

from __future__ import annotations

import errno
import socket
import sys
from types import TracebackType
from typing import Self

from geminga_cli.errors import UnusablePort
from geminga_server.ports import OWN_ADDRESS

# Words for the errors of ``bind`` that users meet; other errors speak for themselves.
REASONS = {
    errno.EADDRINUSE: "it is in use",
    errno.EACCES: "not permitted",
    errno.EADDRNOTAVAIL: "this machine has no such address",
}


class ReservedPort:
    """Holds ``host:port`` (0: any free port) by binding to it without listening.

    On Linux, a program that sets SO_REUSEADDR, as Java and asyncio do, can listen on a port that
    is held so, while the kernel gives it to no program that asks for *any* free port. Other
    systems do not allow that: there the port is only looked up, and another program may take it
    before ours listens.

    Raises ``OSError`` where the port is taken.
    """

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            # Linux lets several sockets with SO_REUSEADDR bind one address as long as none of them
            # listens. This one never does. Both sides must set it: the holder, and the program that
            # listens later.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            # The kernel's choice, where 0 was wanted.
            self.port = int(self._socket.getsockname()[1])
        except OSError:
            self._socket.close()
            raise
        # Elsewhere the program could not listen while we hold the port.
        if sys.platform != "linux":
            self._socket.close()

    def close(self) -> None:
        """Release the port."""
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
    """Reserve a port; raises ``UnusablePort``, which names ``option`` as the way to another."""
    try:
        return ReservedPort(host, port)
    except OSError as error:
        remedy = f"free it, or choose another with {option}"
        # Another port would not help where the host is no address of this machine.
        if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            remedy = OWN_ADDRESS
        raise UnusablePort(host, port, why_unusable(error), remedy) from error


def why_unusable(error: OSError) -> str:
    """In plain words, why we cannot listen on an address."""
    return REASONS.get(error.errno or 0, error.strerror or str(error))
