"""What a cluster is made of: its ports, and the parts that follow from its settings.

A standalone is a cluster with one broker and no proxy. Only here, in the options of the parts, does
the supervisor know what a bookie, a broker, a proxy or a functions worker is.
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

# The write quorum and the ack quorum, where there are enough bookies. With three, one bookie can be
# lost while another is restarted, and a copy is still there. Each further one would make every
# message dearer.
COPIES_MAX = 3
ANSWERS_MAX = 2
# The broker's settings of the quorums, and their options.
QUORUMS = {
    "log.ensemble_size": "--log-ensemble-size",
    "log.write_quorum": "--log-write-quorum",
    "log.ack_quorum": "--log-ack-quorum",
}
# The kinds of parts that can be added, for the refusal of others.
ADDABLE = f"a {BROKER}, a {BOOKIE}, a {PROXY} or a {FUNCTIONS_WORKER}"


@dataclass(frozen=True, slots=True)
class PartPorts:
    """The ports that a part listens on."""

    # Of its own protocol; 0 where it has none.
    port: int
    # Of REST and metrics.
    http: int = 0


PortsOf = Callable[[str], PartPorts]


class PortReservations:
    """The ports of a cluster's parts, held for as long as the supervisor lives.

    A part that is restarted then finds its port free. Raises ``UnusablePort``, and ``ConfigError``
    where two of them are the same.
    """

    def __init__(self, settings: StandaloneSettings) -> None:
        # Before any is bound: two options with one port would look like a port that another program
        # has.
        require_distinct(settings.wanted_ports())
        self._settings = settings
        # Reserved sockets are bound and do not listen: a part can bind the same port beside them.
        self._held: list[ReservedPort] = []
        self._ports: dict[str, PartPorts] = {}
        # Ports are reserved in the order in which people know them. All of them or none: the first
        # that is taken releases those before it.
        # Of a cluster with one proxy, two brokers and two bookies, by default:
        #
        #     proxy     6650  8080        broker    6651  8081        broker-2  6652  8082
        #     bookie    3181  any         bookie-2  3182  any         zookeeper 2181
        try:
            # Before any part has started: a port that is taken ends the command at once.
            for name in settings.entrances:
                self._ports[name] = self._entrance(len(self._ports))
            for index, name in enumerate(settings.bookies):
                self._ports[name] = self._bookie(index)
            for name in settings.functions_workers:
                self.of(name)
            # The user has a ZooKeeper of his own otherwise.
            if not settings.zookeeper:
                port = self._reserve(LOCALHOST, settings.zookeeper_port, "--zookeeper-port")
                self._ports[ZOOKEEPER] = PartPorts(port)
        except UnusablePort:
            self.close()
            raise

    def of(self, name: str) -> PartPorts:
        """The ports of the part ``name``; for a part that is added later, free ones."""
        if name not in self._ports:
            # By its name, which begins with its kind (``numbered``).
            if name.startswith(FUNCTIONS_WORKER):
                self._ports[name] = PartPorts(0, self._reserve(LOCALHOST, 0, ""))
            else:
                is_bookie = name.startswith(BOOKIE)
                self._ports[name] = self._bookie(None) if is_bookie else self._entrance(None)
        return self._ports[name]

    def close(self) -> None:
        """Release all of them."""
        for reserved in self._held:
            reserved.close()

    def _entrance(self, index: int | None) -> PartPorts:
        """The ports of the proxy or broker with this place among both; None is free ones."""
        settings, host = self._settings, self._settings.bind_address
        return PartPorts(
            self._reserve(host, _in_row(settings.broker_port, index), "--broker-port"),
            self._reserve(host, _in_row(settings.web_port, index), "--web-port"),
        )

    def _bookie(self, index: int | None) -> PartPorts:
        return PartPorts(
            self._reserve(LOCALHOST, _in_row(self._settings.bookie_port, index), "--bookie-port"),
            self._reserve(LOCALHOST, 0, ""),  # of HTTP
        )

    def _reserve(self, host: str, port: int, option: str) -> int:
        reserved = reserve(host, port, option)
        self._held.append(reserved)
        return reserved.port


def _in_row(first: int, index: int | None) -> int:
    """The port that is ``index`` behind ``first``; 0, for any free one, where there is none."""
    return first + index if first and index is not None and first + index <= PORT_MAX else 0


class Plan:
    """The parts of a cluster by name, those that others need first; ``add`` makes one more.

    - Without an ``installation``, ZooKeeper is the user's own, and no part of ours.
    - ``file`` is the --config file, which the parts read as well.
    - The parts keep the descriptors ``inherited``, which are the locks of the data.
    """

    # The order of the constructor is the order of dependence: ZooKeeper, bookies, brokers, proxies,
    # functions workers. ``Fleet`` starts all of them at once, and stops them from the end.
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
        # By a broker's name: the ids that it had in former lives.
        self.broker_ids: dict[str, BrokerIds] = {}
        self._ports_of = ports_of
        self._file = file
        self._inherited = inherited
        # The address of ZooKeeper, and what every other part needs before it is released.
        self._zookeeper, self._needs = settings.zookeeper, tuple[str, ...]()
        if installation is not None:
            server = ZooKeeperSettings(
                settings.data_directory / ZOOKEEPER,
                LOCALHOST,
                ports_of(ZOOKEEPER).port,
                is_synced=settings.sync,
                heap_max_mib=file.heap_max_mib,
            )
            # It is first in ``parts``, and so is started first and ends last.
            rules = PartRules(ZOOKEEPER, settings.stop_deadlines_s[ZOOKEEPER])
            self.parts[ZOOKEEPER] = ZooKeeperPart(rules, server, installation, inherited)
            self._zookeeper, self._needs = server.address, (ZOOKEEPER,)
        for name in settings.bookies:
            self._add(name, BOOKIE, bookie_options(settings, name, ports_of(name), self._zookeeper))
        # Of all brokers before the first is made: none of them may take another for a former self.
        present = {self._broker_id(name) for name in settings.brokers}
        for name in settings.brokers:
            self._add_broker(name, present)
        for name in settings.proxies:
            self._add(name, PROXY, proxy_options(settings, ports_of, name, self._zookeeper))
        # A standalone begins its functions worker late: users do not wait for it at the terminal.
        for name in () if settings.begun_late else settings.functions_workers:
            self._add(name, FUNCTIONS_WORKER, functions_worker_options(settings, ports_of, name))

    def add(self, kind: str) -> Part:
        """Make one more part of a kind. Raises ``CannotObey``, ``UnusablePort``."""
        settings, names = self.settings, set(self.parts)
        # The lowest number that is free. A part is never taken out of ``parts``, even while an
        # operator keeps it down: its number stays its own, and so do its data and its ports.
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

    def _add_broker(self, name: str, present: set[str]) -> Part:
        """Add a broker; ``present`` are the ids of all running brokers, none of which is former."""
        # With port 0, the kernel may give the new broker a port that a broker of a former life had.
        own = self._broker_id(name)
        if any(own in each.former for each in self.broker_ids.values()):
            # A running broker would take over the nodes of the new one, as if they were its own.
            raise CannotObey(f"{own} was a broker's before this start: add another one")
        ids = BrokerIds(self.settings.data_directory, name, own, others=present - {own})
        options = dict(broker_options(self.settings, self._ports_of, name, self._zookeeper))
        if ids.former:
            options["--former-broker-ids"] = ",".join(ids.former)
        if QUORUMS.keys() & self._file.names(BROKER):
            # The file has the user's choice. Options would overrule it.
            options = {key: value for key, value in options.items() if key not in QUORUMS.values()}
        # Only now: a refusal above must leave no trace of a broker that does not exist.
        self.broker_ids[name] = ids
        return self._add(name, BROKER, options)

    def _add(self, name: str, kind: str, options: Mapping[str, str]) -> Part:
        # The file comes first: options that the supervisor decides overrule what is in it.
        part = self.parts[name] = PythonPart(
            PartRules(name, self.settings.stop_deadlines_s[kind], self._needs, kind),
            kind,
            {**self._file.options, **options},
            control_socket=self.settings.control_socket,
            log_file=self.settings.log_file(name),
            inherited=self._inherited,
        )
        return part


# The functions below make options and nothing else: what a part is told is tested without starting
# it.
def bookie_options(
    settings: StandaloneSettings, name: str, ports: PartPorts, zookeeper: str
) -> Mapping[str, str]:
    """The options of the bookie ``name``."""
    return {
        "--data-directory": str(settings.data_directory / name),
        "--zookeeper": zookeeper,
        # Bookies do not authenticate clients.
        "--bind-address": LOCALHOST,
        "--port": str(ports.port),
        "--http-port": str(ports.http),
        **({} if settings.sync else {"--no-sync": ""}),
        **_log_options(settings),
    }


def proxy_options(
    settings: StandaloneSettings, ports_of: PortsOf, name: str, zookeeper: str
) -> Mapping[str, str]:
    """The options of the proxy ``name``."""
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
    """The URL of REST with all functions workers; empty if there are none."""
    hosts = [f"{LOCALHOST}:{ports_of(each).http}" for each in settings.functions_workers]
    return f"http://{','.join(hosts)}" if hosts else ""


def functions_worker_options(
    settings: StandaloneSettings, ports_of: PortsOf, name: str
) -> Mapping[str, str]:
    """The options of the functions worker ``name``.

    It runs any code that it is sent, so it listens on this machine alone, behind proxies.
    """
    directory = settings.data_directory / name
    # Brokers and not proxies: a worker is on this machine, and a proxy would be one hop more.
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
    """The options of the broker ``name``."""
    ports, workers = ports_of(name), _workers_url(settings, ports_of)
    host = settings.advertised_host
    # Where other clusters reach this one: at its proxies, or at all brokers where it has none. All
    # brokers write the same. One that is alone writes its own address by itself.
    urls: dict[str, str] = {}
    names = settings.proxies or settings.brokers
    if names != (BROKER,):
        each = [ports_of(name) for name in names]
        urls = {
            "--cluster-service-url": "pulsar://" + ",".join(f"{host}:{one.port}" for one in each),
            "--cluster-web-service-url": "http://" + ",".join(f"{host}:{one.http}" for one in each),
        }
    # On how many of the bookies an entry is stored, and how many must answer. With one bookie, the
    # broker's defaults are right.
    quorums: dict[str, str] = {}
    if settings.num_bookies != 1:
        copies = min(settings.num_bookies, COPIES_MAX)
        answers = min(settings.num_bookies, ANSWERS_MAX)
        numbers = map(str, (copies, copies, answers))
        quorums = dict(zip(QUORUMS.values(), numbers, strict=True))
    return {
        **({"--functions-worker-web-service-url": workers} if workers else {}),
        "--cluster": settings.cluster,
        # The first broker that gets there makes the cluster's records in ZooKeeper, if there are
        # none.
        "--initialize": "",
        **urls,
        "--zookeeper": zookeeper,
        **({"--configuration-store": store} if (store := settings.configuration_store) else {}),
        "--bind-address": settings.bind_address,
        "--advertised-address": host,
        "--port": str(ports.port),
        "--web-port": str(ports.http),
        "--close-budget-s": str(settings.broker_close_budget_s),
        **quorums,
        **_log_options(settings),
    }


def _log_options(settings: StandaloneSettings) -> Mapping[str, str]:
    options = {"--log-level": "WARNING"} if settings.quiet else {}
    return {**options, "--log-json": ""} if settings.log_json else options
