"""The settings of all parts that work with the cluster's ZooKeeper, and the client made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge, Gt, Le

from geminga_runtime.clock import Clock
from geminga_runtime.coordination import SESSION_TIMEOUT_S
from geminga_server.config.declaration import Upstream

if TYPE_CHECKING:
    from geminga_server.run import StopRequest
    from geminga_server.zookeeper.session import ZooKeeper

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
Port = Annotated[int, Ge(0), Le(65535)]


def zookeeper_hosts(store: str) -> str:
    """``HOST:PORT,HOST:PORT/path`` of a metadata store's URL (``zk:…``) or of such hosts."""
    # ``zk:`` in Pulsar's settings, ``metadata-store:zk:`` in those about BookKeeper's metadata.
    return store.removeprefix("metadata-store:").removeprefix("zk:").removeprefix("//")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """Limits on the connections of a server's clients."""

    connections_max: Annotated[int, Ge(0), Upstream("brokerMaxConnections")] = 0
    """How many clients may be connected; 0: as many as the limit on open files (`ulimit -n`) leaves
    room for, which is the most in any case."""
    connections_per_address_max: Annotated[int, Ge(0), Upstream("brokerMaxConnectionsPerIp")] = 0
    """How many connections may come from one address; 0: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartConfig:
    """The settings that all parts have; each adds its own."""

    zookeeper: str = "127.0.0.1:2181"
    """The cluster's ZooKeeper, `HOST:PORT,HOST:PORT`; `HOST:PORT/path` keeps to a path."""
    zookeeper_session_timeout_s: Annotated[float, Gt(0)] = SESSION_TIMEOUT_S
    """How long ZooKeeper waits for a sign of life before it counts this process as gone."""
    zookeeper_connect_timeout_s: Annotated[float, Gt(0)] = 30.0
    """How long a starting process waits for ZooKeeper."""
    log_level: LogLevel = "INFO"
    """DEBUG, INFO, WARNING or ERROR."""
    log_json: bool = False
    """Log one JSON object a line."""

    def zookeeper_client(self, clock: Clock, stop: StopRequest, hosts: str = "") -> ZooKeeper:
        """A client of that ZooKeeper, or of the one at ``hosts``, not opened yet. Once the process
        is asked to end, it waits no longer than briefly for an answer."""
        # With kazoo, which only a process that opens a session needs.
        from geminga_server.zookeeper.session import (  # noqa: PLC0415 - 60 ms, not for --help
            ZooKeeper,
        )

        zookeeper = ZooKeeper(
            hosts or self.zookeeper,
            clock,
            session_timeout_s=self.zookeeper_session_timeout_s,
            connect_timeout_s=self.zookeeper_connect_timeout_s,
        )
        # At the request itself, so that no service's closing waits long for ZooKeeper.
        stop.callbacks.append(zookeeper.hurry)
        return zookeeper
