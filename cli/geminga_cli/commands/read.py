"""``geminga read``: shows a topic's messages, with ``pulsar-client read``'s words."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from geminga_cli.messaging.options import add_receiving_options, command_parser, refuse

_LEDGER_ENTRY = re.compile(r"([0-9]+):([0-9]+)")


def main(arguments: Sequence[str]) -> int:
    """Show the messages; returns the exit code."""
    given = make_parser().parse_args(arguments)
    from geminga_cli.messaging.consume import read, run  # noqa: PLC0415 - loads the client

    return run(given, read)


def make_parser() -> argparse.ArgumentParser:
    """The options of ``geminga read``."""
    parser = command_parser("read", "Show the messages of a topic, without a subscription.")
    add = parser.add_argument
    add("topic", metavar="TOPIC", help="the topic's name")
    add(
        *("-m", "--start-message-id"),
        type=_position,
        default="latest",
        metavar="POSITION",
        help="where to begin: latest (default), earliest or LEDGER:ENTRY",
    )
    add(
        *("-i", "--start-message-id-inclusive"),
        action="store_true",
        help="begin with the message at that position instead of the next one",
    )
    add_receiving_options(parser)
    # ``consume`` has an option for it; the code that shows messages is the same.
    parser.set_defaults(end_timestamp=0)
    refuse(
        parser,
        "a reader acknowledges nothing, and drops the oldest chunks when there are too many",
        *("-ac", "--auto_ack_chunk_q_full"),
    )
    return parser


def _position(text: str) -> str | tuple[int, int]:
    if text in ("latest", "earliest"):
        return text
    found = _LEDGER_ENTRY.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} should be latest, earliest or LEDGER:ENTRY, as 12:3"
        )
    return int(found[1]), int(found[2])
