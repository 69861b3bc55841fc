"""What a standalone is made of: its settings, and the parts that follow from them.

The parts' options are the only place where the supervisor knows what a bookie or a broker is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from magnetar_cli.embedded_zookeeper.configuration import WILDCARDS, ZooKeeperSettings
from magnetar_cli.embedded_zookeeper.installation import Installation
from magnetar_cli.errors import UnusablePort
from magnetar_cli.ports import ReservedPort, why_unusable
from magnetar_cli.supervisor.fleet import PartRules
from magnetar_cli.supervisor.parts import Part, PythonPart, ZooKeeperPart

CLUSTER = "standalone"
LOCALHOST = "127.0.0.1"
CONTROL_SOCKET_NAME = "control.sock"

ZOOKEEPER = "zookeeper"
BOOKIE = "bookie"
BROKER = "broker"
# Seconds after a stop began; the sum stays below the 5 s that a user waits.
STOP_DEADLINES_S = {BROKER: 2.0, BOOKIE: 3.5, ZOOKEEPER: 4.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneSettings:
    """What ``magnetar standalone`` was told. A port of 0 is any free one.

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
    is_synced: bool = True
    is_quiet: bool = False
    is_json: bool = False

    @property
    def advertised_host(self) -> str:
        """What clients are told; "all addresses" is none, so then it is this machine."""
        if self.advertised_address:
            return self.advertised_address
        return LOCALHOST if self.bind_address in WILDCARDS else self.bind_address

    @property
    def control_socket(self) -> Path:
        """Where the supervisor listens for its parts."""
        return self.data_directory / CONTROL_SOCKET_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports that were chosen, all of them real."""

    broker: int
    web: int
    bookie: int
    bookie_metrics: int
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
            bookie=self._reserve(LOCALHOST, settings.bookie_port, "--bookie-port"),
            bookie_metrics=self._reserve(LOCALHOST, 0, ""),
            zookeeper=0
            if settings.zookeeper
            else self._reserve(LOCALHOST, settings.zookeeper_port, "--zookeeper-port"),
        )

    def _reserve(self, host: str, port: int, option: str) -> int:
        try:
            reserved = ReservedPort(host, port)
        except OSError as error:
            raise UnusablePort(host, port, option, why_unusable(error)) from error
        self._held.append(reserved)
        return reserved.port


def make_parts(
    settings: StandaloneSettings,
    ports: Ports,
    installation: Installation | None,
    *,
    former_broker_id: str = "",
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
        parts[ZOOKEEPER] = ZooKeeperPart(_rules(ZOOKEEPER, ()), server, installation, inherited)
        needs, zookeeper = (ZOOKEEPER,), server.address
    for name, options in (
        (BOOKIE, bookie_options(settings, ports, zookeeper)),
        (BROKER, broker_options(settings, ports, zookeeper, former_broker_id)),
    ):
        parts[name] = PythonPart(
            _rules(name, needs),
            options,
            control_socket=settings.control_socket,
            inherited=inherited,
        )
    return parts


def bookie_options(settings: StandaloneSettings, ports: Ports, zookeeper: str) -> Mapping[str, str]:
    """What the bookie is told."""
    return {
        "--data-directory": str(settings.data_directory / BOOKIE),
        "--zookeeper": zookeeper,
        "--bind-address": LOCALHOST,
        "--port": str(ports.bookie),
        "--http-port": str(ports.bookie_metrics),
        **({} if settings.is_synced else {"--no-sync": ""}),
        **_log_options(settings),
    }


def broker_options(
    settings: StandaloneSettings, ports: Ports, zookeeper: str, former_broker_id: str
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
        **({"--former-broker-ids": former_broker_id} if former_broker_id else {}),
        **_log_options(settings),
    }


def _rules(name: str, needs: tuple[str, ...]) -> PartRules:
    return PartRules(name, STOP_DEADLINES_S[name], needs)


def _log_options(settings: StandaloneSettings) -> Mapping[str, str]:
    options = {"--log-level": "WARNING"} if settings.is_quiet else {}
    return {**options, "--log-json": ""} if settings.is_json else options
