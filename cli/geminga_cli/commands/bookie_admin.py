"""``geminga bookie-admin``: inspects bookies, ledgers and files; sends commands to bookies.

Exit codes: 0 all is well, 1 something is wrong with what was inspected, 2 it could not be done.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from geminga_cli.output import drop_output

EXIT_CANNOT = 2
# Modules are named in ``SUB_COMMANDS`` and loaded when their word is given.
_PACKAGE = "geminga_cli.bookie_admin"

PORT_MAX = 65_535
# A name, an IPv4 address, or an IPv6 address in brackets; then the port.
_HOST_PORT = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", re.ASCII)


def host_port(words: str) -> str:
    """``HOST:PORT`` as it was given. Raises ``ArgumentTypeError`` for anything else."""
    match = _HOST_PORT.fullmatch(words)
    if match is None or not 0 < int(match[1]) <= PORT_MAX:
        raise argparse.ArgumentTypeError(f"{words!r} is not HOST:PORT, like 127.0.0.1:2181")
    return words


def http_address(words: str) -> str:
    """``HOST:PORT``, which may be given as a URL without a path."""
    # People copy the address out of a browser, or out of a bookie's log.
    return host_port(words.removeprefix("http://").rstrip("/"))


def zookeeper_hosts(words: str) -> str:
    """``HOST:PORT[,HOST:PORT...][/CHROOT]`` as it was given."""
    # The chroot is checked by ZooKeeper: it may have any name that a node may have.
    for each in words.partition("/")[0].split(","):
        host_port(each)
    return words


def _ledger_id(words: str) -> int:
    return _number(words, "ledger id")


def _entry_id(words: str) -> int:
    return _number(words, "entry id")


def _number(words: str, what: str) -> int:
    from geminga_protocol.records.ledgers.ledger_metadata import (  # noqa: PLC0415 - not for --help
        LEDGER_ID_MAX,
    )

    if not words.isascii() or not words.isdigit() or int(words) > LEDGER_ID_MAX:
        raise argparse.ArgumentTypeError(f"{words} is no {what}: a number, 0 or more")
    return int(words)


@dataclass(frozen=True, slots=True)
class Option:
    """An argument of a sub-command: what argparse's ``add_argument`` takes."""

    names: tuple[str, ...]
    how: Mapping[str, Any]


def option(*names: str, **how: Any) -> Option:  # noqa: ANN401 - as argparse has it
    """An argument of these names."""
    return Option(names, how)


LEDGER = option("ledger", type=_ledger_id, metavar="LEDGER", help="the ledger's id")
BOOKIE = option("bookie", metavar="BOOKIE", help="the bookie's id, as list-bookies shows it")
FILES = (
    option("files", nargs="+", type=Path, metavar="FILE"),
    option("--ledger", type=_ledger_id, metavar="LEDGER", help="only what concerns this ledger"),
)
HTTP = option(
    "--http",
    type=http_address,
    metavar="HOST:PORT",
    help="where the bookie's HTTP is (default: as the bookie is registered)",
)
# Where ZooKeeper is: at most one of the two may be given.
CLUSTER = (
    option(
        "--zookeeper",
        type=zookeeper_hosts,
        metavar="HOST:PORT",
        help="the cluster's ZooKeeper; HOST:PORT/path where the cluster is below a path",
    ),
    option(
        "--data-dir",
        type=Path,
        default=Path("data"),
        metavar="DATA",
        help="the data directory of a running standalone, for its ZooKeeper (default: ./data)",
    ),
)


# A table of words instead of code for each: adding a word is one row, and --help shows the rows.
@dataclass(frozen=True, slots=True)
class SubCommand:
    """One word behind ``geminga bookie-admin``."""

    # ``module:function`` below ``geminga_cli.bookie_admin``.
    does: str
    summary: str
    options: tuple[Option, ...] = ()
    # The function is a coroutine, whose first argument is the open cluster.
    is_on_cluster: bool = True
    # The options of ``CLUSTER`` are added.
    has_cluster_options: bool = True


def main(arguments: Sequence[str]) -> int:
    """Run the sub-command; returns the exit code."""
    options = make_parser().parse_args(arguments)
    command = SUB_COMMANDS[options.command]
    module, _, name = command.does.partition(":")
    # Only now: --help must not load the ledger client, and what reads files needs no client at all.
    work = getattr(import_module(f"{_PACKAGE}.{module}"), name)
    try:
        if command.is_on_cluster:
            from geminga_cli.bookie_admin.cluster import run  # noqa: PLC0415 - not for --help

            return run(work, options)
        # A command that is not on a cluster is a plain function: it opens files, or makes one HTTP
        # request.
        code: int = work(options)
        # Buffered lines meet the closed pipe only here.
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has gone
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
        description="Inspect bookies, ledgers and files of bookies, and send commands to bookies. "
        "Exit codes: 0 all is well, 1 something is wrong, 2 it could not be done.",
        allow_abbrev=False,
    )
    added = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in SUB_COMMANDS.items():
        sub = added.add_parser(
            name, help=command.summary, description=command.summary, allow_abbrev=False
        )
        for each in command.options:
            sub.add_argument(*each.names, **each.how)
        # Every command of a cluster finds it in the same way.
        if command.has_cluster_options:
            which = sub.add_mutually_exclusive_group()
            for each in CLUSTER:
                which.add_argument(*each.names, **each.how)
        sub.add_argument("--json", action="store_true", help="print JSON, for programs")
    return parser


SUB_COMMANDS = {
    # The order is that of --help: looking, then repairing, then orders to one bookie.
    "list-bookies": SubCommand(
        "lists:list_bookies", "the registered bookies, their addresses and free space"
    ),
    "list-ledgers": SubCommand(
        "lists:list_ledgers",
        "the ledgers of the cluster",
        (
            option("--bookie", default="", metavar="ID", help="only ledgers on this bookie"),
            option("--metadata", action="store_true", help="with state, sizes and bookies"),
        ),
    ),
    "ledger-metadata": SubCommand(
        "lists:ledger_metadata", "a ledger's record in ZooKeeper", (LEDGER,)
    ),
    "read-ledger": SubCommand(
        "read_ledger:read_ledger",
        "print entries of a ledger",
        (
            LEDGER,
            option(
                "--first",
                type=_entry_id,
                default=0,
                metavar="ENTRY",
                help="begin there (default: 0)",
            ),
            option(
                "--last",
                type=_entry_id,
                metavar="ENTRY",
                help="end there (default: the last entry)",
            ),
            option("--bookie", default="", metavar="ID", help="read this bookie's copies only"),
            option(
                "--format", choices=("hex", "text", "length"), default="hex", help="default: hex"
            ),
        ),
    ),
    "verify-ledger": SubCommand(
        "verification:verify_ledger", "read every copy of every entry of a ledger", (LEDGER,)
    ),
    # Of files alone: they work on a machine where nothing runs, and on copies.
    "dump-journal": SubCommand(
        "files.journal:dump_journals",
        "the content of journal files",
        FILES,
        is_on_cluster=False,
        has_cluster_options=False,
    ),
    "dump-entry-log": SubCommand(
        "files.entry_log:dump_entry_logs",
        "the content of entry logs",
        FILES,
        is_on_cluster=False,
        has_cluster_options=False,
    ),
    "dump-index": SubCommand(
        "files.index:dump_index",
        "the content of a bookie's index",
        (
            option(
                "--data-directory",
                type=Path,
                required=True,
                metavar="DIRECTORY",
                help="the bookie's (DATA/bookie of a standalone)",
            ),
            option(
                "--ledger", type=_ledger_id, metavar="LEDGER", help="this ledger, with its blocks"
            ),
        ),
        is_on_cluster=False,
        has_cluster_options=False,
    ),
    "list-under-replicated": SubCommand(
        "lists:list_under_replicated", "the ledgers that are marked as under-replicated"
    ),
    "who-is-auditor": SubCommand("lists:who_is_auditor", "the bookie that looks for lost copies"),
    "cookie": SubCommand(
        "cookies:show_cookies",
        "all bookies that ever were here, and their directories; or the VERSION file of one",
        (
            option(
                "bookie",
                nargs="?",
                default="",
                metavar="BOOKIE",
                help="show this bookie's cookie, as in its VERSION file",
            ),
        ),
    ),
    "restore-cookie": SubCommand(
        "cookie_changes:restore_cookie",
        "write the VERSION file that a bookie's directory lost, as ZooKeeper has it",
        (
            BOOKIE,
            option(
                "--directory",
                type=Path,
                required=True,
                action="append",
                metavar="DIRECTORY",
                help="a journal or ledger directory of it without VERSION; may be given again",
            ),
        ),
    ),
    # With its cookie a bookie loses its name: an empty one may take it.
    "delete-cookie": SubCommand(
        "cookie_changes:delete_cookie",
        "forget a bookie that is gone for good, once no ledger is on it",
        (
            BOOKIE,
            option("--yes", action="store_true", help="do it, although it cannot be undone"),
        ),
    ),
    "recover": SubCommand(
        "recovery:recover_bookie",
        "move all ledgers off a dead bookie, now",
        (BOOKIE, option("--force", action="store_true", help="even if the bookie runs")),
    ),
    "decommission": SubCommand(
        "recovery:decommission_bookie",
        "let others move all ledgers off a stopped bookie, then forget it",
        (BOOKIE,),
    ),
    # Orders go to the bookie's HTTP (``geminga_bookie.admin``); ZooKeeper only tells where that is.
    "force-gc": SubCommand(
        "orders:force_gc", "let a bookie collect garbage now", (BOOKIE, HTTP), is_on_cluster=False
    ),
    "set-readonly": SubCommand(
        "orders:set_read_only",
        "let a bookie accept no more entries",
        (BOOKIE, HTTP),
        is_on_cluster=False,
    ),
    "set-writable": SubCommand(
        "orders:set_writable",
        "let a bookie accept entries again",
        (BOOKIE, HTTP),
        is_on_cluster=False,
    ),
}
