"""Proves what parts a cluster has, what each is told, and how its ports are chosen."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from geminga_cli.embedded_zookeeper.installation import Installation
from geminga_cli.errors import CannotObey, UnusablePort
from geminga_cli.supervisor.broker_ids import BrokerIds
from geminga_cli.supervisor.parts import PythonPart, ZooKeeperPart
from geminga_cli.supervisor.plan import (
    PartPorts,
    Plan,
    PortReservations,
    bookie_options,
    broker_options,
)
from geminga_cli.supervisor.settings import (
    DECIDED,
    NO_FILE,
    ClusterSettings,
    PartsFile,
    StandaloneSettings,
)
from geminga_runtime.java import Java
from geminga_server.errors import ConfigError

DATA = Path("/data")
SETTINGS = StandaloneSettings(data_directory=DATA, num_bookies=1)
ANY_PORTS = replace(SETTINGS, broker_port=0, web_port=0, bookie_port=0, zookeeper_port=0)
PORTS = {
    "broker": PartPorts(1, 2),
    "bookie": PartPorts(3, 4),
    "zookeeper": PartPorts(5),
    "bookie-2": PartPorts(6, 7),
    "bookie-3": PartPorts(8, 9),
    "broker-2": PartPorts(11, 12),
    "broker-3": PartPorts(13, 14),
    "proxy": PartPorts(21, 22),
    "proxy-2": PartPorts(23, 24),
    "functions-worker": PartPorts(0, 31),
    "functions-worker-2": PartPorts(0, 32),
}
BOOKIE_PORTS = PORTS["bookie"]
INSTALLATION = Installation(Java(Path("/java"), "17"), Path("/jars"), Path("/jars/c.jsa"))
CLUSTER = ClusterSettings(data_directory=DATA, num_bookies=3, num_proxies=0)


def planned(
    settings: StandaloneSettings,
    installation: Installation | None = INSTALLATION,
    file: PartsFile = NO_FILE,
) -> Plan:
    return Plan(settings, PORTS.__getitem__, installation, file=file)


def options_of(plan: Plan, name: str) -> dict[str, str]:
    part = plan.parts[name]
    assert isinstance(part, PythonPart)
    return dict(part.options)


def test_zookeeper_comes_first_and_the_others_need_it() -> None:
    parts = planned(SETTINGS).parts
    assert [part.rules.name for part in parts.values()] == ["zookeeper", "bookie", "broker"]
    assert [part.rules.needs for part in parts.values()] == [(), ("zookeeper",), ("zookeeper",)]


def test_the_embedded_zookeeper_stays_on_this_machine() -> None:
    settings = replace(SETTINGS, bind_address="0.0.0.0", sync=False)
    server = planned(settings).parts["zookeeper"]
    assert isinstance(server, ZooKeeperPart)
    assert server.settings.address == "127.0.0.1:5"
    assert server.settings.data_directory == DATA / "zookeeper"
    assert not server.settings.is_synced


def test_bookies_are_named_and_kept_apart() -> None:
    settings = replace(SETTINGS, num_bookies=3)
    parts = planned(settings).parts
    assert list(parts) == ["zookeeper", "bookie", "bookie-2", "bookie-3", "broker"]
    third = parts["bookie-3"]
    assert isinstance(third, PythonPart)
    assert third.command == "bookie"
    assert third.options["--data-directory"] == "/data/bookie-3"
    assert (third.options["--port"], third.options["--http-port"]) == ("8", "9")


@pytest.mark.parametrize(
    ("bookies", "told"),
    [(1, (None, None, None)), (2, ("2", "2", "2")), (3, ("3", "3", "2")), (5, ("3", "3", "2"))],
)
def test_the_broker_stores_each_entry_on_up_to_three_bookies(
    bookies: int, told: tuple[str | None, ...]
) -> None:
    options = broker_options(
        replace(SETTINGS, num_bookies=bookies), PORTS.__getitem__, "broker", "zk:5"
    )
    names = ("--log-ensemble-size", "--log-write-quorum", "--log-ack-quorum")
    assert tuple(options.get(name) for name in names) == told


def test_the_users_own_zookeeper_is_no_part_of_ours() -> None:
    parts = planned(replace(SETTINGS, zookeeper="zk:2181"), None).parts
    assert list(parts) == ["bookie", "broker"]
    for part in parts.values():
        assert isinstance(part, PythonPart)
        assert part.options["--zookeeper"] == "zk:2181"
        assert part.rules.needs == ()


def test_parts_stop_within_five_seconds_the_broker_first() -> None:
    deadlines = [SETTINGS.stop_deadlines_s[name] for name in ("broker", "bookie", "zookeeper")]
    assert deadlines == sorted(deadlines)
    assert deadlines[-1] < 5


def test_the_broker_is_told_its_ports_and_what_it_was_called_before(tmp_path: Path) -> None:
    settings = replace(SETTINGS, data_directory=tmp_path)
    options = options_of(planned(settings), "broker")
    assert (options["--port"], options["--web-port"]) == ("1", "2")
    assert "--former-broker-ids" not in options
    assert "--initialize" in options
    for own in ("127.0.0.1:9", "127.0.0.1:8"):
        BrokerIds(tmp_path, "broker", own).begin()
    options = options_of(planned(settings), "broker")
    assert options["--former-broker-ids"] == "127.0.0.1:9,127.0.0.1:8"


@pytest.mark.parametrize(
    ("bind", "advertised", "told"),
    [
        ("127.0.0.1", "", "127.0.0.1"),
        ("0.0.0.0", "", "127.0.0.1"),
        ("0.0.0.0", "example.org", "example.org"),
        ("192.0.2.7", "", "192.0.2.7"),
    ],
)
def test_clients_are_told_an_address_they_can_use(bind: str, advertised: str, told: str) -> None:
    settings = replace(SETTINGS, bind_address=bind, advertised_address=advertised)
    options = broker_options(settings, PORTS.__getitem__, "broker", "zk:5")
    assert (options["--bind-address"], options["--advertised-address"]) == (bind, told)


def test_the_bookie_stays_on_this_machine_and_syncs_unless_told_not_to() -> None:
    options = bookie_options(
        replace(SETTINGS, bind_address="0.0.0.0"), "bookie", BOOKIE_PORTS, "zk:5"
    )
    assert options["--bind-address"] == "127.0.0.1"
    assert "--no-sync" not in options
    assert "--no-sync" in bookie_options(
        replace(SETTINGS, sync=False), "bookie", BOOKIE_PORTS, "zk:5"
    )


def test_quiet_and_json_reach_both_parts() -> None:
    settings = replace(SETTINGS, quiet=True, log_json=True)
    for options in (
        bookie_options(settings, "bookie", BOOKIE_PORTS, "zk:5"),
        broker_options(settings, PORTS.__getitem__, "broker", "zk:5"),
    ):
        assert options["--log-level"] == "WARNING"
        assert "--log-json" in options


def test_options_without_a_value_stand_alone_on_the_command_line() -> None:
    broker = planned(SETTINGS).parts["broker"]
    assert isinstance(broker, PythonPart)
    words = broker.words()
    assert words[1:4] == ["-m", "geminga_cli", "broker"]
    assert words[words.index("--initialize") + 1].startswith("--")


def test_any_free_ports_all_differ_and_are_kept() -> None:
    first, second = PortReservations(ANY_PORTS), PortReservations(ANY_PORTS)
    numbers = [
        number
        for ports in (first, second)
        for name in ("broker", "bookie", "broker-2", "bookie-2")
        for number in (ports.of(name).port, ports.of(name).http)
    ]
    assert 0 not in numbers
    assert len(set(numbers)) == len(numbers)
    first.close()
    second.close()


def test_a_port_that_is_taken_is_named_with_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(UnusablePort, match=rf"127.0.0.1:{taken} \(it is in use\).*--web-port"):
            PortReservations(replace(ANY_PORTS, web_port=taken))


def test_an_address_of_another_machine_is_named_with_what_would_be_right() -> None:
    wanted = replace(ANY_PORTS, bind_address="192.0.2.1", broker_port=6650)
    with pytest.raises(UnusablePort, match=r"192\.0\.2\.1:6650 \(this machine.*--bind-address"):
        PortReservations(wanted)


def test_no_port_is_chosen_for_a_zookeeper_that_is_not_ours() -> None:
    settings = replace(ANY_PORTS, zookeeper="zk:2181")
    assert not any("zookeeper" in option for option in settings.wanted_ports())


@pytest.mark.parametrize(
    ("wanted", "clash"),
    [
        ({"web_port": 6650}, "--broker-port and --web-port are both 6650"),
        ({"zookeeper_port": 8080}, "--web-port and --zookeeper-port are both 8080"),
        ({"zookeeper_port": 3183}, "--bookie-port .for bookie-3. and --zookeeper-port are both"),
    ],
)
def test_two_ports_that_are_the_same_are_refused(wanted: dict[str, int], clash: str) -> None:
    settings = replace(SETTINGS, num_bookies=3, **wanted)  # type: ignore[arg-type] # ports only
    with pytest.raises(ConfigError, match=clash):
        PortReservations(settings)


def test_the_file_is_told_to_bookie_and_broker_and_of_zookeeper_its_heap() -> None:
    file = PartsFile(Path("/g.toml"), heap_max_mib=99)
    parts = planned(SETTINGS, file=file).parts
    for name in ("bookie", "broker"):
        part = parts[name]
        assert isinstance(part, PythonPart)
        assert part.options["--config"] == "/g.toml"
    zookeeper = parts["zookeeper"]
    assert isinstance(zookeeper, ZooKeeperPart)
    assert zookeeper.settings.heap_max_mib == 99


def test_quorums_of_the_file_are_not_overruled_by_those_that_follow_from_the_bookies() -> None:
    settings = replace(SETTINGS, num_bookies=3)
    file = PartsFile(Path("/g.toml"), {"broker": frozenset({"log.ack_quorum"})})
    for told, expected in ((PartsFile(), "3"), (file, None)):
        broker = planned(settings, file=told).parts["broker"]
        assert isinstance(broker, PythonPart)
        assert broker.options.get("--log-ensemble-size") == expected


@pytest.mark.parametrize("name", ["bookie", "broker", "proxy", "functions-worker"])
def test_a_file_cannot_say_what_the_supervisor_tells_its_parts(name: str, tmp_path: Path) -> None:
    """All but what a user may choose: logs, and how many copies there are."""
    BrokerIds(tmp_path, "broker", "127.0.0.1:9").begin()
    settings = ClusterSettings(
        data_directory=tmp_path, num_bookies=1, sync=False, num_functions_workers=1
    )
    options = options_of(planned(settings), name)
    told = {option.removeprefix("--").removeprefix("no-").replace("-", "_") for option in options}
    assert told == DECIDED[name].keys()


def test_a_cluster_has_several_brokers_that_write_the_same_addresses_of_it() -> None:
    plan = planned(CLUSTER)
    brokers = ["broker", "broker-2", "broker-3"]
    assert list(plan.parts) == ["zookeeper", "bookie", "bookie-2", "bookie-3", *brokers]
    told = [options_of(plan, name) for name in brokers]
    assert [each["--web-port"] for each in told] == ["2", "12", "14"]
    urls = {(each["--cluster-service-url"], each["--cluster-web-service-url"]) for each in told}
    (url, web_url), *others = urls
    assert not others
    assert url == "pulsar://127.0.0.1:1,127.0.0.1:11,127.0.0.1:13"
    assert web_url == "http://127.0.0.1:2,127.0.0.1:12,127.0.0.1:14"


def test_all_brokers_are_told_of_a_store_that_clusters_share() -> None:
    plan = planned(replace(CLUSTER, configuration_store="zk:s:1/all"))
    for name in CLUSTER.brokers:
        assert options_of(plan, name)["--configuration-store"] == "zk:s:1/all"
        assert "--configuration-store" not in options_of(planned(CLUSTER), name)


def test_a_cluster_has_the_name_of_the_standalone_that_it_may_have_been() -> None:
    (one,), (many, *_) = (
        {options_of(planned(each), name)["--cluster"] for name in each.brokers}
        for each in (SETTINGS, CLUSTER)
    )
    assert one == many


def test_parts_of_a_kind_stop_together_and_log_to_files_of_their_own() -> None:
    plan = planned(CLUSTER)
    assert {part.rules.group for part in plan.parts.values()} == {"zookeeper", "bookie", "broker"}
    assert plan.parts["broker-2"].log_file == DATA / "logs" / "broker-2.log"
    assert planned(SETTINGS).parts["broker"].log_file is None


def test_ports_of_a_kind_are_a_row_and_an_added_part_takes_free_ones() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    settings = replace(CLUSTER, broker_port=0, web_port=0, bookie_port=0, zookeeper_port=0)
    assert replace(settings, broker_port=free).wanted_ports() == {
        "--broker-port": free,
        "--broker-port (for broker-2)": free + 1,
        "--broker-port (for broker-3)": free + 2,
        "--web-port": 0,
        "--web-port (for broker-2)": 0,
        "--web-port (for broker-3)": 0,
        "--bookie-port": 0,
        "--bookie-port (for bookie-2)": 0,
        "--bookie-port (for bookie-3)": 0,
        "--zookeeper-port": 0,
    }
    ports = PortReservations(settings)
    added = ports.of("broker-4")
    assert 0 not in (added.port, added.http)
    assert added == ports.of("broker-4") != ports.of("broker-3")
    ports.close()


def test_proxies_come_first_in_the_row_of_ports_and_stop_first() -> None:
    settings = replace(CLUSTER, num_proxies=2)
    wanted = settings.wanted_ports()
    assert wanted["--broker-port"] == 6650
    assert wanted["--broker-port (for proxy-2)"] == 6651
    assert wanted["--broker-port (for broker)"] == 6652
    plan = planned(settings)
    assert list(plan.parts)[-2:] == ["proxy", "proxy-2"]
    assert settings.stop_deadlines_s["proxy"] < settings.stop_deadlines_s["broker"]
    assert options_of(plan, "proxy-2")["--port"] == "23"


def test_other_clusters_are_told_the_proxies_where_there_are_any() -> None:
    options = options_of(planned(replace(CLUSTER, num_proxies=2)), "broker-3")
    assert options["--cluster-service-url"] == "pulsar://127.0.0.1:21,127.0.0.1:23"
    assert options["--cluster-web-service-url"] == "http://127.0.0.1:22,127.0.0.1:24"


def test_a_broker_that_is_added_is_told_what_the_others_are() -> None:
    plan = Plan(CLUSTER, {**PORTS, "broker-4": PartPorts(15, 16)}.__getitem__, INSTALLATION)
    assert plan.add("broker").rules.name == "broker-4"
    first, added = options_of(plan, "broker"), options_of(plan, "broker-4")
    assert first.keys() == added.keys()
    assert (added["--port"], added["--web-port"]) == ("15", "16")
    assert plan.broker_ids.keys() == {"broker", "broker-2", "broker-3", "broker-4"}


def test_a_broker_with_the_id_of_anothers_past_is_not_added(tmp_path: Path) -> None:
    """The other would take its nodes for those of its own past."""
    BrokerIds(tmp_path, "broker", "127.0.0.1:16").begin()
    ports = {**PORTS, "broker-4": PartPorts(15, 16)}
    plan = Plan(replace(CLUSTER, data_directory=tmp_path), ports.__getitem__, INSTALLATION)
    with pytest.raises(CannotObey, match=r"127\.0\.0\.1:16"):
        plan.add("broker")


@pytest.mark.parametrize("kind", ["zookeeper", "supervisor", ""])
def test_a_kind_of_which_there_can_be_no_more_is_refused(kind: str) -> None:
    with pytest.raises(CannotObey, match="a broker, a bookie, a proxy or a functions-worker can"):
        planned(CLUSTER).add(kind)


def test_functions_workers_have_folders_of_their_own_and_proxies_know_where_they_are() -> None:
    plan = planned(replace(CLUSTER, num_proxies=1, num_functions_workers=2))
    first, second = (options_of(plan, f"functions-worker{each}") for each in ("", "-2"))
    assert first["--directory"] != second["--directory"]
    assert first["--pulsar-service-url"].count(",") == 2
    workers = ",".join(f"127.0.0.1:{each['--worker-port']}" for each in (first, second))
    told = options_of(plan, "proxy")["--function-worker-web-service-url"]
    assert told == f"http://{workers}"
    assert "--function-worker-web-service-url" not in options_of(
        planned(replace(CLUSTER, num_proxies=1)), "proxy"
    )
