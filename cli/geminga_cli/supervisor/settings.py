"""The settings of ``geminga standalone`` and ``geminga cluster up``, from a file, the environment
or options (``geminga_server.config``).

The same file has settings of the parts, below ``[zookeeper]``, ``[bookie]``, ``[broker]``,
``[proxy]`` and ``[functions-worker]``. Those that the supervisor decides itself are refused there.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, cast

from annotated_types import Ge, Le

from geminga_cli.embedded_zookeeper.configuration import HEAP_MAX_MIB_DEFAULT, WILDCARDS
from geminga_cli.errors import TooFewBookies
from geminga_server.config import INTERNAL, Port
from geminga_server.errors import ConfigError

LOCALHOST = "127.0.0.1"
CONTROL_SOCKET_NAME = "control.sock"
PORT_MAX = 65_535
# Parts of one kind. With all kinds, that is about a hundred processes on one machine.
PARTS_MAX = 16

# Names of sections in the file, and of kinds of parts.
STANDALONE = "standalone"
CLUSTER = "cluster"
ZOOKEEPER = "zookeeper"
BOOKIE = "bookie"
BROKER = "broker"
PROXY = "proxy"
FUNCTIONS_WORKER = "functions-worker"


# The strings below the fields are the texts of ``--help`` (``commands.parts.settings_help``),
# comments above them are for readers of the code.
@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneSettings:
    """Settings of a standalone.

    Only the broker listens on ``bind_address``. Bookies and ZooKeeper do not authenticate clients,
    so they listen on this machine alone.
    """

    data_directory: Path = Path("data")
    """Everything that the cluster keeps."""
    cluster: str = STANDALONE
    """The cluster's name: choose it before the first start."""
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
    configuration_store: Annotated[str, INTERNAL] = ""
    num_bookies: Annotated[int, Ge(0), Le(PARTS_MAX)] = 0
    """How many bookies; with 3 or more, each message is stored on three. 0: as many as the data is
    on, 1 for a new cluster."""
    functions_worker: bool = True
    """Run a functions worker, once all else is ready."""
    bind_address: str = LOCALHOST
    """Where the broker listens; 0.0.0.0 admits other machines. Clients are not authenticated."""
    advertised_address: str = ""
    """The address that clients are given to connect to; empty: the bind address."""
    sync: bool = True
    """Sync to disk before acknowledging; without it everything is faster, and a power cut loses
    acknowledged messages."""
    # Long enough for a short stop in a debugger, and below the half minute after which clients give
    # the broker up.
    hang_limit_s: Annotated[float, Ge(0), Le(86_400)] = 20.0
    """A part that gives no sign of life for so long is restarted; 0 switches this off, for
    debuggers.
    """
    stop_with_input: bool = False
    """Stop when standard input, a pipe or a socket, is closed: the cluster then ends with the
    program that started it, however that program ends."""
    quiet: bool = False
    """Print only READY, the addresses, and warnings."""
    log_json: bool = False
    """Log one JSON object a line."""

    # The section of the file. Also the word for it in messages.
    section: ClassVar[str] = STANDALONE
    # How many bookies a new cluster has.
    bookies_default: ClassVar[int] = 1
    # Seconds from the beginning of a stop until a part is killed, by kind, in the order in which
    # parts end: each needs those behind it to finish its own work. A user waits 5 s.
    #
    #     0 s          1.0          2.0                 3.5          4.5
    #     ├─ functions, ┤            │                   │            │
    #     │  proxies    │            │                   │            │
    #     │   brokers ───────────────┤                   │            │     a kind begins when the
    #     │     bookies ─────────────────────────────────┤            │     one before has ended,
    #     │       ZooKeeper ──────────────────────────────────────────┤     until its own mark
    stop_deadlines_s: ClassVar[Mapping[str, float]] = {
        FUNCTIONS_WORKER: 1.0,
        PROXY: 1.0,
        BROKER: 2.0,
        BOOKIE: 3.5,
        ZOOKEEPER: 4.5,
    }
    # How long a broker may try to close topics whose bookies do not answer. It stops within 2 s,
    # and needs the rest for its clients and its session.
    broker_close_budget_s: ClassVar[float] = 1.2

    @property
    def log_level(self) -> str:
        """The lowest level that the supervisor and the parts log."""
        return "WARNING" if self.quiet else "INFO"

    @property
    def bookies(self) -> tuple[str, ...]:
        """The bookies' names; the first keeps its own when others join it."""
        return names_of(BOOKIE, self.num_bookies)

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers' names."""
        return (BROKER,)

    @property
    def proxies(self) -> tuple[str, ...]:
        """The proxies' names."""
        return ()

    @property
    def functions_workers(self) -> tuple[str, ...]:
        """The functions workers' names."""
        return names_of(FUNCTIONS_WORKER, int(self.functions_worker))

    @property
    def begun_late(self) -> tuple[str, ...]:
        """The kinds of which one part is started once all others are ready for the first time."""
        return (FUNCTIONS_WORKER,) if self.functions_worker else ()

    @property
    def entrances(self) -> tuple[str, ...]:
        """The parts that clients connect to, by their ports; the first is announced."""
        return (*self.proxies, *self.brokers)

    @property
    def advertised_host(self) -> str:
        """The address that clients are given; this machine's, where we listen on all addresses."""
        if self.advertised_address:
            return self.advertised_address
        return LOCALHOST if self.bind_address in WILDCARDS else self.bind_address

    def broker_id(self, web_port: int) -> str:
        """The broker's id in ZooKeeper, for the port that it has got."""
        return f"{self.advertised_host}:{web_port}"

    @property
    def control_socket(self) -> Path:
        """Where the supervisor listens for its parts."""
        return self.data_directory / CONTROL_SOCKET_NAME

    def log_file(self, part: str) -> Path | None:
        """The file of the part's log; None: it goes where the supervisor's own goes."""
        return self.data_directory / ZOOKEEPER / "zookeeper.log" if part == ZOOKEEPER else None

    def wanted_ports(self) -> dict[str, int]:
        """Every port that is wanted, by the option that chose it; 0 is any free one.

        Raises ``ConfigError`` where there are no ports left for the last parts of a kind.
        """
        # Proxies come before brokers (``entrances``): the first port is the one that clients know.
        ports: dict[str, int] = {}
        for option, first, names in (
            ("--broker-port", self.broker_port, self.entrances),
            ("--web-port", self.web_port, self.entrances),
            ("--bookie-port", self.bookie_port, self.bookies),
            ("--zookeeper-port", self.zookeeper_port, () if self.zookeeper else (ZOOKEEPER,)),
        ):
            if first and first + len(names) - 1 > PORT_MAX:
                raise ConfigError(
                    f"{option} {first} leaves no ports for {len(names)} parts, which take one "
                    f"after the other: choose {PORT_MAX - len(names) + 1} or less"
                )
            for index, name in enumerate(names):
                words = option if index == 0 else f"{option} (for {name})"
                ports[words] = first + index if first else 0
        return ports


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings(StandaloneSettings):
    """Settings of a cluster of several brokers on one machine."""

    num_brokers: Annotated[int, Ge(1), Le(PARTS_MAX)] = 3
    """How many brokers."""
    num_proxies: Annotated[int, Ge(0), Le(PARTS_MAX)] = 1
    """How many proxies, the gateway for clients that cannot reach the brokers; 0: none."""
    num_functions_workers: Annotated[int, Ge(0), Le(PARTS_MAX)] = 0
    """How many functions workers, which run functions, sources and sinks; 0: none."""
    geo: tuple[str, ...] = ()
    """Names of several such clusters that replicate to each other, `east,west`: each has the folder
    of its name in the data directory, and ports that are 100 above those of the one before."""
    configuration_store: str = ""
    """A ZooKeeper that this cluster shares with others for what they have in common (clusters,
    tenants, policies of namespaces, partitioned topics), `HOST:PORT/path`; empty: its own."""
    shared_configuration: bool = False
    """With `geo`: the clusters share their tenants, policies of namespaces and partitioned topics,
    in a ZooKeeper of its own, whose port is 100 above that of the last cluster."""
    functions_worker: Annotated[bool, INTERNAL] = False
    broker_port: Port = 6650
    """The port of the Pulsar protocol that clients connect to: that of the first proxy, or of the
    first broker where there is no proxy. The other proxies, then the brokers, take the ports after
    it. 0 takes free ones."""
    web_port: Port = 8080
    """The same for REST and metrics."""
    num_bookies: Annotated[int, Ge(0), Le(PARTS_MAX)] = 0
    """How many bookies; with 3 or more, each message is stored on three. 0: as many as the data is
    on, 3 for a new cluster."""

    section: ClassVar[str] = CLUSTER
    # Each message is stored on three.
    bookies_default: ClassVar[int] = 3
    # Longer than those of a standalone: all parts of a kind stop at once, on few cores. Functions
    # workers come first: their instances need brokers to finish what they have begun.
    stop_deadlines_s: ClassVar[Mapping[str, float]] = {
        FUNCTIONS_WORKER: 7.0,
        PROXY: 3.0,
        BROKER: 8.0,
        BOOKIE: 12.0,
        ZOOKEEPER: 15.0,
    }
    # Below the 8 s of a broker, with some left for closing the session with ZooKeeper.
    broker_close_budget_s: ClassVar[float] = 3.0

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers' names."""
        return names_of(BROKER, self.num_brokers)

    @property
    def proxies(self) -> tuple[str, ...]:
        """The proxies' names."""
        return names_of(PROXY, self.num_proxies)

    @property
    def functions_workers(self) -> tuple[str, ...]:
        """The functions workers' names."""
        return names_of(FUNCTIONS_WORKER, self.num_functions_workers)

    def log_file(self, part: str) -> Path | None:
        """A file for each part: the mixed logs of a dozen parts would be hard to read."""
        if part == ZOOKEEPER:
            return self.data_directory / ZOOKEEPER / "zookeeper.log"
        return self.data_directory / "logs" / f"{part}.log"


def numbered(kind: str, number: int) -> str:
    """The name of the ``number``-th part of a kind: ``broker``, ``broker-2`` and so on."""
    return kind if number == 1 else f"{kind}-{number}"


def names_of(kind: str, number: int) -> tuple[str, ...]:
    """The names of the first ``number`` parts of a kind."""
    return tuple(numbered(kind, each) for each in range(1, number + 1))


SettingsT = TypeVar("SettingsT", bound=StandaloneSettings)


def with_bookies_of_data(settings: SettingsT) -> SettingsT:
    """The settings with as many bookies as were asked for, or else as the data is on.

    Raises ``TooFewBookies`` where a part of the data would be unreachable.
    """
    directory, wanted = settings.data_directory, settings.num_bookies
    names = (numbered(BOOKIE, number) for number in count(1))
    # Bookies are numbered without gaps, so the first missing directory ends the count. A directory
    # means data: a bookie makes its own at its first start.
    stored = sum(1 for _ in takewhile(lambda name: (directory / name).is_dir(), names))
    if wanted and wanted < stored:
        raise TooFewBookies(directory, stored, wanted)
    return replace(settings, num_bookies=wanted or stored or settings.bookies_default)


# The settings of parts that the supervisor decides, and the setting of its own that does so; empty:
# there is none, it chooses by itself. A new setting of a part that the supervisor gives as an
# option belongs here, too: otherwise the file could set it, and the option would overrule the file
# in silence.
DECIDED: Mapping[str, Mapping[str, str]] = {
    ZOOKEEPER: {
        # All of it but Java's heap: the supervisor starts Java itself.
        "data_directory": "data_directory",
        "bind_address": "",
        "port": "zookeeper_port",
        "metrics_port": "",
        "sync": "sync",
        "stop_with_input": "",
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
        "cluster": "cluster",
        "cluster_service_url": "",
        "cluster_web_service_url": "",
        "initialize": "",
        "zookeeper": "zookeeper",
        "bind_address": "bind_address",
        "advertised_address": "advertised_address",
        "port": "broker_port",
        "web_port": "web_port",
        # It has to fit into the broker's deadline for stopping.
        "close_budget_s": "",
        "former_broker_ids": "",
        "functions_worker_web_service_url": "functions_worker",
    },
    PROXY: {
        "zookeeper": "zookeeper",
        "bind_address": "bind_address",
        "advertised_address": "advertised_address",
        "port": "broker_port",
        "web_port": "web_port",
        "function_worker_web_service_url": "num_functions_workers",
    },
    FUNCTIONS_WORKER: {
        "pulsar_service_url": "broker_port",
        "pulsar_web_service_url": "web_port",
        "pulsar_functions_cluster": "",
        # All workers read the same file, which cannot give each an id, a port and a directory.
        "worker_id": "",
        "worker_port": "",
        "bind_address": "",
        "directory": "data_directory",
        "log_directory": "data_directory",
    },
}


@dataclass(frozen=True, slots=True)
class PartsFile:
    """What the --config file of a cluster has for its parts."""

    path: Path | None = None
    # By section: the names of the settings in it, such as ``log.ensemble_size``.
    given: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    # ZooKeeper's only setting that is left to the user. It is read here, because Java reads no
    # TOML.
    heap_max_mib: int = HEAP_MAX_MIB_DEFAULT

    def names(self, part: str) -> frozenset[str]:
        """The settings in the section of ``part``."""
        return self.given.get(part, frozenset())

    @property
    def options(self) -> Mapping[str, str]:
        """The option that names the file to a part."""
        return {"--config": str(self.path)} if self.path else {}


NO_FILE = PartsFile()


def parts_file(path: Path, own_section: str = STANDALONE) -> PartsFile:
    """What the TOML file at ``path``, which was read before, has for the parts.

    Raises ``ConfigError`` for a section that is neither a part's nor ``own_section``, and for
    settings that the supervisor decides.
    """
    # No OSError or syntax error here: the settings of the supervisor came from the same file.
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    given: dict[str, frozenset[str]] = {}
    for section, table in content.items():
        if section == own_section:
            continue
        if section not in DECIDED:
            known = (own_section, *DECIDED)
            meant = difflib.get_close_matches(section, known, n=1)
            raise ConfigError(
                f"file {path}: [{section}] is no section for a {own_section}; "
                + (f"[{meant[0]}]?" if meant else f"there are {', '.join(known)}")
            )
        given[section] = frozenset(_names(cast("dict[str, Any]", table)))
        # The first of them in the order of the alphabet, so that the same file gives the same
        # message.
        for name in sorted(given[section] & DECIDED[section].keys()):
            own = DECIDED[section][name]
            instead = f"give {own} below [{own_section}] instead" if own else "leave it out"
            raise ConfigError(
                f"file {path}, [{section}] {name}: a {own_section} decides this itself; {instead}"
            )
    return PartsFile(path.absolute(), given)


def _names(table: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The names of the settings in a table and in the tables inside it, with dots."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _names(cast("dict[str, Any]", value), f"{above}{key}.")
        else:
            yield above + key
