"""The settings of ``geminga zookeeper``, from a file, the environment or options
(``geminga_server.config``).

A standalone reads them for what it does not decide itself: the size of Java's heap.
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

    # No tickTime, no ensemble: one server, as a standalone has it (``configuration`` writes
    # zoo.cfg).
    data_directory: Path = Path("data/zookeeper")
    """The directory of snapshots, transaction logs and zoo.cfg."""
    bind_address: str = "127.0.0.1"
    """Where it listens; clients are not authenticated."""
    port: Annotated[int, Ge(1), Le(65535)] = 2181
    """The port that clients connect to."""
    metrics_port: Port = 8000
    """The port of metrics; 0 takes a free one."""
    sync: bool = True
    """Sync before acknowledging; without it, a power cut loses what was written."""
    # Java takes this much only when it needs it.
    heap_max_mib: Annotated[int, Ge(32)] = HEAP_MAX_MIB_DEFAULT
    """The maximum size of Java's heap."""
    stop_with_input: bool = False
    """Stop when standard input, a pipe or a socket, is closed."""
    log_level: LogLevel = "INFO"
    """DEBUG, INFO, WARNING or ERROR."""
    log_json: bool = False
    """Log one JSON object a line."""

    def server(self) -> ZooKeeperSettings:
        """The settings of the server itself."""
        return ZooKeeperSettings(
            self.data_directory.absolute(),
            self.bind_address,
            self.port,
            is_synced=self.sync,
            heap_max_mib=self.heap_max_mib,
        )
