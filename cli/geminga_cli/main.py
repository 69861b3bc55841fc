"""Finds the command that was asked for and runs it. Nothing else is imported before.

A table and argparse instead of a command-line framework: the supervisor goes through here at
every start and stays in memory, and typer costs 80 ms and 6 MB where argparse costs 2 ms and 1 MB.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version

from geminga_runtime.errors import GemingaError

# The command cannot be run like this; the message says why. ``ExitCode.REFUSED`` of the parts is
# the same number.
EXIT_REFUSED = 2
# What a shell reports of a program that SIGINT ended: 128 and the number of the signal.
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    # The module whose ``main(arguments)`` runs the command and returns the exit code.
    module: str
    summary: str
    # Arguments that ``main`` gets before those of the command line.
    words: tuple[str, ...] = ()


COMMANDS = {
    "standalone": Command(
        "geminga_cli.commands.standalone",
        "start a whole cluster on this machine: ZooKeeper, bookie, broker",
    ),
    "cluster": Command(
        "geminga_cli.commands.cluster",
        "start a cluster of several brokers on this machine; kill, pause, add its parts",
    ),
    "test-server": Command(
        "geminga_cli.commands.test_server",
        "start a throw-away cluster on free ports, for the tests of any language",
    ),
    "simulate": Command(
        "geminga_cli.commands.simulate",
        "run a scenario of yours on a simulated cluster, with faults, from seeds",
    ),
    "broker": Command("geminga_cli.commands.parts.broker", "run a broker"),
    "bookie": Command("geminga_cli.commands.parts.bookie", "run a bookie"),
    "proxy": Command("geminga_cli.commands.parts.proxy", "run a proxy: the gateway to a cluster"),
    "functions-worker": Command(
        "geminga_cli.commands.parts.functions_worker",
        "run a functions worker: functions, sources and sinks",
    ),
    "autorecovery": Command(
        "geminga_cli.commands.parts.autorecovery",
        "run auto-recovery alone: it replaces copies that were on lost bookies",
    ),
    "zookeeper": Command("geminga_cli.commands.parts.zookeeper", "run a ZooKeeper server"),
    "initialize-cluster-metadata": Command(
        "geminga_cli.commands.initialize_cluster_metadata",
        "write a new cluster's first records into a ZooKeeper",
    ),
    "bookie-admin": Command(
        "geminga_cli.commands.bookie_admin",
        "inspect bookies, ledgers and files of bookies; send commands to bookies",
    ),
    "produce": Command("geminga_cli.commands.produce", "send messages to a topic"),
    "consume": Command(
        "geminga_cli.commands.consume", "show and acknowledge the messages of a subscription"
    ),
    "read": Command("geminga_cli.commands.read", "show the messages of a topic"),
    "perf": Command("geminga_cli.commands.perf", "measure how fast a cluster is"),
    "admin": Command(
        "geminga_cli.commands.admin", "administer tenants, namespaces, topics and their policies"
    ),
    **{
        group: Command("geminga_cli.commands.admin", f"create, update and watch {group}", (group,))
        for group in ("functions", "sources", "sinks")
    },
    "status": Command(
        "geminga_cli.commands.status", "show what a cluster consists of, and whether it is healthy"
    ),
    "health": Command(
        "geminga_cli.commands.health", "ask a part on this machine whether it is healthy"
    ),
    "setup": Command("geminga_cli.commands.setup", "fetch what the embedded ZooKeeper needs, once"),
}

# The commands whose help has subjects: `geminga help broker SUBJECT`.
PARTS = ("broker", "bookie", "proxy", "functions-worker", "autorecovery")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command named first; returns the exit code."""
    # Stage 1: what needs no command.
    words = list(sys.argv[1:] if arguments is None else arguments)
    # Without words: the usage, and no error. It is what a new user types first.
    name = words[0] if words else "--help"
    if name == "help" and len(words) > 1:
        _, name, *rest = words
        words = [name, *help_words(name, rest)]
    elif name in ("--help", "-h", "help"):
        print(usage(), end="")
        return 0
    if name in ("--version", "version"):
        print(f"geminga {version('geminga')}")
        return 0
    # Stage 2: the command. Its module is imported in ``run`` and not before, so that a mistake in
    # the name costs nothing.
    command = COMMANDS.get(name)
    if command is None:
        wrong = f"there is no command {name!r}"
        if name.startswith("-"):
            # pulsar-client takes --url and similar options in front of the command.
            wrong = f"the command comes first, options such as {name} stand behind it"
        print(f"geminga: {wrong}\n\n{usage()}", end="", file=sys.stderr)
        return EXIT_REFUSED
    return run(command, words[1:])


def help_words(name: str, rest: Sequence[str]) -> list[str]:
    """The arguments with which the command ``name`` prints its help, or a part of it."""
    # The help of a part's settings is long; SUBJECT picks one section of it.
    if rest and name in PARTS:
        return ["--help-all", *rest]
    return [*rest, "--help"]


def run(command: Command, arguments: Sequence[str]) -> int:
    """Run the command; an error of ours becomes one line on standard error."""
    try:
        # Imported only now, with everything that it needs.
        return int(import_module(command.module).main([*command.words, *arguments]))
    except GemingaError as error:
        print(f"geminga: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except ModuleNotFoundError as error:
        # The bare client library includes the command line, but not the packages that only servers
        # need. Where a module of our own is missing, the installation is broken.
        if error.name is None or error.name.startswith("geminga"):
            raise
        print(
            f"geminga: this command runs servers, and {error.name} is not installed: "
            "pip install 'geminga[standalone]' brings all that they need",
            file=sys.stderr,
        )
        return EXIT_REFUSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def usage() -> str:
    """All commands, one line each."""
    width = max(map(len, COMMANDS))
    lines = (f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items())
    return (
        "usage: geminga COMMAND [OPTIONS]      (geminga help COMMAND lists its options)\n\n"
        + "\n".join(lines)
        + f"\n  {'version':{width}}  show the version\n"
    )
