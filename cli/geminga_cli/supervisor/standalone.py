"""What a standalone is made of: its settings, and the parts that follow from them.

The parts' options are the only place where the supervisor knows what a bookie or a broker is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from pathlib import Path

from geminga_cli.embedded_zookeeper.configuration import WILDCARDS, ZooKeeperSettings
from geminga_cli.embedded_zookeeper.installation import Installation
from geminga_cli.errors import TooFewBookies, UnusablePort
from geminga_cli.ports import ReservedPort, reserve
from geminga_cli.supervisor.fleet import PartRules
from geminga_cli.supervisor.parts import Part, PythonPart, ZooKeeperPart

CLUSTER = "standalone"
LOCALHOST = "127.0.0.1"
CONTROL_SOCKET_NAME = "control.sock"

ZOOKEEPER = "zookeeper"
BOOKIE = "bookie"
BROKER = "broker"
# So many copies of an entry, and answers before it counts, where there are bookies enough.
COPIES_MAX = 3
ANSWERS_MAX = 2
# A part whose event loop does not turn for so long is started again: long enough for a debugger's
# short visit, and below the half minute after which clients give the broker up.
HANG_LIMIT_S = 20.0
# What a broker may spend, of its 2 s below, on topics whose bookies do not answer.
BROKER_CLOSE_BUDGET_S = 1.2
# Seconds after a stop began; the sum stays below the 5 s that a user waits.
STOP_DEADLINES_S = {BROKER: 2.0, BOOKIE: 3.5, ZOOKEEPER: 4.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneSettings:
    """What ``geminga standalone`` was told. A port of 0 is any free one; no bookies are as many as
    the data is on.

    ``zookeeper`` is the user's own (``host:port``), empty for the embedded one. Only the broker
    listens on ``bind_address``: bookie and ZooKeeper ask nobody who they are, and stay on this
    machine.
    """

    data_directory: Path
    bind_address: str = LOCALHOST
    advertised_address: str = ""
    broker_port: int = 6650
    web_port: int = 8080
    bookie_port: int = 3181
    zookeeper_port: int = 2181
    zookeeper: str = ""
    num_bookies: int = 0
    is_synced: bool = True
    hang_limit_s: float = HANG_LIMIT_S
    is_quiet: bool = False
    is_json: bool = False

    @property
    def log_level(self) -> str:
        """From which level on everything logs."""
        return "WARNING" if self.is_quiet else "INFO"

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


@dataclass(frozen=True, slots=True)
class BookiePorts:
    """Where one bookie listens."""

    bookie: int
    metrics: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports that were chosen, all of them real; ``bookies`` in the order of their names."""

    broker: int
    web: int
    bookies: tuple[BookiePorts, ...]
    zookeeper: int


class PortReservations:
    """The ports of a standalone, held for as long as the supervisor lives.

    So a part that is restarted finds its port free. Raises ``UnusablePort``.
    """

    def __init__(self, settings: StandaloneSettings) -> None:
        self._held: list[ReservedPort] = []
        try:
            self.ports = self._choose(settings)
        except UnusablePort:
            self.close()
            raise

    def close(self) -> None:
        """Let all of them go."""
        for reserved in self._held:
            reserved.close()

    def _choose(self, settings: StandaloneSettings) -> Ports:
        return Ports(
            broker=self._reserve(settings.bind_address, settings.broker_port, "--broker-port"),
            web=self._reserve(settings.bind_address, settings.web_port, "--web-port"),
            bookies=tuple(self._choose_bookie(settings, i) for i in range(settings.num_bookies)),
            zookeeper=0
            if settings.zookeeper
            else self._reserve(LOCALHOST, settings.zookeeper_port, "--zookeeper-port"),
        )

    def _choose_bookie(self, settings: StandaloneSettings, index: int) -> BookiePorts:
        """One port after the other, from that of the first."""
        port = settings.bookie_port + index if settings.bookie_port else 0
        return BookiePorts(
            self._reserve(LOCALHOST, port, "--bookie-port"), self._reserve(LOCALHOST, 0, "")
        )

    def _reserve(self, host: str, port: int, option: str) -> int:
        reserved = reserve(host, port, option)
        self._held.append(reserved)
        return reserved.port


def make_parts(
    settings: StandaloneSettings,
    ports: Ports,
    installation: Installation | None,
    *,
    former_broker_ids: Sequence[str] = (),
    inherited: Sequence[int] = (),
) -> dict[str, Part]:
    """Every part by name, those that others need first.

    Without an ``installation`` ZooKeeper is the user's own, and no part of ours.
    """
    parts: dict[str, Part] = {}
    needs: tuple[str, ...] = ()
    zookeeper = settings.zookeeper
    if installation is not None:
        server = ZooKeeperSettings(
            settings.data_directory / ZOOKEEPER,
            LOCALHOST,
            ports.zookeeper,
            is_synced=settings.is_synced,
        )
        rules = PartRules(ZOOKEEPER, STOP_DEADLINES_S[ZOOKEEPER])
        parts[ZOOKEEPER] = ZooKeeperPart(rules, server, installation, inherited)
        needs, zookeeper = (ZOOKEEPER,), server.address

    def add(name: str, command: str, options: Mapping[str, str]) -> None:
        parts[name] = PythonPart(
            PartRules(name, STOP_DEADLINES_S[command], needs),
            command,
            options,
            control_socket=settings.control_socket,
            inherited=inherited,
        )

    for name, bookie in zip(settings.bookies, ports.bookies, strict=True):
        add(name, BOOKIE, bookie_options(settings, name, bookie, zookeeper))
    add(BROKER, BROKER, broker_options(settings, ports, zookeeper, former_broker_ids))
    return parts


def bookie_options(
    settings: StandaloneSettings, name: str, ports: BookiePorts, zookeeper: str
) -> Mapping[str, str]:
    """What the bookie ``name`` is told."""
    return {
        "--data-directory": str(settings.data_directory / name),
        "--zookeeper": zookeeper,
        "--bind-address": LOCALHOST,
        "--port": str(ports.bookie),
        "--http-port": str(ports.metrics),
        **({} if settings.is_synced else {"--no-sync": ""}),
        **_log_options(settings),
    }


def broker_options(
    settings: StandaloneSettings, ports: Ports, zookeeper: str, former_broker_ids: Sequence[str]
) -> Mapping[str, str]:
    """What the broker is told."""
    return {
        "--cluster": CLUSTER,
        "--initialize": "",
        "--zookeeper": zookeeper,
        "--bind-address": settings.bind_address,
        "--advertised-address": settings.advertised_host,
        "--port": str(ports.broker),
        "--web-port": str(ports.web),
        "--close-budget-s": str(BROKER_CLOSE_BUDGET_S),
        **_quorum_options(settings.num_bookies),
        **({"--former-broker-ids": ",".join(former_broker_ids)} if former_broker_ids else {}),
        **_log_options(settings),
    }


def _quorum_options(bookies: int) -> Mapping[str, str]:
    """On how many of the bookies the broker stores each entry, and how many must answer."""
    if bookies == 1:
        return {}
    copies, answers = min(bookies, COPIES_MAX), min(bookies, ANSWERS_MAX)
    return {
        "--log-ensemble-size": str(copies),
        "--log-write-quorum": str(copies),
        "--log-ack-quorum": str(answers),
    }


def _log_options(settings: StandaloneSettings) -> Mapping[str, str]:
    options = {"--log-level": "WARNING"} if settings.is_quiet else {}
    return {**options, "--log-json": ""} if settings.is_json else options
