"""``geminga produce``: sends messages to a topic, with ``pulsar-client produce``'s words."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from geminga_cli.messaging.options import as_admin, command_parser, one_of, positive, rate


def main(arguments: Sequence[str]) -> int:
    """Send the messages; returns the exit code."""
    given = make_parser().parse_args(arguments)
    from geminga_cli.messaging.produce import run  # noqa: PLC0415 - loads the client

    return run(given)


def make_parser() -> argparse.ArgumentParser:
    """The options of ``geminga produce``."""
    parser = command_parser("produce", "Send messages to a topic.")
    add = parser.add_argument
    add("topic", metavar="TOPIC", help="the topic's name")
    # -m and -f may both be given: the texts are sent first, then the files.
    add(
        *("-m", "--messages"),
        action="append",
        default=[],
        metavar="TEXT",
        help="messages, separated by -s; may be given several times",
    )
    add(
        *("-f", "--files"),
        action="append",
        type=as_admin("words"),
        default=[],
        metavar="FILE[,FILE...]",
        help="files, each of which becomes a message",
    )
    # An empty separator sends each -m as one message.
    add("-s", "--separator", default=",", help="what separates messages of -m (default: a comma)")
    add(
        "-n",
        "--num-produce",
        type=positive,
        default=1,
        help="how many times to send all of them (1)",
    )
    # The rate counts messages of all rounds together.
    add("-r", "--rate", type=rate, default=0.0, help="messages a second; 0: as fast as possible")
    add("-k", "--key", help="the key of each message")
    add(
        *("-p", "--properties"),
        type=as_admin("pairs"),
        default={},
        metavar="K1=V1,K2=V2",
        help="the properties of each message",
    )
    # Batches and chunks exclude each other: the client then sends each message alone.
    add("-c", "--chunking", action="store_true", help="send messages that are too large in chunks")
    add("-db", "--disable-batching", action="store_true", help="send each message alone")
    add(
        *("-dr", "--disable-replication"),
        action="store_true",
        help="do not replicate the messages to other clusters",
    )
    add("-ekn", "--encryption-key-name", metavar="NAME", help="encrypt with the key of this name")
    add(
        # Public keys may be on the command line: they decrypt nothing.
        *("-ekv", "--encryption-key-value"),
        metavar="URI",
        help="the public key: file:///PATH or data:application/x-pem-file;base64,TEXT",
    )
    _add_schema_options(parser)
    return parser


def _add_schema_options(parser: argparse.ArgumentParser) -> None:
    # Without these options messages are bytes without a schema.
    schemas = parser.add_argument_group(
        "schemas",
        "bytes, string, json:DEFINITION or avro:DEFINITION; values of the last two "
        "are written as JSON",
    )
    schemas.add_argument("-vs", "--value-schema", default="bytes", help="of values (bytes)")
    schemas.add_argument("-ks", "--key-schema", default="string", help="of a pair's key (string)")
    schemas.add_argument(
        *("-kvet", "--key-value-encoding-type"),
        type=one_of("none", "inline", "separated"),
        default="none",
        metavar="inline|separated",
        help="send pairs of key and value, with the key in the payload or as the message's key",
    )
    schemas.add_argument("-kvk", "--key-value-key", metavar="TEXT", help="the key of pairs")
    schemas.add_argument(
        "-kvkf", "--key-value-key-file", metavar="FILE", help="a file that has the key of pairs"
    )
