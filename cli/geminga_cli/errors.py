"""What can go wrong on the command line and in the supervisor.

::

    GemingaError
    ├── SetupFailed            ZooKeeper's jars could not be fetched
    ├── UnusablePort           a port is taken, or listening on it is not permitted
    ├── TooFewBookies          the data is on more bookies than were asked for
    ├── StartFailed            the cluster did not start; names the part that failed
    ├── CannotObey             the supervisor cannot do what an operator asked for
    └── NoSupervisor           no cluster runs on the data directory
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from geminga_runtime.errors import GemingaError


class SetupFailed(GemingaError):
    """ZooKeeper's jars could not be fetched, or are not the expected ones."""

    code: ClassVar[str] = "SetupFailed"
    retry: ClassVar[bool] = True


class UnusablePort(GemingaError):
    """We cannot listen on this address."""

    code: ClassVar[str] = "UnusablePort"

    def __init__(self, host: str, port: int, reason: str, remedy: str) -> None:
        # The remedy is the caller's: only it knows which option names the port.
        super().__init__(f"cannot listen on {host}:{port} ({reason}): {remedy}")
        self.host = host
        self.port = port


class TooFewBookies(GemingaError):
    """Messages are stored on bookies that would not be started."""

    code: ClassVar[str] = "TooFewBookies"

    def __init__(self, directory: Path, stored: int, wanted: int) -> None:
        super().__init__(
            # Checked before anything starts: a bookie less would look like a lost one.
            f"the data in {directory} is on {stored} bookies, with {wanted} a part of it could not "
            f"be read: start with --num-bookies {stored}, or leave the option out"
        )
        self.stored = stored
        self.wanted = wanted


class StartFailed(GemingaError):
    """The cluster did not start: ``part`` is the part that failed."""

    code: ClassVar[str] = "StartFailed"

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f"{part} did not start: {reason}")
        self.part = part


class CannotObey(GemingaError):
    """The supervisor cannot do what an operator asked for."""

    code: ClassVar[str] = "CannotObey"


class NoSupervisor(GemingaError):
    """No supervisor answers for the data directory."""

    code: ClassVar[str] = "NoSupervisor"

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(
            f"no cluster runs on {directory} ({reason}): name its directory with --data-dir, or "
            "start one with `geminga cluster up`"
        )
        self.directory = directory
