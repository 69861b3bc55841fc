"""``geminga bookie-admin``: looks into bookies, ledgers and files; gives bookies orders.

Exit codes: 0 all is well, 1 something is wrong with what was looked at, 2 it could not be done.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from geminga_cli.output import drop_output

EXIT_CANNOT = 2
_PACKAGE = "geminga_cli.bookie_admin"

PORT_MAX = 65_535
# A name, an IPv4 address, or an IPv6 address in brackets; then the port.
_HOST_PORT = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", re.ASCII)

Add = Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True, slots=True)
class SubCommand:
    """One word: ``module:function`` that does it, what it is for, which options it adds.

    With ``is_on_cluster`` the function is a coroutine that gets the cluster first.
    """

    does: str
    summary: str
    add: Add = lambda _: None
    is_on_cluster: bool = True
    has_cluster_options: bool = True


def main(arguments: Sequence[str]) -> int:
    """Do what the options say; returns the exit code."""
    options = make_parser().parse_args(arguments)
    command = SUB_COMMANDS[options.command]
    module, _, name = command.does.partition(":")
    work = getattr(import_module(f"{_PACKAGE}.{module}"), name)
    try:
        if command.is_on_cluster:
            from geminga_cli.bookie_admin.cluster import run  # noqa: PLC0415 - not for --help

            return run(work, options)
        code: int = work(options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has seen enough
        drop_output()
        return 0
    except OSError as error:
        print(f"geminga: {error}", file=sys.stderr)
        return EXIT_CANNOT
    return code


def make_parser() -> argparse.ArgumentParser:
    """All sub-commands with their options."""
    parser = argparse.ArgumentParser(
        prog="geminga bookie-admin",
        description="Look into bookies and ledgers, and give bookies orders. Exit codes: 0 all is "
        "well, 1 something is wrong, 2 it could not be done.",
        allow_abbrev=False,
    )
    added = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in SUB_COMMANDS.items():
        sub = added.add_parser(
            name, help=command.summary, description=command.summary, allow_abbrev=False
        )
        command.add(sub)
        if command.has_cluster_options:
            _add_cluster(sub)
        sub.add_argument("--json", action="store_true", help="for programs")
    return parser


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--zookeeper",
        type=zookeeper_hosts,
        metavar="HOST:PORT",
        help="the cluster's ZooKeeper; HOST:PORT/path where it keeps to a path",
    )
    which.add_argument(
        "--data-dir",
        type=Path,
        default=Path("data"),
        metavar="DATA",
        help="that of a running standalone, whose ZooKeeper is then used (default: ./data)",
    )


def _add_ledger(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ledger", type=_ledger_id, metavar="LEDGER", help="the ledger's id")


def _add_bookie(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bookie", metavar="BOOKIE", help="the bookie's id, as list-bookies says")


def _add_cookie(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "bookie", nargs="?", default="", metavar="BOOKIE", help="only this one's, as in its VERSION"
    )


def _add_restored(parser: argparse.ArgumentParser) -> None:
    _add_bookie(parser)
    parser.add_argument(
        "--directory",
        type=Path,
        required=True,
        action="append",
        metavar="DIRECTORY",
        help="a journal or ledger directory of it that has no VERSION; may be given again",
    )


def _add_forgotten(parser: argparse.ArgumentParser) -> None:
    _add_bookie(parser)
    parser.add_argument("--yes", action="store_true", help="it cannot be taken back: do it")


def _add_recovered(parser: argparse.ArgumentParser) -> None:
    _add_bookie(parser)
    parser.add_argument("--force", action="store_true", help="even if the bookie runs")


def _add_ordered(parser: argparse.ArgumentParser) -> None:
    _add_bookie(parser)
    parser.add_argument(
        "--http",
        type=http_address,
        metavar="HOST:PORT",
        help="where its HTTP is (default: as it is registered)",
    )


def _add_listing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bookie", default="", metavar="ID", help="only those on this bookie")
    parser.add_argument("--metadata", action="store_true", help="with state, sizes and bookies")


def _add_reading(parser: argparse.ArgumentParser) -> None:
    _add_ledger(parser)
    add = parser.add_argument
    add("--first", type=_entry_id, default=0, metavar="ENTRY", help="begin there (default: 0)")
    add("--last", type=_entry_id, metavar="ENTRY", help="end there (default: with the last one)")
    add("--bookie", default="", metavar="ID", help="read this bookie's copies only")
    add("--format", choices=("hex", "text", "length"), default="hex", help="default: hex")


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--ledger", type=_ledger_id, metavar="LEDGER", help="only this one's")


def _add_index(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-directory",
        type=Path,
        required=True,
        metavar="DIRECTORY",
        help="the bookie's (DATA/bookie of a standalone)",
    )
    parser.add_argument("--ledger", type=_ledger_id, metavar="LEDGER", help="its blocks too")


def _ledger_id(words: str) -> int:
    return _number(words, "ledger id")


def _entry_id(words: str) -> int:
    return _number(words, "entry id")


def _number(words: str, what: str) -> int:
    from geminga_protocol.records.ledger_metadata import LEDGER_ID_MAX  # noqa: PLC0415 - not for --help

    if not words.isascii() or not words.isdigit() or int(words) > LEDGER_ID_MAX:
        raise argparse.ArgumentTypeError(f"{words} is no {what}: a number, 0 or more")
    return int(words)


def host_port(words: str) -> str:
    """``HOST:PORT`` as it was given. Raises ``ArgumentTypeError``."""
    match = _HOST_PORT.fullmatch(words)
    if match is None or not 0 < int(match[1]) <= PORT_MAX:
        raise argparse.ArgumentTypeError(f"{words!r} is not HOST:PORT, like 127.0.0.1:2181")
    return words


def http_address(words: str) -> str:
    """``HOST:PORT``, also of a URL without a path."""
    return host_port(words.removeprefix("http://").rstrip("/"))


def zookeeper_hosts(words: str) -> str:
    """``HOST:PORT[,HOST:PORT...][/CHROOT]`` as it was given."""
    for each in words.partition("/")[0].split(","):
        host_port(each)
    return words


SUB_COMMANDS = {
    "list-bookies": SubCommand(
        "listing:list_bookies", "the registered bookies, their addresses and room"
    ),
    "list-ledgers": SubCommand("listing:list_ledgers", "the ledgers of the cluster", _add_listing),
    "ledger-metadata": SubCommand(
        "listing:ledger_metadata", "what ZooKeeper says of a ledger", _add_ledger
    ),
    "read-ledger": SubCommand("reading:read_ledger", "print entries of a ledger", _add_reading),
    "verify-ledger": SubCommand(
        "verification:verify_ledger", "read every copy of every entry of a ledger", _add_ledger
    ),
    "dump-journal": SubCommand(
        "files.journal:dump_journals",
        "what is in journal files",
        _add_files,
        is_on_cluster=False,
        has_cluster_options=False,
    ),
    "dump-entry-log": SubCommand(
        "files.entry_log:dump_entry_logs",
        "what is in entry logs",
        _add_files,
        is_on_cluster=False,
        has_cluster_options=False,
    ),
    "dump-index": SubCommand(
        "files.index:dump_index",
        "what a bookie's index knows",
        _add_index,
        is_on_cluster=False,
        has_cluster_options=False,
    ),
    "list-under-replicated": SubCommand(
        "listing:list_under_replicated", "the ledgers that are marked to lack copies"
    ),
    "who-is-auditor": SubCommand("listing:who_is_auditor", "the bookie that looks for lost copies"),
    "cookie": SubCommand(
        "cookies:show_cookies",
        "all bookies that ever were here, and their directories; or the VERSION file of one",
        _add_cookie,
    ),
    "restore-cookie": SubCommand(
        "cookie_changes:restore_cookie",
        "write the VERSION file that a bookie's directory lost, as ZooKeeper has it",
        _add_restored,
    ),
    "delete-cookie": SubCommand(
        "cookie_changes:delete_cookie",
        "forget a bookie that is gone for good, once no ledger is on it",
        _add_forgotten,
    ),
    "recover": SubCommand(
        "recovery:recover_bookie", "move all ledgers off a dead bookie, now", _add_recovered
    ),
    "decommission": SubCommand(
        "recovery:decommission_bookie",
        "have all ledgers moved off a stopped bookie, and forget it",
        _add_bookie,
    ),
    "force-gc": SubCommand(
        "orders:force_gc", "have a bookie collect garbage now", _add_ordered, is_on_cluster=False
    ),
    "set-readonly": SubCommand(
        "orders:set_read_only",
        "have a bookie take no more entries",
        _add_ordered,
        is_on_cluster=False,
    ),
    "set-writable": SubCommand(
        "orders:set_writable",
        "have a bookie take entries again",
        _add_ordered,
        is_on_cluster=False,
    ),
}
