"""What a cluster is made of: its ports, and the parts that follow from its settings.

A standalone is the cluster with one broker and no proxy. The parts' options are the only place
where the supervisor knows what a bookie, a broker, a proxy or a functions worker is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from geminga_cli.embedded_zookeeper.configuration import ZooKeeperSettings
from geminga_cli.embedded_zookeeper.installation import Installation
from geminga_cli.errors import CannotObey, UnusablePort
from geminga_cli.ports import ReservedPort, reserve
from geminga_cli.supervisor.broker_ids import BrokerIds
from geminga_cli.supervisor.lifecycle.orders import PartRules
from geminga_cli.supervisor.parts import Part, PythonPart, ZooKeeperPart
from geminga_cli.supervisor.settings import (
    BOOKIE,
    BROKER,
    FUNCTIONS_WORKER,
    LOCALHOST,
    NO_FILE,
    PARTS_MAX,
    PORT_MAX,
    PROXY,
    ZOOKEEPER,
    PartsFile,
    StandaloneSettings,
    numbered,
)
from geminga_server.ports import require_distinct

# So many copies of an entry, and answers before it counts, where there are bookies enough.
COPIES_MAX = 3
ANSWERS_MAX = 2
# The broker's settings that say so, and their options.
QUORUMS = {
    "log.ensemble_size": "--log-ensemble-size",
    "log.write_quorum": "--log-write-quorum",
    "log.ack_quorum": "--log-ack-quorum",
}
# What there can be more of.
ADDABLE = f"a {BROKER}, a {BOOKIE}, a {PROXY} or a {FUNCTIONS_WORKER}"


@dataclass(frozen=True, slots=True)
class PartPorts:
    """Where a part listens: ``port`` for its own protocol, ``http`` for REST and metrics."""

    port: int
    http: int = 0


PortsOf = Callable[[str], PartPorts]


class PortReservations:
    """The ports of a cluster's parts, held for as long as the supervisor lives.

    So a part that is restarted finds its port free. Raises ``UnusablePort``, and ``ConfigError``
    where two are the same.
    """

    def __init__(self, settings: StandaloneSettings) -> None:
        require_distinct(settings.wanted_ports())
        self._settings = settings
        self._held: list[ReservedPort] = []
        self._ports: dict[str, PartPorts] = {}
        try:
            for name in settings.entrances:
                self._ports[name] = self._entrance(len(self._ports))
            for index, name in enumerate(settings.bookies):
                self._ports[name] = self._bookie(index)
            for name in settings.functions_workers:
                self._ports[name] = self._functions_worker()
            if not settings.zookeeper:
                port = self._reserve(LOCALHOST, settings.zookeeper_port, "--zookeeper-port")
                self._ports[ZOOKEEPER] = PartPorts(port)
        except UnusablePort:
            self.close()
            raise

    def of(self, name: str) -> PartPorts:
        """Those of the part ``name``; of one that is added later, the next ones that are free."""
        if name not in self._ports:
            if name.startswith(FUNCTIONS_WORKER):
                self._ports[name] = self._functions_worker()
            else:
                is_bookie = name.startswith(BOOKIE)
                self._ports[name] = self._bookie(None) if is_bookie else self._entrance(None)
        return self._ports[name]

    def close(self) -> None:
        """Let all of them go."""
        for reserved in self._held:
            reserved.close()

    def _entrance(self, index: int | None) -> PartPorts:
        """Of the proxy or broker with that place in the row of both; without one, free ones."""
        settings, host = self._settings, self._settings.bind_address
        return PartPorts(
            self._reserve(host, _in_row(settings.broker_port, index), "--broker-port"),
            self._reserve(host, _in_row(settings.web_port, index), "--web-port"),
        )

    def _bookie(self, index: int | None) -> PartPorts:
        return PartPorts(
            self._reserve(LOCALHOST, _in_row(self._settings.bookie_port, index), "--bookie-port"),
            self._reserve(LOCALHOST, 0, ""),
        )

    def _functions_worker(self) -> PartPorts:
        return PartPorts(0, self._reserve(LOCALHOST, 0, ""))

    def _reserve(self, host: str, port: int, option: str) -> int:
        reserved = reserve(host, port, option)
        self._held.append(reserved)
        return reserved.port


def _in_row(first: int, index: int | None) -> int:
    """The port with that place in the row that begins with ``first``; 0 is any free one."""
    return first + index if first and index is not None and first + index <= PORT_MAX else 0


class Plan:
    """The parts of a cluster by name, those that others need first; ``add`` makes one more.

    Without an ``installation`` ZooKeeper is the user's own, and no part of ours. ``file`` is told
    to the parts as well; they keep the descriptors ``inherited``, which are the locks of the data.
    """

    def __init__(
        self,
        settings: StandaloneSettings,
        ports_of: PortsOf,
        installation: Installation | None,
        *,
        file: PartsFile = NO_FILE,
        inherited: Sequence[int] = (),
    ) -> None:
        self.settings = settings
        self.parts: dict[str, Part] = {}
        self.broker_ids: dict[str, BrokerIds] = {}
        self._ports_of = ports_of
        self._file = file
        self._inherited = inherited
        self._zookeeper, self._needs = settings.zookeeper, tuple[str, ...]()
        if installation is not None:
            self._add_zookeeper(installation)
        for name in settings.bookies:
            self._add(name, BOOKIE, bookie_options(settings, name, ports_of(name), self._zookeeper))
        present = {self._broker_id(name) for name in settings.brokers}
        for name in settings.brokers:
            self._add_broker(name, present)
        for name in settings.proxies:
            self._add(name, PROXY, proxy_options(settings, ports_of, name, self._zookeeper))
        for name in () if settings.begun_late else settings.functions_workers:
            self._add(name, FUNCTIONS_WORKER, functions_worker_options(settings, ports_of, name))

    def add(self, kind: str) -> Part:
        """One more part of a kind. Raises ``CannotObey``, ``UnusablePort``."""
        settings, names = self.settings, set(self.parts)
        number = next(
            each for each in range(1, len(names) + 2) if numbered(kind, each) not in names
        )
        name = numbered(kind, number)
        if number > PARTS_MAX:
            raise CannotObey(f"there are {PARTS_MAX} parts of the kind {kind}, which is the limit")
        match kind:
            case "bookie":
                ports = self._ports_of(name)
                return self._add(name, kind, bookie_options(settings, name, ports, self._zookeeper))
            case "broker":
                return self._add_broker(name, set(map(self._broker_id, self.broker_ids)))
            case "proxy":
                options = proxy_options(settings, self._ports_of, name, self._zookeeper)
                return self._add(name, kind, options)
            case "functions-worker":
                options = functions_worker_options(settings, self._ports_of, name)
                return self._add(name, kind, options)
            case _:
                raise CannotObey(f"no {kind} can be added; {ADDABLE} can")

    def _broker_id(self, name: str) -> str:
        return self.settings.broker_id(self._ports_of(name).http)

    def _add_zookeeper(self, installation: Installation) -> None:
        settings = self.settings
        server = ZooKeeperSettings(
            settings.data_directory / ZOOKEEPER,
            LOCALHOST,
            self._ports_of(ZOOKEEPER).port,
            is_synced=settings.sync,
            heap_max_mib=self._file.heap_max_mib,
        )
        rules = PartRules(ZOOKEEPER, settings.stop_deadlines_s[ZOOKEEPER])
        self.parts[ZOOKEEPER] = ZooKeeperPart(rules, server, installation, self._inherited)
        self._zookeeper, self._needs = server.address, (ZOOKEEPER,)

    def _add_broker(self, name: str, present: set[str]) -> Part:
        """``present`` are the ids of all brokers that run beside it: none is its past."""
        own = self._broker_id(name)
        if any(own in each.former for each in self.broker_ids.values()):
            # A running broker would take the nodes of the new one for those of its own past.
            raise CannotObey(f"{own} was a broker's before this start: add another one")
        ids = BrokerIds(self.settings.data_directory, name, own, others=present - {own})
        options = dict(broker_options(self.settings, self._ports_of, name, self._zookeeper))
        if ids.former:
            options["--former-broker-ids"] = ",".join(ids.former)
        if QUORUMS.keys() & self._file.names(BROKER):
            # The user's choice, which options would overrule.
            options = {key: value for key, value in options.items() if key not in QUORUMS.values()}
        self.broker_ids[name] = ids
        return self._add(name, BROKER, options)

    def _add(self, name: str, kind: str, options: Mapping[str, str]) -> Part:
        part = self.parts[name] = PythonPart(
            PartRules(name, self.settings.stop_deadlines_s[kind], self._needs, kind),
            kind,
            {**self._file.options, **options},
            control_socket=self.settings.control_socket,
            log_file=self.settings.log_file(name),
            inherited=self._inherited,
        )
        return part


def bookie_options(
    settings: StandaloneSettings, name: str, ports: PartPorts, zookeeper: str
) -> Mapping[str, str]:
    """What the bookie ``name`` is told."""
    return {
        "--data-directory": str(settings.data_directory / name),
        "--zookeeper": zookeeper,
        "--bind-address": LOCALHOST,
        "--port": str(ports.port),
        "--http-port": str(ports.http),
        **({} if settings.sync else {"--no-sync": ""}),
        **_log_options(settings),
    }


def proxy_options(
    settings: StandaloneSettings, ports_of: PortsOf, name: str, zookeeper: str
) -> Mapping[str, str]:
    """What the proxy ``name`` is told."""
    ports, workers = ports_of(name), _workers_url(settings, ports_of)
    return {
        **({"--function-worker-web-service-url": workers} if workers else {}),
        "--zookeeper": zookeeper,
        "--bind-address": settings.bind_address,
        "--advertised-address": settings.advertised_host,
        "--port": str(ports.port),
        "--web-port": str(ports.http),
        **_log_options(settings),
    }


def _workers_url(settings: StandaloneSettings, ports_of: PortsOf) -> str:
    """Where all functions workers answer; empty without any."""
    hosts = [f"{LOCALHOST}:{ports_of(each).http}" for each in settings.functions_workers]
    return f"http://{','.join(hosts)}" if hosts else ""


def functions_worker_options(
    settings: StandaloneSettings, ports_of: PortsOf, name: str
) -> Mapping[str, str]:
    """What the functions worker ``name`` is told: all brokers, and folders of its own. It
    runs any code that it is sent, so it stays on this machine, behind proxies."""
    directory = settings.data_directory / name
    brokers = [ports_of(each) for each in settings.brokers]
    host = settings.advertised_host
    return {
        "--worker-id": name,
        "--bind-address": LOCALHOST,
        "--worker-port": str(ports_of(name).http),
        "--pulsar-service-url": "pulsar://" + ",".join(f"{host}:{each.port}" for each in brokers),
        "--pulsar-web-service-url": "http://" + ",".join(f"{host}:{each.http}" for each in brokers),
        "--pulsar-functions-cluster": settings.cluster,
        "--directory": str(directory),
        "--log-directory": str(directory / "logs"),
        **_log_options(settings),
    }


def broker_options(
    settings: StandaloneSettings, ports_of: PortsOf, name: str, zookeeper: str
) -> Mapping[str, str]:
    """What the broker ``name`` is told."""
    ports, workers = ports_of(name), _workers_url(settings, ports_of)
    return {
        **({"--functions-worker-web-service-url": workers} if workers else {}),
        "--cluster": settings.cluster,
        "--initialize": "",
        **_cluster_urls(settings, ports_of),
        "--zookeeper": zookeeper,
        **({"--configuration-store": store} if (store := settings.configuration_store) else {}),
        "--bind-address": settings.bind_address,
        "--advertised-address": settings.advertised_host,
        "--port": str(ports.port),
        "--web-port": str(ports.http),
        "--close-budget-s": str(settings.broker_close_budget_s),
        **_quorum_options(settings.num_bookies),
        **_log_options(settings),
    }


def _cluster_urls(settings: StandaloneSettings, ports_of: PortsOf) -> Mapping[str, str]:
    """Where other clusters reach this one: at its proxies, or at all brokers where it has none.
    All brokers write the same; one that is alone writes its own address without being told."""
    names = settings.proxies or settings.brokers
    if names == (BROKER,):
        return {}
    host = settings.advertised_host
    ports = [ports_of(name) for name in names]
    return {
        "--cluster-service-url": "pulsar://" + ",".join(f"{host}:{each.port}" for each in ports),
        "--cluster-web-service-url": "http://" + ",".join(f"{host}:{each.http}" for each in ports),
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
