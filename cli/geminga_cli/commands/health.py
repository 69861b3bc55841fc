"""``geminga health``: asks a part on this machine whether it is healthy.

It is the health check of our images, so it runs every few seconds in each container: it reads no
settings and imports no part.
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
# The health check of an image waits 4 s for a part to become healthy and is killed after 15 s. The
# reason must be printed before that.
ANSWER_TIMEOUT_S = 8.0
RETRY_S = 0.1
# The command line of a container's first process.
FIRST_PROCESS = Path("/proc/1/cmdline")


@dataclass(frozen=True, slots=True)
class Probe:
    """How a part is asked."""

    # The port that the part listens on by default.
    port: int
    question: bytes
    # The beginning of the answer of a healthy part.
    yes: bytes = b"HTTP/1.1 200 "


BROKER = Probe(8080, b"GET /admin/v2/brokers/health HTTP/1.0\r\n\r\n")
BOOKIE = Probe(8000, b"GET /health HTTP/1.0\r\n\r\n")
PROXY = Probe(8080, b"GET /health HTTP/1.0\r\n\r\n")
PROBES = {
    "standalone": BROKER,
    "cluster": BROKER,  # where there is a proxy, it has that port, and asks a broker
    "broker": BROKER,
    "proxy": PROXY,
    "functions-worker": Probe(6750, PROXY.question),
    "bookie": BOOKIE,
    "autorecovery": BOOKIE,
    "zookeeper": Probe(2181, b"ruok", b"imok"),
}


def main(arguments: Sequence[str]) -> int:
    """Return 0 if the part is healthy; else print the reason on standard error and return 1."""
    parser = argparse.ArgumentParser(
        prog="geminga health",
        description="Ask a part on this machine whether it is healthy. Exit code 0: it is; "
        "1: it is not, or does not answer.",
    )
    parser.add_argument(
        "part",
        nargs="?",
        choices=PROBES,
        help="which part (default: in a container, the part that runs there)",
    )
    parser.add_argument(
        "--port",
        type=int,
        help="where the part answers HTTP, or a ZooKeeper its clients (default: "
        "8080 for a standalone, a cluster, a broker and a proxy, 6750 for a functions worker, 2181 "
        "for a ZooKeeper, else 8000)",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long to wait for a part to become healthy (default: 0)",
    )
    options = parser.parse_args(arguments)
    # One health check for all images: what runs is known by the container's first process.
    part = options.part or part_of(FIRST_PROCESS)
    if part is None:
        parser.error("name the part: this is no container whose first process is one")
    probe = PROBES[part]
    port = options.port or probe.port
    # Asked at least once, whatever the time limit is.
    deadline_s = time.monotonic() + options.wait
    # Each attempt is a connection of its own: a part that is just starting may refuse or end one.
    while True:
        answer = ask(port, probe.question)
        if answer.startswith(probe.yes):
            return 0
        # After the attempt and not before it: what is reported is the newest answer.
        if time.monotonic() >= deadline_s:
            print(f"geminga: the {part} is not healthy: {last_line(answer)}", file=sys.stderr)
            return EXIT_UNHEALTHY
        time.sleep(RETRY_S)


def part_of(command_line: Path) -> str | None:
    """The part that a process runs, by its command line in /proc: ``… geminga PART …``."""
    words = command_line.read_bytes().decode(errors="replace").split("\0")
    # The word behind ``geminga``: the first process may be a shell or an init that has these words
    # on its command line.
    after = (word for before, word in pairwise(words) if Path(before).name == "geminga")
    return next((word for word in after if word in PROBES), None)


def ask(port: int, question: bytes) -> bytes:
    """The whole answer, or the reason why there is none.

    ZooKeeper, and HTTP servers that are asked by HTTP/1.0, close the connection after the answer.
    No HTTP library is used: importing one costs nearly half of the command (45 of 95 ms), which
    each container runs 12 times a minute.
    """
    try:
        with socket.create_connection((HOST, port), timeout=ANSWER_TIMEOUT_S) as connection:
            connection.sendall(question)
            with connection.makefile("rb") as answer:
                return answer.read()
    # The reason is returned in place of an answer: it begins with no part's ``yes``, and its last
    # line is what is printed.
    except OSError as error:
        return f"{HOST}:{port}: {error}".encode()


def last_line(answer: bytes) -> str:
    """The last line that is not empty: of an HTTP answer, the reason in its body."""
    lines = answer.decode(errors="replace").split("\n")
    # Bodies of ours end with the reason.
    return next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")
