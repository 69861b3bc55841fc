"""What a bookie process is told: by file, environment or flags (``magnetar_server.settings``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Gt, Le

from magnetar_bookie.settings import MIB, BookieSettings

Port = Annotated[int, Ge(0), Le(65535)]
DEFAULTS = BookieSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class BookiePartSettings:
    """Settings of one bookie process; bytes and seconds as named, port 0 takes a free one."""

    # Journal, entry logs and index live below it.
    data_directory: Path = Path("data/bookie")
    zookeeper: str = "127.0.0.1:2181"
    zookeeper_session_timeout_s: Annotated[float, Gt(0)] = 6.0
    # So long does a starting bookie wait for ZooKeeper.
    zookeeper_connect_timeout_s: Annotated[float, Gt(0)] = 30.0
    bind_address: str = "127.0.0.1"
    # What clients are told to connect to; ``bind_address`` where it is empty.
    advertised_address: str = ""
    port: Port = 3181
    # Metrics and health.
    http_port: Port = 8000
    # Empty: the id in the data directory's cookie, made up at the first start.
    bookie_id: str = ""
    # Without it a power cut loses acknowledged entries.
    sync: bool = True
    write_cache_bytes_max: Annotated[int, Ge(MIB)] = DEFAULTS.write_cache_bytes_max
    read_cache_bytes_max: Annotated[int, Ge(MIB)] = DEFAULTS.read_cache_bytes_max
    journal_file_bytes_max: Annotated[int, Ge(MIB)] = DEFAULTS.journal_file_bytes_max
    log_level: str = "INFO"
    log_json: bool = False

    def bookie(self) -> BookieSettings:
        """What the bookie itself is told."""
        return BookieSettings(
            host=self.bind_address,
            port=self.port,
            advertised_host=self.advertised_address,
            bookie_id=self.bookie_id,
            journal_directory=str(self.data_directory / "journal"),
            ledger_directory=str(self.data_directory / "ledgers"),
            write_cache_bytes_max=self.write_cache_bytes_max,
            read_cache_bytes_max=self.read_cache_bytes_max,
            journal_file_bytes_max=self.journal_file_bytes_max,
        )
