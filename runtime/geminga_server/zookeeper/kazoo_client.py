"""The kazoo client as we use it: the calls, typed, and how it starts and stops."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, cast

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

from geminga_server.zookeeper.kazoo_bridge import Answer, LoopHandler

log = logging.getLogger(__name__)

# Seconds between attempts to connect: the first pause, which kazoo doubles, and the longest. Well
# below a session's time-out, so that a connection that is lost for a moment costs no session.
RECONNECT_FIRST_S = 0.05
RECONNECT_LIMIT_S = 0.5


class TransactionBuilder(Protocol):
    """What we use of ``kazoo.client.TransactionRequest``."""

    def create(self, path: str, value: bytes, *, ephemeral: bool) -> None:
        """Add a creation."""

    def set_data(self, path: str, value: bytes, version: int) -> None:
        """Add a replacement of the value."""

    def delete(self, path: str, version: int) -> None:
        """Add a deletion."""

    def check(self, path: str, version: int) -> None:
        """Add a check of the version."""

    def commit_async(self) -> Answer:
        """Send it; the answer is a list with a result or an error for each operation."""
        ...


class Client(Protocol):
    """What we use of ``kazoo.client.KazooClient``. Its answers are ours: ``async_result`` above."""

    # Session id and password; None while there is no connection.
    client_id: tuple[int, bytes] | None
    # One of ``kazoo.protocol.states.KeeperState``.
    client_state: str

    def add_listener(self, listener: Callable[[str], object]) -> None:
        """Call ``listener`` with a ``KazooState`` at every change, on kazoo's thread."""

    def start_async(self) -> object:
        """Begin to connect."""
        ...

    def stop(self) -> None:
        """End the session; waits for kazoo's thread."""

    def close(self) -> None:
        """Give the socket pair back, after ``stop``."""

    def create_async(self, path: str, value: bytes, *, ephemeral: bool, sequence: bool) -> Answer:
        """The answer is the path created."""
        ...

    def get_async(self, path: str, *, watch: Callable[[object], object] | None) -> Answer:
        """The answer is ``(value, stat)``."""
        ...

    def exists_async(self, path: str, *, watch: Callable[[object], object] | None) -> Answer:
        """The answer is the stat, or None."""
        ...

    def get_children_async(self, path: str, *, watch: Callable[[object], object] | None) -> Answer:
        """The answer is a list of names."""
        ...

    def set_async(self, path: str, value: bytes, version: int) -> Answer:
        """The answer is the stat."""
        ...

    def delete_async(self, path: str, version: int) -> Answer:
        """The answer is True."""
        ...

    def transaction(self) -> TransactionBuilder:
        """An empty transaction."""
        ...


def connect_kazoo(hosts: str, session_timeout_s: float, handler: LoopHandler) -> Client:
    """A kazoo client that tries to connect without end and answers through ``handler``."""
    quiet = log.getChild("kazoo")
    quiet.setLevel(logging.ERROR)  # ``session`` logs, once each, what kazoo's warnings repeat
    reconnect = KazooRetry(
        # Without end: ``session`` decides how long a part waits, and reports it.
        max_tries=-1,
        delay=RECONNECT_FIRST_S,
        max_delay=RECONNECT_LIMIT_S,
        sleep_func=handler.sleep_func,
    )
    client = KazooClient(
        # kazoo shuffles the hosts, so that the parts of a cluster do not all ask the same one.
        hosts=hosts,
        timeout=session_timeout_s,
        handler=handler,
        connection_retry=reconnect,
        logger=quiet,
    )
    return cast("Client", client)


def stop_client(client: Client) -> None:
    """End the client's session and thread. Waits for them: not to be called on the loop."""
    try:
        # ``stop`` sends the end of the session and joins kazoo's thread, which must be gone before
        # its socket pair is given back.
        client.stop()
        client.close()
    except Exception:  # a bare Exception is what kazoo raises for a thread that hangs
        log.debug("zookeeper client did not stop in time", exc_info=True)
