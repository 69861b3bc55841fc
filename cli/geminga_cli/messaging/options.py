"""Options of the commands that send and receive messages, under ``pulsar-client``'s names.

An option for something that the client library cannot do is refused, with the reason. If it were
accepted and ignored, a script would believe, for instance, that its transaction was committed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

# Environment variables with the defaults of --url and --auth-params.
URL_VARIABLE = "GEMINGA_SERVICE_URL"
DEFAULT_URL = "pulsar://localhost:6650"
AUTH_VARIABLE = "GEMINGA_AUTH_PARAMS"
# A message whose latency `perf` measures begins with the id of the run and the time it was sent at,
# 8 bytes each.
LATENCY_BYTES_MIN = 16


class Refused(argparse.Action):
    """An option of upstream's that is refused with a reason; the help does not show it."""

    def __init__(self, option_strings: Sequence[str], dest: str, reason: str) -> None:
        # With a value or without: the command ends before that matters.
        super().__init__(option_strings, dest, nargs="?", help=argparse.SUPPRESS)
        self._reason = reason

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> NoReturn:
        """End the process with the reason."""
        del namespace, values
        parser.error(f"{option_string} is not supported: {self._reason}")


def refuse(parser: argparse._ActionsContainer, reason: str, *names: str) -> None:
    """Add an option of these names that is refused."""
    parser.add_argument(*names, action=Refused, reason=reason)


def command_parser(name: str, description: str) -> argparse.ArgumentParser:
    """The parser of ``geminga <name>``, with the options that all these commands have."""
    # No abbreviations: a script must not change its meaning with the next option that is added.
    parser = argparse.ArgumentParser(
        prog=f"geminga {name}",
        description=f"{description} Exit codes: 0 it was done, 1 the broker refused or does not "
        "answer, 2 the command line is wrong, 130 it was interrupted by Ctrl-C.",
        allow_abbrev=False,
    )
    group = parser.add_argument_group("connection")
    group.add_argument(
        # pulsar-client has --url, pulsar-perf -u and --service-url.
        *("-u", "--url", "--service-url"),
        default=os.environ.get(URL_VARIABLE, DEFAULT_URL),
        metavar="URL",
        help=f"the brokers (default: {DEFAULT_URL}; variable {URL_VARIABLE})",
    )
    group.add_argument(
        *("-ml", "--memory-limit"),
        type=positive_size,
        metavar="SIZE",
        help="how much memory may hold messages that are not stored yet, as 64M",
    )
    group.add_argument("--listener-name", metavar="NAME", help="which advertised address to use")
    group.add_argument(
        "--auth-plugin",
        default="",
        metavar="METHOD",
        help="how to authenticate: token, tls, basic, oauth2, or upstream's class for one of them",
    )
    group.add_argument(
        "--auth-params",
        default=os.environ.get(AUTH_VARIABLE, ""),
        metavar="TEXT",
        help="token:TEXT, token:file:///PATH, KEY:VALUE,..., or a JSON object "
        f"(variable {AUTH_VARIABLE})",
    )
    group.add_argument(
        # The names of pulsar-admin, pulsar-client and pulsar-perf.
        *("--tls-trust-cert-path", "--tlsTrustCertsFilePath", "--trust-cert-file"),
        metavar="FILE",
        help="the authorities to trust (default: the system's)",
    )
    group.add_argument("--tls-allow-insecure", action="store_true", help="accept any certificate")
    group.add_argument(
        "--tls-skip-hostname-verification",
        action="store_true",
        help="accept a certificate that is for another host",
    )
    # Upstream's proxies by SNI. Pulsar's own proxy needs no option: its URL is given as the
    # brokers'.
    refuse(group, "this client connects to brokers without a proxy", "--proxy-url")
    refuse(group, "this client connects to brokers without a proxy", "--proxy-protocol")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    return parser


def count(text: str) -> int:
    """Read a number, 0 at least."""
    return _whole(text, 0)


def positive(text: str) -> int:
    """Read a number, 1 at least."""
    return _whole(text, 1)


def _whole(text: str, least: int) -> int:
    # ``int`` alone would take "1_000", "+1" and blanks.
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} should be a whole number, {least} at least")
    return int(text)


def rate(text: str) -> float:
    """Read a number of messages a second, 0 at least: 0 is as fast as possible."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    # The comparison is false for a NaN, too.
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} should be a number, 0 at least")
    return value


def positive_size(text: str) -> int:
    """Read a size, 1 byte at least."""
    value: int = as_admin("size_bytes")(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} should be a size of 1 byte at least")
    return value


def as_admin(name: str) -> Callable[[str], Any]:
    """A reader that calls the function ``name`` of ``geminga admin``'s ``values``.

    That module is imported with the first value: it loads the protocol, which the help does not
    need.
    """
    return lambda text: getattr(import_module("geminga_cli.admin.values"), name)(text)


def one_of(*names: str) -> Callable[[str], str]:
    """A reader of one of ``names``; letter case and underscores do not matter."""

    def read(text: str) -> str:
        for name in names:
            # Upstream writes Key_Shared, keyShared and key_shared, depending on the tool.
            if text.replace("_", "").lower() == name.replace("_", "").lower():
                return name
        raise argparse.ArgumentTypeError(f"{text!r} should be one of {', '.join(names)}")

    return read


def add_subscription_options(
    parser: argparse.ArgumentParser, *, kind: str, position: str, begins: str
) -> None:
    """Add the type of subscriptions, and where they begin.

    ``kind`` and ``position`` are the short names of these options in upstream's tool; ``begins`` is
    the clause behind "where" in the help.
    """
    parser.add_argument(
        *(kind, "--subscription-type"),
        type=one_of("exclusive", "shared", "failover", "key_shared"),
        default="exclusive",
        metavar="TYPE",
        help="Exclusive (default), Shared, Failover or Key_Shared",
    )
    parser.add_argument(
        *(position, "--subscription-position"),
        type=one_of("latest", "earliest"),
        default="latest",
        metavar="POSITION",
        help=f"where {begins}: Latest (default) or Earliest",
    )


def add_receiving_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``consume`` and ``read`` have in common."""
    add = parser.add_argument
    add(
        "-n", "--num-messages", type=count, default=1, help="how many messages (1); 0: until Ctrl-C"
    )
    add("-r", "--rate", type=rate, default=0.0, help="messages a second; 0: as fast as possible")
    add(
        "-q",
        "--queue-size",
        type=positive,
        metavar="NUMBER",
        help="how many messages to fetch ahead",
    )
    add("--hex", action="store_true", help="show contents in hexadecimal")
    add("--hide-content", action="store_true", help="receive messages without showing them")
    add("-mp", "--print-metadata", action="store_true", help="show all metadata of a message")
    add(
        *("-st", "--schema-type"),
        type=one_of("bytes", "auto_consume"),
        default="bytes",
        metavar="TYPE",
        help="bytes (default), or auto_consume: show values by the topic's schema",
    )
    add(
        "-mc",
        "--max_chunked_msg",
        type=positive,
        help="how many incomplete messages in chunks to hold",
    )
    add(
        *("-ekv", "--encryption-key-value"),
        metavar="URI",
        help="the private key: file:///PATH or data:application/x-pem-file;base64,TEXT",
    )
    add(
        *("-ca", "--crypto-failure-action"),
        # Upstream's CONSUME and DISCARD would show ciphertext as a message, or lose it.
        type=one_of("fail"),
        default="fail",
        metavar="FAIL",
        help="FAIL, the only way: what cannot be decrypted is delivered again later",
    )
    refuse(parser, "only the Java client pools messages", "-pm", "--pool-messages")
