"""What ``geminga zookeeper`` is told: by file, environment or flags (``geminga_server.config``).

A standalone looks here too, for what of it is left to its user.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le

from geminga_cli.embedded_zookeeper.configuration import HEAP_MAX_MIB_DEFAULT, ZooKeeperSettings
from geminga_server.config import LogLevel, Port


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperPartSettings:
    """Settings of one ZooKeeper server process."""

    data_directory: Path = Path("data/zookeeper")
    """Snapshots, transaction logs and zoo.cfg live in it."""
    bind_address: str = "127.0.0.1"
    """Where it listens; it asks nobody who they are."""
    port: Annotated[int, Ge(1), Le(65535)] = 2181
    """The port that clients connect to."""
    metrics_port: Port = 8000
    """The port of metrics; 0 takes a free one."""
    sync: bool = True
    """Sync before acknowledging; without it a power cut loses what was written."""
    heap_max_mib: Annotated[int, Ge(32)] = HEAP_MAX_MIB_DEFAULT
    """Java's heap."""
    stop_with_input: bool = False
    """Stop when standard input, a pipe or a socket, is closed."""
    log_level: LogLevel = "INFO"
    """DEBUG, INFO, WARNING or ERROR."""
    log_json: bool = False
    """Log one JSON object a line."""

    def server(self) -> ZooKeeperSettings:
        """What the server itself is told."""
        return ZooKeeperSettings(
            self.data_directory.absolute(),
            self.bind_address,
            self.port,
            is_synced=self.sync,
            heap_max_mib=self.heap_max_mib,
        )
