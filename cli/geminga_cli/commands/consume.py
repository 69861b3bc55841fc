"""``geminga consume``: shows a subscription's messages, with ``pulsar-client consume``'s words."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from geminga_cli.messaging.options import (
    add_receiving_options,
    add_subscription_options,
    command_parser,
    count,
    one_of,
    refuse,
)


def main(arguments: Sequence[str]) -> int:
    """Show the messages; returns the exit code."""
    given = make_parser().parse_args(arguments)
    from geminga_cli.messaging.consume import consume, run  # noqa: PLC0415 - loads the client

    return run(given, consume)


def make_parser() -> argparse.ArgumentParser:
    """The options of ``geminga consume``."""
    parser = command_parser("consume", "Show and acknowledge the messages of a subscription.")
    add = parser.add_argument
    add("topic", metavar="TOPIC", help="the topic's name; with --regex a pattern of names")
    add("-s", "--subscription-name", required=True, metavar="NAME", help="the subscription")
    # The type and the position hold for a subscription that is created now. One that exists keeps
    # its position, and refuses another type while it has consumers.
    add_subscription_options(parser, kind="-t", position="-p", begins="a new subscription begins")
    add(
        *("-m", "--subscription-mode"),
        # Upstream's NonDurable is a reader.
        type=one_of("durable"),
        default="durable",
        metavar="MODE",
        help="Durable; to leave no subscription behind, use geminga read",
    )
    # Matched with names of a namespace: TOPIC names the namespace, too.
    add("--regex", action="store_true", help="treat TOPIC as a regular expression")
    # Only where the topic's namespace is replicated does this have an effect (PIP-33).
    add(
        *("-rs", "--replicated"),
        action="store_true",
        help="replicate acknowledgements to other clusters",
    )
    add(
        # Moves the subscription itself: other consumers of it go there as well.
        *("-stp", "--start-timestamp"),
        type=count,
        default=0,
        metavar="MS",
        help="seek to this publish time first (milliseconds since 1970)",
    )
    add(
        *("-etp", "--end-timestamp"),
        type=count,
        default=0,
        metavar="MS",
        help="end before the first message that was published later",
    )
    add_receiving_options(parser)
    refuse(
        parser,
        "a message whose chunks are missing stays unacknowledged, and is not lost",
        *("-ac", "--auto_ack_chunk_q_full"),
    )
    return parser
