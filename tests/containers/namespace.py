"""A network of its own: nothing in it is reached from outside, and nothing outside from it."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

CLONE_NEWNET = 0x40000000
FOLDER = Path("/run/netns")


class NetworkNamespace:
    """A network namespace with nothing but a loopback interface, as long as it is entered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.file = FOLDER / name
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        self._stack.callback(subprocess.run, ["ip", "netns", "delete", self.name], check=True)
        subprocess.run(["ip", "-n", self.name, "link", "set", "lo", "up"], check=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def inside(self, words: Sequence[str]) -> list[str]:
        """The command line that runs ``words`` in this network, on this machine's files."""
        return ["nsenter", f"--net={self.file}", *words]

    def socket(self, kind: socket.SocketKind, port: int) -> socket.socket:
        """A socket of this process that is bound to that port of this network.

        A socket stays in the network it was made in, so a server here can be asked from there
        without a way for anything else."""
        made: list[socket.socket] = []

        def make() -> None:  # in a thread of its own, which alone changes networks
            descriptor = os.open(self.file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f"cannot enter {self.file}")
                made.append(socket.socket(socket.AF_INET, kind))
            finally:
                os.close(descriptor)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        (bound,) = made
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("", port))
        return bound
