"""What a standalone is made of: its ports, and the parts that follow from its settings.

The parts' options are the only place where the supervisor knows what a bookie or a broker is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from geminga_cli.embedded_zookeeper.configuration import ZooKeeperSettings
from geminga_cli.embedded_zookeeper.installation import Installation
from geminga_cli.errors import UnusablePort
from geminga_cli.ports import ReservedPort, reserve
from geminga_cli.supervisor.fleet import PartRules
from geminga_cli.supervisor.parts import Part, PythonPart, ZooKeeperPart
from geminga_cli.supervisor.settings import (
    BOOKIE,
    BROKER,
    LOCALHOST,
    NO_FILE,
    ZOOKEEPER,
    PartsFile,
    StandaloneSettings,
)
from geminga_server.ports import require_distinct

CLUSTER = "standalone"
# So many copies of an entry, and answers before it counts, where there are bookies enough.
COPIES_MAX = 3
ANSWERS_MAX = 2
# The broker's settings that say so, and their options.
QUORUMS = {
    "log.ensemble_size": "--log-ensemble-size",
    "log.write_quorum": "--log-write-quorum",
    "log.ack_quorum": "--log-ack-quorum",
}
# What a broker may spend, of its 2 s below, on topics whose bookies do not answer.
BROKER_CLOSE_BUDGET_S = 1.2
# Seconds after a stop began; the sum stays below the 5 s that a user waits.
STOP_DEADLINES_S = {BROKER: 2.0, BOOKIE: 3.5, ZOOKEEPER: 4.5}


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

    So a part that is restarted finds its port free. Raises ``UnusablePort``, and ``ConfigError``
    where two are the same.
    """

    def __init__(self, settings: StandaloneSettings) -> None:
        require_distinct(settings.wanted_ports())
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
    file: PartsFile = NO_FILE,
    former_broker_ids: Sequence[str] = (),
    inherited: Sequence[int] = (),
) -> dict[str, Part]:
    """Every part by name, those that others need first.

    Without an ``installation`` ZooKeeper is the user's own, and no part of ours. ``file`` is told
    to the parts as well.
    """
    parts: dict[str, Part] = {}
    needs: tuple[str, ...] = ()
    zookeeper = settings.zookeeper
    if installation is not None:
        server = ZooKeeperSettings(
            settings.data_directory / ZOOKEEPER,
            LOCALHOST,
            ports.zookeeper,
            is_synced=settings.sync,
            heap_max_mib=file.heap_max_mib,
        )
        rules = PartRules(ZOOKEEPER, STOP_DEADLINES_S[ZOOKEEPER])
        parts[ZOOKEEPER] = ZooKeeperPart(rules, server, installation, inherited)
        needs, zookeeper = (ZOOKEEPER,), server.address

    def add(name: str, command: str, options: Mapping[str, str]) -> None:
        parts[name] = PythonPart(
            PartRules(name, STOP_DEADLINES_S[command], needs),
            command,
            {**file.options, **options},
            control_socket=settings.control_socket,
            inherited=inherited,
        )

    for name, bookie in zip(settings.bookies, ports.bookies, strict=True):
        add(name, BOOKIE, bookie_options(settings, name, bookie, zookeeper))
    options = dict(broker_options(settings, ports, zookeeper, former_broker_ids))
    if QUORUMS.keys() & file.names(BROKER):  # the user's choice, which options would overrule
        options = {key: value for key, value in options.items() if key not in QUORUMS.values()}
    add(BROKER, BROKER, options)
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
        **({} if settings.sync else {"--no-sync": ""}),
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
    return dict(zip(QUORUMS.values(), map(str, (copies, copies, answers)), strict=True))


def _log_options(settings: StandaloneSettings) -> Mapping[str, str]:
    options = {"--log-level": "WARNING"} if settings.quiet else {}
    return {**options, "--log-json": ""} if settings.log_json else options
