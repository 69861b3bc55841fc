"""``geminga health``: asks a part on this machine whether it is healthy; images ask it so.

It reads no settings and imports no part: it runs every few seconds in each container.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

EXIT_UNHEALTHY = 1
HOST = "127.0.0.1"
# An image's health check waits 4 s and is ended after 15: the reason must be told before.
ANSWER_TIMEOUT_S = 8.0
RETRY_S = 0.1
FIRST_PROCESS = Path("/proc/1/cmdline")


@dataclass(frozen=True, slots=True)
class Probe:
    """Where a part says that it is healthy, if nobody moved it, what it is asked, and how its
    answer begins if it is."""

    port: int
    question: bytes
    yes: bytes = b"HTTP/1.1 200 "


BROKER = Probe(8080, b"GET /admin/v2/brokers/health HTTP/1.0\r\n\r\n")
BOOKIE = Probe(8000, b"GET /health HTTP/1.0\r\n\r\n")
PROXY = Probe(8080, b"GET /health HTTP/1.0\r\n\r\n")
PROBES = {
    "standalone": BROKER,
    "cluster": BROKER,  # asked by its proxy, which has that port where there is one
    "broker": BROKER,
    "proxy": PROXY,
    "functions-worker": Probe(6750, PROXY.question),
    "bookie": BOOKIE,
    "autorecovery": BOOKIE,
    "zookeeper": Probe(2181, b"ruok", b"imok"),
}


def main(arguments: Sequence[str]) -> int:
    """0 where the part is healthy, 1 where it is not, with the reason on standard error."""
    parser = argparse.ArgumentParser(
        prog="geminga health",
        description="Ask a part on this machine whether it is healthy. Exit code 0: it is; "
        "1: it is not, or does not answer.",
    )
    parser.add_argument(
        "part",
        nargs="?",
        choices=PROBES,
        help="which part; in a container, where it is not given, the one that runs there",
    )
    parser.add_argument(
        "--port",
        type=int,
        help="where the part answers by HTTP, and a ZooKeeper its clients (default: "
        "8080 for a standalone, a cluster, a broker and a proxy, 2181 for a ZooKeeper, else 8000)",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long a part that is not healthy may still become so (default: 0)",
    )
    options = parser.parse_args(arguments)
    part = options.part or part_of(FIRST_PROCESS)
    if part is None:
        parser.error("which part? No container's first process tells it here")
    probe = PROBES[part]
    port = options.port or probe.port
    deadline_s = time.monotonic() + options.wait
    while True:
        answer = ask(port, probe.question)
        if answer.startswith(probe.yes):
            return 0
        if time.monotonic() >= deadline_s:
            print(f"geminga: the {part} is not healthy: {last_line(answer)}", file=sys.stderr)
            return EXIT_UNHEALTHY
        time.sleep(RETRY_S)


def part_of(command_line: Path) -> str | None:
    """The part that a process runs, by its words in /proc: ``… geminga PART …``."""
    words = command_line.read_bytes().decode(errors="replace").split("\0")
    after = (word for before, word in pairwise(words) if Path(before).name == "geminga")
    return next((word for word in after if word in PROBES), None)


def ask(port: int, question: bytes) -> bytes:
    """The whole answer, or why there is none. ZooKeeper, and servers of HTTP/1.0, end the
    connection after it.

    No HTTP library: importing one costs more than all else here (45 of 95 ms, 12 times a minute).
    """
    try:
        with socket.create_connection((HOST, port), timeout=ANSWER_TIMEOUT_S) as connection:
            connection.sendall(question)
            with connection.makefile("rb") as answer:
                return answer.read()
    except OSError as error:
        return f"{HOST}:{port}: {error}".encode()


def last_line(answer: bytes) -> str:
    """The last line that says something: a reason, behind a head of HTTP."""
    lines = answer.decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")
