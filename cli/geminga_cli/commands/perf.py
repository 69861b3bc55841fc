"""``geminga perf``: measures a cluster under load, with ``pulsar-perf``'s words.

Options of upstream's tool that this one does not have are refused, with the reason.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence

from geminga_cli.messaging.options import (
    LATENCY_BYTES_MIN,
    add_subscription_options,
    as_admin,
    command_parser,
    count,
    one_of,
    positive,
    rate,
    refuse,
)

EXIT_MISUSED = 2

# Options that are refused, by the reason: of all loads, of those that publish, of `consume`.
# Refused with a reason, and not as unknown: who measures with pulsar-perf has these words in
# scripts.
REFUSED: Mapping[str, tuple[str, ...]] = {
    "this client has no transactions": (
        *("-txn", "--txn-enable", "-tto", "--txn-timeout", "-abort", "-ntxn"),
        *("-nmt", "--numMessage-perTransaction"),
    ),
    "Python's own TLS is used": ("--ssl-factory-plugin", "--ssl-factory-plugin-params"),
    "hosts are verified unless --tls-skip-hostname-verification is given": (
        "--tls-enable-hostname-verification",
    ),
    "this client has one thread, and a connection to each broker": (
        *("-c", "--max-connections", "-ioThreads", "--num-io-threads", "-threads"),
        *("--num-test-threads", "-lt", "--num-listener-threads", "-bw", "--busy-wait"),
        *("-mlr", "--max-lookup-request"),
    ),
    "messages that are measured are not encrypted": (
        *("-v", "--encryption-key-value-file", "--encryption-key-value", "-k"),
        "--encryption-key-name",
    ),
    "the summary has the percentiles; --json writes them for programs": ("--histogram-file",),
}
REFUSED_PRODUCE: Mapping[str, tuple[str, ...]] = {
    "messages are of random letters": (
        *("-f", "--payload-file", "-e", "--payload-delimiter", "-fp", "--format-payload"),
        *("-fc", "--format-class"),
    ),
    "geminga admin topics create-partitioned-topic makes partitioned topics": (
        *("-np", "--partitions", "-au", "--admin-url"),
    ),
    "-o counts all partitions together": ("-p", "--max-outstanding-across-partitions"),
    "-d delays all messages by the same time": ("-dr", "--delay-range"),
}
REFUSED_CONSUME: Mapping[str, tuple[str, ...]] = {
    "-q counts all partitions together": (
        *("-p", "--receiver-queue-size-across-partitions", "-aq"),
        "--auto-scaled-receiver-queue-size",
    ),
    "a message whose chunks are missing stays unacknowledged": ("-ac", "--auto_ack_chunk_q_full"),
    "as many incomplete messages in chunks are held as by default": (
        *("-mc", "--max_chunked_msg", "-e", "--expire_time_incomplete_chunked_messages"),
    ),
    "only the Java client pools messages": ("-pm", "--pool-messages"),
}


def main(arguments: Sequence[str]) -> int:
    """Run the load; returns the exit code."""
    # The load comes first, as in pulsar-perf: each has options of its own. Stage 1: the load.
    # Without a word, the usage goes to standard error and the exit code is that of a mistake.
    name, *rest = [*arguments] or [""]
    if name in ("--help", "-h", ""):
        print(_usage(), end="", file=sys.stdout if name else sys.stderr)
        if name:
            raise SystemExit(0)
        return EXIT_MISUSED
    if name not in PARSERS:
        print(f"geminga: perf has no load {name!r}\n\n{_usage()}", end="", file=sys.stderr)
        return EXIT_MISUSED
    # Stage 2: its own options.
    _, make = PARSERS[name]
    parser = make()
    given = parser.parse_args(rest)
    # Behind argparse, which checks each option by itself.
    complete(parser, given)
    from geminga_cli.messaging.loads import run  # noqa: PLC0415 - loads the client

    return run(given)


def _usage() -> str:
    lines = (f"  {name:8}  {about}" for name, (about, _) in PARSERS.items())
    return (
        "usage: geminga perf LOAD [OPTION ...] TOPIC ...   (LOAD --help lists its options)\n\n"
        + "\n".join(lines)
        + "\n"
    )


def complete(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Set the topics and subscriptions that follow from several options.

    Options that contradict each other end the process.
    """
    # As in pulsar-perf: one name and a number stand for as many names, with numbers behind them.
    # "-t 3 orders" means orders-0, orders-1 and orders-2; "-t 3 a b c" means these three.
    topics, number = given.topics, given.num_topics
    if number > 1 and len(topics) == 1:
        given.topics = [f"{topics[0]}{given.separator}{each}" for each in range(number)]
    elif number not in (1, len(topics)):
        parser.error(f"-t {number} does not go with {len(topics)} topics: name one or all")
    if given.load == "latency" and len(given.topics) != 1:
        parser.error("latency is measured on one topic")
    # The time of sending is in the message itself.
    if given.load == "latency" and given.size < LATENCY_BYTES_MIN:
        parser.error(f"a message whose latency is measured has {LATENCY_BYTES_MIN} bytes at least")
    if given.load == "consume":
        # Upstream's default name.
        given.subscriptions = given.subscriptions or ["sub"]
        many = given.num_subscriptions
        if many > 1 and len(given.subscriptions) == 1:
            first = given.subscriptions[0]
            given.subscriptions = [f"{first}-{each}" for each in range(many)]
        # As many names as the number says, or one from which they are made.
        elif many not in (1, len(given.subscriptions)):
            parser.error(f"-ns {many} does not go with {len(given.subscriptions)} subscriptions")


def _load_parser(name: str, description: str, warmup_s: float) -> argparse.ArgumentParser:
    """A parser with the options that all loads have in common."""
    parser = command_parser(f"perf {name}", description)
    parser.set_defaults(load=name)
    add = parser.add_argument
    add(
        "topics",
        nargs="+",
        metavar="TOPIC",
        help="the topics; with -t the beginning of their names",
    )
    add("-t", "--num-topics", "--num-topic", type=positive, default=1, help="how many topics (1)")
    add("--separator", default="-", help="between a topic's beginning and its number (-)")
    # Both ends may be given: the one that comes first counts.
    add("-m", "--num-messages", type=count, default=0, help="end after this many; 0: never")
    add(
        "-time",
        "--test-duration",
        type=rate,
        default=0.0,
        help="end after this many seconds; 0: never",
    )
    add(
        *("-i", "--stats-interval-seconds"),
        type=rate,
        default=10.0,
        metavar="SECONDS",
        help="how often to print progress on standard error (10); 0: never",
    )
    add(
        "--warmup-time",
        type=rate,
        default=warmup_s,
        metavar="SECONDS",
        help=f"messages in this first time are not counted ({warmup_s:g})",
    )
    # Each load refuses what none of them has, then what it does not have itself.
    for reason, names in REFUSED.items():
        for each in names:
            refuse(parser, reason, each)
    return parser


def _add_producing(parser: argparse.ArgumentParser) -> None:
    """Add the options of loads that publish; the defaults are those of ``pulsar-perf``."""
    add = parser.add_argument
    # The rate is that of the whole load: ``loads.produce`` divides it by the number of producers.
    add("-r", "--rate", type=rate, default=100.0, help="messages a second (100); 0: no limit")
    add("-s", "--size", type=count, default=1024, help="the bytes of a message (1024)")
    add("-n", "--num-producers", type=positive, default=1, help="producers for each topic (1)")
    _add_batching(parser)
    add("-ch", "--chunking", action="store_true", help="send messages that are too large in chunks")
    add(
        *("-z", "--compression"),
        type=one_of("none", "lz4", "zlib", "zstd", "snappy"),
        default="none",
        metavar="NAME",
        help="none (default), lz4, zlib, zstd, snappy",
    )
    add(
        "-o",
        "--max-outstanding",
        type=count,
        default=0,
        help="messages that may be sent and not stored yet; 0: no limit of their number",
    )
    add(
        *("-am", "--access-mode"),
        type=one_of("shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"),
        default="shared",
        metavar="MODE",
        help="the access mode of the producers",
    )
    add(
        "-pn",
        "--producer-name",
        metavar="NAME",
        help="the name of the producer, where there is only one",
    )
    # As pulsar-perf: a load that is too high for the cluster slows down, and does not fail. 0 is
    # infinite, as in Java's client.
    add("--send-timeout", type=count, default=0, metavar="MS", help="0 (default): never")
    add("-d", "--delay", type=rate, default=0.0, help="how many seconds messages are delayed")
    add("-set", "--set-event-time", action="store_true", help="give each message an event time")
    add(
        *("-mk", "--message-key-generation-mode"),
        type=one_of("autoIncrement", "random"),
        metavar="MODE",
        help="give each message a key: autoIncrement or random",
    )
    add("-ef", "--exit-on-failure", action="store_true", help="end at the first failure")
    for reason, names in REFUSED_PRODUCE.items():
        for each in names:
            refuse(parser, reason, each)


def _add_batching(parser: argparse.ArgumentParser) -> None:
    """Add the limits of a batch: it is sent when the first of them is reached."""
    add = parser.add_argument
    add(
        *("-b", "--batch-time-window"),
        # Milliseconds on the command line, seconds in the client.
        type=lambda text: rate(text) / 1000,
        default=0.001,
        metavar="MS",
        help="how long a batch waits for messages (1 ms)",
    )
    add(
        "-bm",
        "--batch-max-messages",
        type=positive,
        default=1000,
        help="messages of a batch (1000)",
    )
    add(
        "-bb",
        "--batch-max-bytes",
        type=positive,
        # pulsar-perf's default, and below a broker's largest message.
        default=4_194_304,
        help="bytes of a batch (4194304)",
    )
    add("-db", "--disable-batching", action="store_true", help="send each message alone")


def make_produce_parser() -> argparse.ArgumentParser:
    """The options of ``geminga perf produce``."""
    parser = _load_parser("produce", "Measure how fast messages are stored.", 0.0)
    _add_producing(parser)
    return parser


def make_latency_parser() -> argparse.ArgumentParser:
    """The options of ``geminga perf latency``."""
    # In one process, so that both ends read one clock.
    description = "Measure how long messages take from a producer to a reader in this process."
    parser = _load_parser("latency", description, 1.0)
    _add_producing(parser)
    return parser


def make_consume_parser() -> argparse.ArgumentParser:
    """The options of ``geminga perf consume``."""
    parser = _load_parser("consume", "Measure how fast messages are received.", 0.0)
    add = parser.add_argument
    add(
        "-r",
        "--rate",
        type=rate,
        default=0.0,
        help="messages a second for each consumer; 0: no limit",
    )
    add(
        "-n",
        "--num-consumers",
        type=positive,
        default=1,
        help="consumers for each subscription (1)",
    )
    add(
        "-ns",
        "--num-subscriptions",
        type=positive,
        default=1,
        help="subscriptions for each topic (1)",
    )
    add(
        *("-ss", "--subscriptions"),
        type=as_admin("words"),
        metavar="NAME[,NAME...]",
        help="the names of subscriptions (sub)",
    )
    add_subscription_options(parser, kind="-st", position="-sp", begins="new subscriptions begin")
    add(
        "-q",
        "--receiver-queue-size",
        type=positive,
        default=1000,
        help="how many messages to fetch ahead (1000)",
    )
    add(
        # Delayed, they are sent together: a request for each message would be measured as well.
        "--acks-delay-millis",
        type=count,
        default=100,
        metavar="MS",
        help="how long acknowledgements are delayed (100)",
    )
    add("--batch-index-ack", action="store_true", help="acknowledge messages of a batch one by one")
    add(
        "-rs",
        "--replicated",
        action="store_true",
        help="replicate acknowledgements to other clusters",
    )
    for reason, names in REFUSED_CONSUME.items():
        for each in names:
            refuse(parser, reason, each)
    return parser


# By the word behind ``geminga perf``: a line of help, and what makes its parser.
PARSERS: Mapping[str, tuple[str, Callable[[], argparse.ArgumentParser]]] = {
    "produce": ("how fast messages are stored, and how long that takes", make_produce_parser),
    "consume": ("how fast messages are received, and how old they are", make_consume_parser),
    "latency": ("how long messages take from a producer to a reader", make_latency_parser),
}
