"""``geminga cluster``: a cluster of several brokers on this machine, and operations on its parts.

``up`` runs it under a supervisor, as ``geminga standalone`` does. The other words are for
operators, and for people who test what a cluster withstands: they ask that supervisor through the
socket in the data directory. They work for a standalone, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geminga_cli.commands import standalone
from geminga_cli.commands.parts.settings_help import HelpPages
from geminga_cli.display.text import show_json, table
from geminga_cli.errors import CannotObey
from geminga_cli.output import print_lines
from geminga_cli.supervisor.process import log_tail
from geminga_cli.supervisor.settings import ClusterSettings

if TYPE_CHECKING:
    from geminga_cli.supervisor.operators import Operator

EXIT_UNHEALTHY = 1
# ``Phase.READY`` of the supervisor, as it is written in a part's status.
READY = "ready"
# About a screen of log lines.
LINES_DEFAULT = 40

PAGES = HelpPages(
    "Start a cluster of several brokers on this machine: ZooKeeper, bookies, brokers and a proxy, "
    "each a process of its own, and restart those that fail. Prints READY and the addresses of the "
    "proxy when everything answers; endpoints.json in the data directory has all addresses. Each "
    "part's log is a file in DATA/logs. The parts' own settings are those below [broker], [proxy], "
    "[bookie], [functions-worker] and [zookeeper] in the --config file, and their variables.",
    first=(
        *("data_directory", "num_brokers", "num_bookies", "num_proxies", "num_functions_workers"),
        *("broker_port", "web_port", "bind_address", "advertised_address", "zookeeper", "sync"),
        *("geo", "shared_configuration", "quiet"),
    ),
    command="cluster up",
)


def main(arguments: Sequence[str]) -> int:
    """Run the command that the first word names; returns the exit code."""
    # Its options are settings, which argparse's sub-parsers know nothing of.
    if arguments[:1] == ["up"]:
        settings, file = standalone.parse(arguments[1:], ClusterSettings, PAGES)
        assert isinstance(settings, ClusterSettings)
        if settings.geo:
            from geminga_cli.supervisor import geo  # noqa: PLC0415 - not for --help

            # The words as they were given: each cluster parses them again and makes its own
            # settings of them.
            return geo.run(settings, arguments[1:])
        return standalone.run(settings, file)
    # Every other word asks a supervisor that runs already.
    options = make_parser().parse_args(arguments)

    import asyncio  # noqa: PLC0415 - not for --help

    from geminga_cli.supervisor.operators import Operator  # noqa: PLC0415 - the same
    from geminga_runtime.clock import SystemClock  # noqa: PLC0415

    return asyncio.run(_obey(options, Operator(options.data_dir, SystemClock())))


def make_parser() -> argparse.ArgumentParser:
    """All words with their options; ``up`` has its own parser (``standalone.parse``)."""
    parser = argparse.ArgumentParser(
        prog="geminga cluster",
        description="A cluster of several brokers on this machine, and operations on its parts. "
        "All words but `up` ask the supervisor that runs on the data directory; it may be one that "
        "`geminga standalone` started.",
        allow_abbrev=False,
    )
    words = parser.add_subparsers(dest="word", metavar="WORD", required=True)
    words.add_parser("up", help="start the cluster (geminga cluster up --help)", add_help=False)

    def add(word: str, text: str, *, part: str = "PART") -> argparse.ArgumentParser:
        description = f"{text[0].upper()}{text[1:]}."
        sub = words.add_parser(word, help=text, description=description, allow_abbrev=False)
        sub.add_argument(
            *("--data-dir", "--data-directory"),
            dest="data_dir",
            type=Path,
            default=Path("data"),
            metavar="PATH",
            help="the data directory of the cluster (default: data)",
        )
        if part:
            sub.add_argument("part", metavar=part, help="such as broker-2: `status` lists them")
        return sub

    # Exit codes as of a health check, so that scripts can wait for the cluster.
    status = add("status", "show all parts; exit code 0 if all are ready, else 1", part="")
    status.add_argument("--json", action="store_true", help="print JSON, for programs")
    logs = add("logs", "show the end of a part's log")
    logs.add_argument("--lines", type=int, default=LINES_DEFAULT, metavar="NUMBER")
    # SIGKILL, as the kernel ends a process that takes too much memory: nothing is closed, and
    # nothing that is only in its memory is written.
    kill = add("kill", "end a part as a crash does; the supervisor starts it again")
    kill.add_argument(
        "--keep-down", action="store_true", help="do not start it again until `resume`"
    )
    # A paused part answers nothing, and its connections stay open: as a machine that hangs.
    add("pause", "stop a part with SIGSTOP until `resume`")
    add("resume", "continue a paused part, or start one that was kept down")
    added = add(
        "add",
        "start one more broker, bookie, proxy or functions worker; wait until it is ready",
        part="KIND",
    )
    added.add_argument("--json", action="store_true", help="print JSON, for programs")
    # The supervisor is asked and does it; this command only waits for its end.
    add("down", "stop the whole cluster in order, and wait until it has ended", part="")
    return parser


async def _obey(options: argparse.Namespace, operator: Operator) -> int:
    """Send the word to the supervisor and print its answer; returns the exit code."""
    match options.word:
        case "status":
            status = await operator.status()
            _show(status.values(), status, options)
            # A part that is kept down, or paused, is not ready either.
            is_ready = all(each["state"] == READY for each in status.values())
            return 0 if is_ready else EXIT_UNHEALTHY
        case "logs":
            status, part = await operator.status(), options.part
            if part not in status:
                raise CannotObey(f"there is no part {part!r}; there are {', '.join(status)}")
            if not status[part]["log"]:
                raise CannotObey(f"the log of {part} goes where that of its supervisor goes")
            print_lines(log_tail(Path(status[part]["log"]), options.lines))
        case "kill":
            await operator.kill(options.part, keep_down=options.keep_down)
        case "pause":
            await operator.pause(options.part)
        case "resume":
            await operator.resume(options.part)
        case "add":
            added = await operator.add(options.part)
            _show([added], added, options)
        # "down": argparse has refused any other word.
        case _:
            await operator.stop()
    return 0


def _show(parts: Iterable[Mapping[str, Any]], record: object, options: argparse.Namespace) -> None:
    print_lines(show_json(record) if options.json else show_parts(parts))


def show_parts(parts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The parts as a table, one line each."""
    rows = [
        (
            *(each["part"], each["state"], each["pid"], each["restarts"]),
            " ".join(each["addresses"].values()),
        )
        for each in parts
    ]
    return table(("part", "state", "pid", "restarts", "addresses"), rows)
