"""How many files a process may have open (sockets are files), and how they are shared out.

Every connection takes one file of the process's limit (``RLIMIT_NOFILE``). Without a limit of its
own, a server accepts connections until no file is left. Then neither clients nor operators can
connect, and it can open no file and reach no bookie. So a part raises the soft limit to the hard
one when it starts, and divides it: a reserve for its own files (``own``), a share for HTTP, which
operators and metrics use, and the rest for clients. Imports nothing slow: the supervisor raises its
limit before it starts anything.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from dataclasses import dataclass

from geminga_server.errors import ServerStartError

# Below this a warning is logged: a few applications of a hundred processes each have so many
# connections to a broker.
LOW = 10_000
RECOMMENDED = 65_536
# macOS calls the hard limit unlimited, and refuses more than this (OPEN_MAX).
MACOS_MAX = 10_240
# What "unlimited" is taken for: far more connections than one process can serve.
UNLIMITED = 1_000_000

# A part's own files: its log, ZooKeeper, listening sockets, and a connection or two to each bookie.
# A broker with one bookie has 22 open. A share of the limit, so that a cluster of hundreds of
# bookies has room where the limit is one for thousands of clients.
OWN_MIN = 64
OWN_MAX = 1_024
# HTTP: dashboards and admin tools need a few dozen connections.
HTTP_MIN = 16
HTTP_MAX = 1_000
SHARE = 8
# A server that can have fewer clients does not start.
CLIENTS_MIN = 16


# Some limits, and what becomes of them:
#
#      limit      own     http    clients
#        128       64       16         48
#      1,024      128      128        768
#     65,536    1,024    1,000     63,512


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """The shares of one process, in files; together they are its limit."""

    limit: int
    # For the part's own files.
    own: int
    # For HTTP connections.
    http: int

    @property
    def clients(self) -> int:
        """Connections that clients may have open at once."""
        return self.limit - self.own - self.http


def share_out(limit: int, *, own_min: int = OWN_MIN) -> OpenFiles:
    """Divide ``limit`` files, of which the part itself needs ``own_min`` at least.

    Raises ``ServerStartError`` where clients would get fewer than ``CLIENTS_MIN``.
    """
    # An eighth each, within bounds: where the limit is high, nearly all of it is for clients; where
    # it is low, a part has what it cannot do without, or does not start.
    own = max(own_min, min(limit // SHARE, OWN_MAX))
    http = max(HTTP_MIN, min(limit // SHARE, HTTP_MAX))
    shares = OpenFiles(limit, own, http)
    if shares.clients < CLIENTS_MIN:
        raise ServerStartError(
            f"the limit of {limit} open files is too low: {own + http + CLIENTS_MIN} are needed, "
            f"{RECOMMENDED} recommended; {how_to_raise(RECOMMENDED)}"
        )
    return shares


def open_files(*, own_min: int = OWN_MIN) -> OpenFiles:
    """The shares of this process, by the limit that holds now. Raises ``ServerStartError``."""
    return share_out(current_limit(), own_min=own_min)


def current_limit() -> int:
    """How many files this process may have open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else min(soft, UNLIMITED)


def raise_limit() -> int:
    """Raise the soft limit to the hard one, for this process and all that it starts from now on.

    Returns the limit that holds then: the old one where the system does not allow another.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The first value that the system accepts. The hard limit stays as it is: a process without
    # rights could not raise it again.
    for wanted in (hard, max(current_limit(), MACOS_MAX)):
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            break
    return current_limit()


def how_to_raise(limit: int) -> str:
    """How to raise the limit, in words for operators."""
    return (
        f"raise the hard limit: `ulimit -n {limit}` as root before the start, "
        f"`LimitNOFILE={limit}` in a systemd unit, `ulimits: nofile` in a compose file"
    )
