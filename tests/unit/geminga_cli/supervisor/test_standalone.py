"""Proves what parts a standalone has, what each is told, and how its ports are chosen."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from geminga_cli.embedded_zookeeper.installation import Installation
from geminga_cli.errors import UnusablePort
from geminga_cli.supervisor.parts import PythonPart, ZooKeeperPart
from geminga_cli.supervisor.settings import DECIDED, PartsFile, StandaloneSettings
from geminga_cli.supervisor.standalone import (
    STOP_DEADLINES_S,
    BookiePorts,
    PortReservations,
    Ports,
    bookie_options,
    broker_options,
    make_parts,
)
from geminga_runtime.java import Java
from geminga_server.errors import ConfigError

DATA = Path("/data")
SETTINGS = StandaloneSettings(data_directory=DATA, num_bookies=1)
ANY_PORTS = replace(SETTINGS, broker_port=0, web_port=0, bookie_port=0, zookeeper_port=0)
BOOKIE_PORTS = BookiePorts(3, 4)
PORTS = Ports(broker=1, web=2, bookies=(BOOKIE_PORTS,), zookeeper=5)
INSTALLATION = Installation(Java(Path("/java"), "17"), Path("/jars"), Path("/jars/c.jsa"))


def test_zookeeper_comes_first_and_the_others_need_it() -> None:
    parts = make_parts(SETTINGS, PORTS, INSTALLATION)
    assert [part.rules.name for part in parts.values()] == ["zookeeper", "bookie", "broker"]
    assert [part.rules.needs for part in parts.values()] == [(), ("zookeeper",), ("zookeeper",)]


def test_the_embedded_zookeeper_stays_on_this_machine() -> None:
    settings = replace(SETTINGS, bind_address="0.0.0.0", sync=False)
    server = make_parts(settings, PORTS, INSTALLATION)["zookeeper"]
    assert isinstance(server, ZooKeeperPart)
    assert server.settings.address == "127.0.0.1:5"
    assert server.settings.data_directory == DATA / "zookeeper"
    assert not server.settings.is_synced


def test_bookies_are_named_and_kept_apart() -> None:
    settings = replace(SETTINGS, num_bookies=3)
    ports = replace(PORTS, bookies=(BookiePorts(3, 4), BookiePorts(6, 7), BookiePorts(8, 9)))
    parts = make_parts(settings, ports, INSTALLATION)
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
    options = broker_options(replace(SETTINGS, num_bookies=bookies), PORTS, "zk:5", ())
    names = ("--log-ensemble-size", "--log-write-quorum", "--log-ack-quorum")
    assert tuple(options.get(name) for name in names) == told


def test_the_users_own_zookeeper_is_no_part_of_ours() -> None:
    parts = make_parts(replace(SETTINGS, zookeeper="zk:2181"), PORTS, None)
    assert list(parts) == ["bookie", "broker"]
    for part in parts.values():
        assert isinstance(part, PythonPart)
        assert part.options["--zookeeper"] == "zk:2181"
        assert part.rules.needs == ()


def test_parts_stop_within_five_seconds_the_broker_first() -> None:
    deadlines = [STOP_DEADLINES_S[name] for name in ("broker", "bookie", "zookeeper")]
    assert deadlines == sorted(deadlines)
    assert deadlines[-1] < 5


def test_the_broker_is_told_its_ports_and_what_it_was_called_before() -> None:
    options = broker_options(SETTINGS, PORTS, "zk:5", ["127.0.0.1:9", "127.0.0.1:8"])
    assert (options["--port"], options["--web-port"]) == ("1", "2")
    assert options["--former-broker-ids"] == "127.0.0.1:9,127.0.0.1:8"
    assert "--former-broker-ids" not in broker_options(SETTINGS, PORTS, "zk:5", ())
    assert "--initialize" in options


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
    options = broker_options(settings, PORTS, "zk:5", ())
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
        broker_options(settings, PORTS, "zk:5", ()),
    ):
        assert options["--log-level"] == "WARNING"
        assert "--log-json" in options


def test_options_without_a_value_stand_alone_on_the_command_line() -> None:
    broker = make_parts(SETTINGS, PORTS, INSTALLATION)["broker"]
    assert isinstance(broker, PythonPart)
    words = broker.words()
    assert words[1:4] == ["-m", "geminga_cli", "broker"]
    assert words[words.index("--initialize") + 1].startswith("--")


def test_any_free_ports_all_differ_and_are_kept() -> None:
    first, second = PortReservations(ANY_PORTS), PortReservations(ANY_PORTS)
    numbers = [
        number
        for ports in (first.ports, second.ports)
        for bookie in ports.bookies
        for number in (ports.broker, ports.web, bookie.bookie, bookie.metrics, ports.zookeeper)
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
    reserved = PortReservations(replace(ANY_PORTS, zookeeper="zk:2181"))
    assert reserved.ports.zookeeper == 0
    reserved.close()


@pytest.mark.parametrize(
    ("wanted", "clash"),
    [
        ({"web_port": 6650}, "--broker-port and --web-port are both 6650"),
        ({"zookeeper_port": 8080}, "--web-port and --zookeeper-port are both 8080"),
        ({"zookeeper_port": 3183}, "--zookeeper-port and --bookie-port .for bookie-3. are both"),
    ],
)
def test_two_ports_that_are_the_same_are_refused(wanted: dict[str, int], clash: str) -> None:
    settings = replace(SETTINGS, num_bookies=3, **wanted)  # type: ignore[arg-type] # ports only
    with pytest.raises(ConfigError, match=clash):
        PortReservations(settings)


def test_the_file_is_told_to_bookie_and_broker_and_of_zookeeper_its_heap() -> None:
    file = PartsFile(Path("/g.toml"), heap_max_mib=99)
    parts = make_parts(SETTINGS, PORTS, INSTALLATION, file=file)
    for name in ("bookie", "broker"):
        part = parts[name]
        assert isinstance(part, PythonPart)
        assert part.options["--config"] == "/g.toml"
    zookeeper = parts["zookeeper"]
    assert isinstance(zookeeper, ZooKeeperPart)
    assert zookeeper.settings.heap_max_mib == 99


def test_quorums_of_the_file_are_not_overruled_by_those_that_follow_from_the_bookies() -> None:
    settings = replace(SETTINGS, num_bookies=3)
    ports = replace(PORTS, bookies=(BOOKIE_PORTS,) * 3)
    file = PartsFile(Path("/g.toml"), {"broker": frozenset({"log.ack_quorum"})})
    for told, expected in ((PartsFile(), "3"), (file, None)):
        broker = make_parts(settings, ports, INSTALLATION, file=told)["broker"]
        assert isinstance(broker, PythonPart)
        assert broker.options.get("--log-ensemble-size") == expected


@pytest.mark.parametrize("name", ["bookie", "broker"])
def test_a_file_cannot_say_what_the_standalone_tells_its_parts(name: str) -> None:
    """All but what a user may choose: logs, and how many copies there are."""
    former = ["127.0.0.1:9"]
    part = make_parts(replace(SETTINGS, sync=False), PORTS, INSTALLATION, former_broker_ids=former)
    assert isinstance(part[name], PythonPart)
    options = part[name].options  # type: ignore[attr-defined] # as asserted
    told = {option.removeprefix("--").removeprefix("no-").replace("-", "_") for option in options}
    assert told == DECIDED[name].keys()
