"""Notifies a service manager that this process serves, for systemd's ``Type=notify``.

The protocol is one datagram to the socket that the manager names (``sd_notify(3)``). Without such a
manager nothing happens. Of a supervisor and its parts, the supervisor notifies.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger(__name__)

NOTIFY_SOCKET_VARIABLE = "NOTIFY_SOCKET"


def announce_readiness(status: str, environment: Mapping[str, str] | None = None) -> None:
    """Report that this process is ready; ``status`` says in one line where it serves.

    ``environment`` is by default that of the process.
    """
    path = (os.environ if environment is None else environment).get(NOTIFY_SOCKET_VARIABLE)
    if not path:
        return
    # "@" stands for the zero byte of Linux's abstract sockets.
    address = f"\0{path[1:]}" if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(0)  # a manager that does not read must not hold us up
            sock.sendto(f"READY=1\nSTATUS={status}".encode(), address)
    except OSError as error:
        log.warning("service manager not told that all is ready", extra={"reason": str(error)})
