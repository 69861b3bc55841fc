"""``geminga standalone``: a whole cluster on this machine, watched over until it is told to stop.

Reads aloud as the order of starting. Everything that takes time is begun before anything is
imported that is not needed for it: Java first, then the Python parts, then our own event loop.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from geminga_cli.embedded_zookeeper.provide import provide_zookeeper
from geminga_cli.errors import StartFailed
from geminga_cli.supervisor.broker_ids import BrokerIds
from geminga_cli.supervisor.console import no_sync_warning
from geminga_cli.supervisor.endpoints import EndpointsFile
from geminga_cli.supervisor.fleet import Fleet, Start
from geminga_cli.supervisor.parts import Part
from geminga_cli.supervisor.process import Process
from geminga_cli.supervisor.standalone import (
    HANG_LIMIT_S,
    ZOOKEEPER,
    PortReservations,
    StandaloneSettings,
    make_parts,
    with_bookies_of_data,
)
from geminga_runtime.clock import SystemClock
from geminga_server.directories import DirectoryLock

PORT_MAX = 65_535
SECONDS_MAX = 86_400.0
# On one machine more only share the same disk.
BOOKIES_MAX = 16


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code. Raises what ``geminga_cli.errors`` lists."""
    settings = parse(arguments)
    clock = SystemClock()
    # A ZooKeeper may also be run alone, on the directory that is a part of ours.
    directories = [settings.data_directory, settings.data_directory / ZOOKEEPER]
    locks = [DirectoryLock(each, clock) for each in directories[: 1 if settings.zookeeper else 2]]
    settings = with_bookies_of_data(settings)
    if not settings.is_synced and not settings.is_json:
        print(no_sync_warning(), file=sys.stderr, flush=True)
    reservations = PortReservations(settings)
    installation = None if settings.zookeeper else provide_zookeeper()
    broker_ids = BrokerIds(settings.data_directory, settings.broker_id(reservations.ports.web))
    parts = make_parts(
        settings,
        reservations.ports,
        installation,
        former_broker_ids=broker_ids.former,
        inherited=[lock.descriptor for lock in locks],
    )
    EndpointsFile(settings.data_directory).remove()
    fleet = Fleet([part.rules for part in parts.values()])
    orders = fleet.begin(clock.monotonic())
    processes = launch(parts, [order.part for order in orders if isinstance(order, Start)])

    # While they start: asyncio, uvloop and the control channel take 100 ms.
    from geminga_cli.supervisor.run import supervise  # noqa: PLC0415
    from geminga_cli.supervisor.supervisor import Launched  # noqa: PLC0415

    rest = [order for order in orders if not isinstance(order, Start)]
    supervise(settings, fleet, parts, Launched(processes, rest), broker_ids)
    return 0


def launch(parts: Mapping[str, Part], names: Sequence[str]) -> dict[str, Process]:
    """Start the parts' first processes. Raises ``StartFailed``: the others then die with us."""
    processes: dict[str, Process] = {}
    for name in names:
        try:
            processes[name] = parts[name].launch()
        except OSError as error:
            raise StartFailed(name, str(error)) from error
    return processes


def parse(arguments: Sequence[str]) -> StandaloneSettings:
    """The settings that the options say; a wrong option ends the process as argparse does."""
    options = _parser().parse_args(arguments)
    return StandaloneSettings(
        data_directory=options.data_dir.absolute(),
        bind_address=options.bind_address,
        advertised_address=options.advertised_address,
        broker_port=options.broker_port,
        web_port=options.web_port,
        bookie_port=options.bookie_port,
        zookeeper_port=options.zookeeper_port,
        zookeeper=options.zookeeper,
        num_bookies=options.num_bookies,
        is_synced=not options.no_sync,
        hang_limit_s=options.hang_limit,
        is_quiet=options.quiet,
        is_json=options.json_logs,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="geminga standalone",
        description="Start ZooKeeper, a bookie and a broker, and watch over them. Prints READY and "
        "the addresses when everything answers; DATA/endpoints.json says the same.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--data-dir", type=Path, default=Path("data"), metavar="DATA", help="default: ./data")
    _add_port(parser, "--broker-port", 6650, "the Pulsar protocol")
    _add_port(parser, "--web-port", 8080, "REST and metrics")
    _add_port(parser, "--bookie-port", 3181, "the bookie; others take the ports after it")
    _add_port(parser, "--zookeeper-port", 2181, "the embedded ZooKeeper")
    add(
        "--zookeeper",
        default="",
        metavar="HOST:PORT",
        help="your own ZooKeeper, instead of the embedded one",
    )
    add(
        "--num-bookies",
        type=_bookies,
        default=0,
        metavar="N",
        help="how many bookies; with 3 or more, each message is stored on three "
        "(default: as many as the data is on, 1 for a new cluster)",
    )
    add(
        "--bind-address",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="where the broker listens (default: 127.0.0.1); 0.0.0.0 lets other machines in, "
        "and nobody is asked who they are",
    )
    add(
        "--advertised-address",
        default="",
        metavar="HOST",
        help="what clients are told to connect to (default: the bind address)",
    )
    add(
        "--no-sync",
        action="store_true",
        help="never sync to disk: faster, and a power cut loses acknowledged messages",
    )
    add(
        "--hang-limit",
        type=_seconds,
        default=HANG_LIMIT_S,
        metavar="SECONDS",
        help="a part that gives no sign of life for so long is started again "
        f"(default: {HANG_LIMIT_S:g}; 0: never, for debuggers)",
    )
    add("--quiet", action="store_true", help="only READY, the addresses, and warnings")
    add("--json-logs", action="store_true", help="log in JSON, one object a line")
    return parser


def _add_port(parser: argparse.ArgumentParser, option: str, default: int, what: str) -> None:
    parser.add_argument(
        option,
        type=_port,
        default=default,
        metavar="PORT",
        help=f"{what} (default: {default}; 0: any free port)",
    )


def _port(words: str) -> int:
    return _number(words, "port", 0, PORT_MAX)


def _bookies(words: str) -> int:
    return _number(words, "number of bookies", 1, BOOKIES_MAX)


def _number(words: str, what: str, least: int, most: int) -> int:
    if not words.isascii() or not words.isdigit() or not least <= int(words) <= most:
        raise argparse.ArgumentTypeError(f"{words} is no {what}: {least} to {most}")
    return int(words)


def _seconds(words: str) -> float:
    try:
        seconds = float(words)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{words} is no time: 0 to {SECONDS_MAX:g} seconds")
    return seconds
