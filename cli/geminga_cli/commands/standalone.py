"""``geminga standalone``: runs a whole cluster on this machine until it is told to stop.

``run`` is the order of starting. What takes long is begun before anything is imported that it does
not need: Java first, then the Python parts, then our own event loop.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from geminga_cli.commands.parts.part_command import make_parser
from geminga_cli.commands.parts.settings_help import HelpPages
from geminga_cli.embedded_zookeeper.provide import provide_zookeeper
from geminga_cli.embedded_zookeeper.settings import ZooKeeperPartSettings
from geminga_cli.errors import StartFailed
from geminga_cli.supervisor.console import no_sync_warning
from geminga_cli.supervisor.endpoints import EndpointsFile
from geminga_cli.supervisor.lifecycle.fleet import Fleet
from geminga_cli.supervisor.lifecycle.orders import Start
from geminga_cli.supervisor.parts import Part
from geminga_cli.supervisor.plan import Plan, PortReservations
from geminga_cli.supervisor.process import Process
from geminga_cli.supervisor.settings import (
    NO_FILE,
    ZOOKEEPER,
    PartsFile,
    StandaloneSettings,
    parts_file,
    with_bookies_of_data,
)
from geminga_runtime.clock import SystemClock
from geminga_server.directories import DirectoryLock
from geminga_server.open_files import raise_limit

PAGES = HelpPages(
    "Start a whole cluster on this machine: ZooKeeper, a bookie and a broker, each a process of "
    "its own, and restart those that fail. Prints READY and the addresses when everything answers; "
    "endpoints.json in the data directory has the same addresses. The parts' own settings are "
    "those below [broker], [bookie] and [zookeeper] in the --config file, and their variables.",
    first=(
        *("data_directory", "broker_port", "web_port", "bind_address", "advertised_address"),
        *("num_bookies", "zookeeper", "sync", "quiet"),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code. Raises what ``geminga_cli.errors`` lists."""
    return run(*parse(arguments))


def run(settings: StandaloneSettings, file: PartsFile) -> int:
    """Run the cluster of these settings until it is told to stop; returns the exit code."""
    clock = SystemClock()
    # One supervisor for each data directory: the parts of two would destroy each other's files.
    # First of all: what follows reads and writes below the directory.
    locks = [DirectoryLock(settings.data_directory, clock)]
    settings = with_bookies_of_data(settings)
    if not settings.sync and not settings.log_json:
        print(no_sync_warning(), file=sys.stderr, flush=True)
    # Before ZooKeeper is fetched, which may take minutes: a port that is taken is said at once.
    reservations = PortReservations(settings)
    installation = None
    if not settings.zookeeper:
        # `geminga zookeeper` may run alone on this part of our directory: it locks only that.
        locks.append(DirectoryLock(settings.data_directory / ZOOKEEPER, clock))
        installation = provide_zookeeper()
    # The parts keep the locks: where the supervisor is killed, the data stays locked until all of
    # its parts have ended.
    inherited = [lock.descriptor for lock in locks]
    plan = Plan(settings, reservations.of, installation, file=file, inherited=inherited)
    # What a supervisor that was killed has left behind is no longer true.
    EndpointsFile(settings.data_directory).remove()
    raise_limit()  # of open files; before the parts are started, which inherit it
    # From here on processes run. Until ``supervise`` watches them, they end with this process
    # (``process``).
    fleet = Fleet([part.rules for part in plan.parts.values()])
    # The fleet decides here as it does later: only starts can be carried out without an event loop.
    orders = fleet.begin(clock.monotonic())
    processes = launch(plan.parts, [order.part for order in orders if isinstance(order, Start)])

    # Imported while they start: asyncio, uvloop and the control channel take 100 ms.
    from geminga_cli.supervisor.run import supervise  # noqa: PLC0415
    from geminga_cli.supervisor.supervisor import Launched  # noqa: PLC0415

    # Parts that need nothing are released when the loop runs.
    rest = [order for order in orders if not isinstance(order, Start)]
    supervise(plan, fleet, Launched(processes, rest))
    return 0


def launch(parts: Mapping[str, Part], names: Sequence[str]) -> dict[str, Process]:
    """Start the first processes of these parts.

    Raises ``StartFailed`` where one cannot be started; the others then die with this process.
    """
    processes: dict[str, Process] = {}
    for name in names:
        try:
            processes[name] = parts[name].launch()
        except OSError as error:
            raise StartFailed(name, str(error)) from error
    return processes


def parse(
    arguments: Sequence[str],
    kind: type[StandaloneSettings] = StandaloneSettings,
    pages: HelpPages = PAGES,
) -> tuple[StandaloneSettings, PartsFile]:
    """The settings, and what the parts get of the --config file.

    A wrong option ends the process, as argparse does. Raises ``ConfigError``.
    """
    # Stage 1: options alone, without what ``--help`` does not need.
    options = vars(make_parser(kind.section, kind, pages).parse_args(arguments))

    from geminga_server.config.loading import load_config  # noqa: PLC0415 - not for --help

    # Stage 2: the file and the environment.
    file: Path | None = options.pop("config")
    section = kind.section
    settings = load_config(kind, section, file=file, flags=options)
    parts = parts_file(file, section) if file else NO_FILE
    # Java reads no TOML, so this setting of ZooKeeper is read here.
    zookeeper = load_config(ZooKeeperPartSettings, ZOOKEEPER, file=file)
    return (
        # Absolute: parts, and tools that read the endpoints file, may have another working
        # directory.
        replace(settings, data_directory=settings.data_directory.absolute()),
        replace(parts, heap_max_mib=zookeeper.heap_max_mib),
    )
