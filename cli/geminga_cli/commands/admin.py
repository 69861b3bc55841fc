"""``geminga admin``: administers a cluster by a broker's REST, with ``pulsar-admin``'s words.

``geminga functions``, ``sources`` and ``sinks`` are its groups of these names.

Exit codes: 0 it was done, 1 the broker refused or does not answer, 2 the command line is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

from geminga_cli.admin.errors import (
    AdminRefused,
    BrokerUnreachable,
    InvalidUse,
    LocalRunFailed,
)
from geminga_cli.admin.operation import Operation
from geminga_cli.admin.options import add_service_options, service_of
from geminga_cli.display.text import show_json
from geminga_cli.output import print_lines

EXIT_REFUSED, EXIT_MISUSED = 1, 2

# Each is a module of ``geminga_cli.admin.groups``.
GROUPS: Mapping[str, str] = {
    "clusters": "the clusters that know each other",
    "tenants": "who may have namespaces, and where",
    "namespaces": "groups of topics, and the policies that hold for them",
    "topics": "topics, their subscriptions, messages and statistics",
    "subscriptions": "subscriptions alone, with shorter words",
    "schemas": "the schemas of topics",
    "brokers": "the brokers of this cluster, and their settings",
    "broker-stats": "the load of a broker",
    "functions": "functions, which process messages beside the cluster",
    "sources": "sources, which bring messages in from other systems",
    "sinks": "sinks, which take messages out to other systems",
    "functions-worker": "the workers that run functions, sources and sinks",
}
# These groups are commands of ``geminga`` too. ``geminga functions-worker`` is another command: it
# runs a worker.
COMMANDS = ("functions", "sources", "sinks")


def main(arguments: Sequence[str]) -> int:
    """Run the command that the words name; returns the exit code."""
    # Only the options of the connection and the group are read here (REMAINDER).
    parser = make_parser()
    options = parser.parse_args(arguments)
    group = options.group
    if group is None:
        print(parser.format_help(), end="")
        return EXIT_MISUSED
    # The module of this group alone is imported; the others would cost their import time for
    # nothing.
    operations = {each.word: each for each in operations_of(group)}
    # Options of the connection may also stand behind the group, as in `geminga functions
    # --admin-url URL list`. The values go into the same namespace.
    words = options.words
    if words and words[0].startswith("-"):
        words = _group_parser(group, operations).parse_args(words, options).words
    # From here on the words are those of one command.
    word, *rest = words or ["help"]
    if word == "help":
        print(_group_parser(group, operations).format_help(), end="")
        return 0
    if word not in operations:
        from difflib import get_close_matches  # noqa: PLC0415 - only where it is needed

        near = get_close_matches(word, operations)
        hint = f"; do you mean {' or '.join(near)}?" if near else ""
        print(
            f"geminga: admin {group} has no command {word!r}{hint}\n"
            f"geminga admin {group} --help lists those it has",
            file=sys.stderr,
        )
        return EXIT_MISUSED
    operation = operations[word]
    # A parser for the one command that was asked for: those of all commands of a group take 30 ms.
    command_parser = argparse.ArgumentParser(
        prog=f"geminga admin {group} {operation.word}",
        description=f"{operation.summary[0].upper()}{operation.summary[1:]}.",
        allow_abbrev=False,
    )
    for argument in operation.arguments:
        argument.add_to(command_parser)
    command_parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    given = command_parser.parse_args(rest)
    try:
        # Connections are closed before anything is printed: a reader that goes leaves none behind.
        with service_of(options) as service:
            answer = operation.does(service, given)
    except (AdminRefused, BrokerUnreachable, LocalRunFailed) as error:
        print(f"geminga: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except (InvalidUse, argparse.ArgumentTypeError) as error:
        print(f"geminga: {error}", file=sys.stderr)
        return EXIT_MISUSED
    # It may stand before the group or behind the command.
    is_json = given.json or options.json
    print_lines(show_json(answer) if is_json else operation.shows(answer))
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The parser of ``geminga admin``; it leaves the words behind the group unread."""
    width = max(map(len, GROUPS))
    lines = (f"  {name:{width}}  {about}" for name, about in GROUPS.items())
    parser = argparse.ArgumentParser(
        prog="geminga admin",
        usage="geminga admin [OPTION ...] GROUP COMMAND [ARGUMENT ...]",
        description="Administer a cluster by a broker's REST. Exit codes: 0 it was done, 1 the "
        "broker refused or does not answer, 2 the command line is wrong.",
        epilog="groups (geminga admin GROUP lists its commands):\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_service_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument("group", nargs="?", choices=GROUPS, help=argparse.SUPPRESS)
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _group_parser(group: str, operations: Mapping[str, Operation]) -> argparse.ArgumentParser:
    """The parser of one group; its help lists the commands of the group."""
    prog = f"geminga {group}" if group in COMMANDS else f"geminga admin {group}"
    width = max(map(len, operations))
    lines = (f"  {word:{width}}  {each.summary}" for word, each in operations.items())
    parser = argparse.ArgumentParser(
        prog=prog,
        usage=f"{prog} COMMAND [ARGUMENT ...]      (COMMAND --help lists its arguments)",
        description="\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_service_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def operations_of(group: str) -> Sequence[Operation]:
    """The commands of a group, whose module is imported now."""
    module = import_module(f"geminga_cli.admin.groups.{group.replace('-', '_')}")
    operations: Sequence[Operation] = module.OPERATIONS
    return operations
