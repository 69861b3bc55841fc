"""What ``geminga standalone`` is told: by file, environment or flags (``geminga_server.config``).

One file tells the parts as well: what stands below ``[zookeeper]``, ``[bookie]`` and ``[broker]``
in it. What the standalone decides for them it decides alone: there it is refused.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from pathlib import Path
from typing import Annotated, Any, cast

from annotated_types import Ge, Le

from geminga_cli.embedded_zookeeper.configuration import HEAP_MAX_MIB_DEFAULT, WILDCARDS
from geminga_cli.errors import TooFewBookies
from geminga_server.config import Port
from geminga_server.errors import ConfigError

LOCALHOST = "127.0.0.1"
CONTROL_SOCKET_NAME = "control.sock"
PORT_MAX = 65_535

STANDALONE = "standalone"
ZOOKEEPER = "zookeeper"
BOOKIE = "bookie"
BROKER = "broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneSettings:
    """Settings of a standalone. Only the broker listens on ``bind_address``: bookie and ZooKeeper
    ask nobody who they are, and stay on this machine."""

    data_directory: Path = Path("data")
    """Everything that the cluster keeps."""
    broker_port: Port = 6650
    """The port of the Pulsar protocol; 0 takes a free one."""
    web_port: Port = 8080
    """The port of REST and metrics; 0 takes a free one."""
    bookie_port: Port = 3181
    """The port of the bookie; others take the ports after it. 0 takes free ones."""
    zookeeper_port: Port = 2181
    """The port of the embedded ZooKeeper; 0 takes a free one."""
    zookeeper: str = ""
    """Your own ZooKeeper instead of the embedded one; `HOST:PORT/path` keeps to a path."""
    num_bookies: Annotated[int, Ge(0), Le(16)] = 0
    """How many bookies; with 3 or more, each message is stored on three. 0: as many as the data is
    on, 1 for a new cluster."""
    bind_address: str = LOCALHOST
    """Where the broker listens; 0.0.0.0 lets other machines in, and nobody is asked who they are.
    """
    advertised_address: str = ""
    """What clients are told to connect to; empty: the bind address."""
    sync: bool = True
    """Sync to disk before acknowledging; without it everything is faster, and a power cut loses
    acknowledged messages."""
    # Long enough for a debugger's short visit, and below the half minute after which clients give
    # the broker up.
    hang_limit_s: Annotated[float, Ge(0), Le(86_400)] = 20.0
    """A part that gives no sign of life for so long is started again; 0: never, for debuggers."""
    stop_with_input: bool = False
    """Stop when standard input, a pipe or a socket, is closed: so a cluster ends with the program
    that started it, however that program ends."""
    quiet: bool = False
    """Print only READY, the addresses, and warnings."""
    log_json: bool = False
    """Log one JSON object a line."""

    @property
    def log_level(self) -> str:
        """From which level on everything logs."""
        return "WARNING" if self.quiet else "INFO"

    @property
    def bookies(self) -> tuple[str, ...]:
        """The bookies' names; the first keeps its own when others join it."""
        return tuple(map(bookie_name, range(1, self.num_bookies + 1)))

    @property
    def advertised_host(self) -> str:
        """What clients are told; "all addresses" is none, so then it is this machine."""
        if self.advertised_address:
            return self.advertised_address
        return LOCALHOST if self.bind_address in WILDCARDS else self.bind_address

    def broker_id(self, web_port: int) -> str:
        """What the broker calls itself in ZooKeeper, with the port it has got."""
        return f"{self.advertised_host}:{web_port}"

    @property
    def control_socket(self) -> Path:
        """Where the supervisor listens for its parts."""
        return self.data_directory / CONTROL_SOCKET_NAME

    def wanted_ports(self) -> dict[str, int]:
        """Every port that was chosen, by what chose it; 0 is any free one.

        Raises ``ConfigError`` where there are no ports left for the last bookies.
        """
        ports = {"--broker-port": self.broker_port, "--web-port": self.web_port}
        if not self.zookeeper:
            ports["--zookeeper-port"] = self.zookeeper_port
        for index, name in enumerate(self.bookies):
            option = "--bookie-port" if index == 0 else f"--bookie-port (for {name})"
            ports[option] = self.bookie_port + index if self.bookie_port else 0
        if max(ports.values()) > PORT_MAX:
            raise ConfigError(
                f"--bookie-port {self.bookie_port} leaves no ports for {self.num_bookies} bookies, "
                f"which take one after the other: choose {PORT_MAX - self.num_bookies + 1} or less"
            )
        return ports


def bookie_name(number: int) -> str:
    """The name of a bookie, the first being 1."""
    return BOOKIE if number == 1 else f"{BOOKIE}-{number}"


def with_bookies_of_data(settings: StandaloneSettings) -> StandaloneSettings:
    """The settings with as many bookies as were asked for, or else as the data is on.

    Raises ``TooFewBookies`` where data would be out of reach.
    """
    directory, wanted = settings.data_directory, settings.num_bookies
    names = map(bookie_name, count(1))
    stored = sum(1 for _ in takewhile(lambda name: (directory / name).is_dir(), names))
    if wanted and wanted < stored:
        raise TooFewBookies(directory, stored, wanted)
    return replace(settings, num_bookies=wanted or stored or 1)


# What the standalone tells its parts, and by which setting of its own; empty: it chooses alone.
DECIDED: Mapping[str, Mapping[str, str]] = {
    ZOOKEEPER: {
        "data_directory": "data_directory",
        "bind_address": "",
        "port": "zookeeper_port",
        "metrics_port": "",
        "sync": "sync",
        "log_level": "quiet",
        "log_json": "log_json",
    },
    BOOKIE: {
        "data_directory": "data_directory",
        "zookeeper": "zookeeper",
        "bind_address": "",
        "port": "bookie_port",
        "http_port": "",
        "sync": "sync",
    },
    BROKER: {
        "cluster": "",
        "initialize": "",
        "zookeeper": "zookeeper",
        "bind_address": "bind_address",
        "advertised_address": "advertised_address",
        "port": "broker_port",
        "web_port": "web_port",
        "close_budget_s": "",
        "former_broker_ids": "",
    },
}


@dataclass(frozen=True, slots=True)
class PartsFile:
    """The file of a standalone as its parts see it: where it is, and which settings stand below
    each part's section (``log.ensemble_size`` for a nested one).

    ``heap_max_mib`` is the one setting of ZooKeeper that is left to the user: Java reads no TOML.
    """

    path: Path | None = None
    given: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    heap_max_mib: int = HEAP_MAX_MIB_DEFAULT

    def names(self, part: str) -> frozenset[str]:
        """The settings that stand below the section of ``part``."""
        return self.given.get(part, frozenset())

    @property
    def options(self) -> Mapping[str, str]:
        """What a part is told of it on its command line."""
        return {"--config": str(self.path)} if self.path else {}


NO_FILE = PartsFile()


def parts_file(path: Path) -> PartsFile:
    """What the TOML file at ``path``, which can be read, holds for the parts.

    Raises ``ConfigError`` where it has other sections, or settings that are the standalone's.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    given: dict[str, frozenset[str]] = {}
    for section, table in content.items():
        if section == STANDALONE:
            continue
        if section not in DECIDED:
            known = (STANDALONE, *DECIDED)
            meant = difflib.get_close_matches(section, known, n=1)
            raise ConfigError(
                f"file {path}: [{section}] is no section for a standalone; "
                + (f"[{meant[0]}]?" if meant else f"there are {', '.join(known)}")
            )
        given[section] = frozenset(_names(cast("dict[str, Any]", table)))
        for name in sorted(given[section] & DECIDED[section].keys()):
            own = DECIDED[section][name]
            instead = f"give {own} below [{STANDALONE}] instead" if own else "leave it out"
            raise ConfigError(
                f"file {path}, [{section}] {name}: a standalone decides this itself; {instead}"
            )
    return PartsFile(path.absolute(), given)


def _names(table: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _names(cast("dict[str, Any]", value), f"{above}{key}.")
        else:
            yield above + key
