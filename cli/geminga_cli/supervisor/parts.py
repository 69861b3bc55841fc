"""How the process of each part is started; ``supervisor`` finds out when it is ready.

Nothing here needs an event loop: the processes are under way before the supervisor imports asyncio.
Java and two Pythons take longest, and their start is what people wait for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Protocol

from geminga_cli.embedded_zookeeper.configuration import (
    ZooKeeperSettings,
    command_line,
    configuration_text,
)
from geminga_cli.embedded_zookeeper.installation import Installation
from geminga_cli.gate import Gate
from geminga_cli.supervisor.lifecycle.orders import PartRules
from geminga_cli.supervisor.process import Command, Process
from geminga_cli.whole_file import keep_whole
from geminga_server.control.supervision import CONTROL_SOCKET_VARIABLE, PART_NAME_VARIABLE
from geminga_server.open_files import open_files


class Part(Protocol):
    """A part as the supervisor sees it."""

    # What the part needs, and how long it may take to stop.
    rules: PartRules
    # The file of its log; None: its log goes where the supervisor's goes.
    log_file: Path | None

    def launch(self) -> Process:
        """Start its process; the one before has ended. Raises ``OSError``."""
        ...

    def release(self) -> None:
        """Tell the process that what the part needs is ready."""
        ...


class ZooKeeperPart:
    """The embedded ZooKeeper: a Java process that knows nothing of us."""

    def __init__(
        self,
        rules: PartRules,
        settings: ZooKeeperSettings,
        installation: Installation,
        inherited: Sequence[int] = (),
    ) -> None:
        self.rules = rules
        self.settings = settings
        self.log_file: Path | None = settings.log_file
        self._installation = installation
        self._inherited = inherited

    def launch(self) -> Process:
        """Write the configuration file and start Java."""
        directory = self.settings.data_directory
        directory.mkdir(parents=True, exist_ok=True)
        configuration = directory / "zoo.cfg"
        # Each connection takes a descriptor; Java inherits our limit.
        connections_max = open_files().clients
        # Written at each start: the settings are the truth, and an edit of the file would not last.
        keep_whole(
            configuration, configuration_text(self.settings, connections_max=connections_max)
        )
        # It may be made while the cluster runs, so each start looks anew.
        archive = self._installation.class_archive
        words = command_line(
            self._installation.java.executable,
            self._installation.jars,
            self.settings,
            configuration,
            class_archive=archive if archive.is_file() else None,
        )
        return Process(Command(words, os.environ, self.settings.log_file), self._inherited)

    def release(self) -> None:
        """Nothing to do: it needs no other part."""


@dataclass(slots=True, eq=False)
class PythonPart:
    """A part of ours: ``geminga <command>`` with ``options``.

    An option whose value is empty stands alone, such as ``--no-sync``.
    """

    rules: PartRules
    command: str
    options: Mapping[str, str]
    _: KW_ONLY
    control_socket: Path
    log_file: Path | None = None
    # Descriptors that the process gets.
    inherited: Sequence[int] = ()
    # The gate of the running process.
    gate: Gate | None = None

    def launch(self) -> Process:
        """Start the process; it imports its modules and then waits at its gate."""
        if self.log_file is not None:
            self.log_file.parent.mkdir(exist_ok=True)
        # The gate of the process before, if there was one. That process has ended, so closing its
        # gate changes nothing for it.
        if self.gate is not None:
            self.gate.close()
            self.gate = None  # making another one fails where descriptors are used up
        self.gate = gate = Gate()
        variables = {
            CONTROL_SOCKET_VARIABLE: str(self.control_socket),
            PART_NAME_VARIABLE: self.rules.name,
            **gate.variables(),
        }
        # The environment reaches the part, so GEMINGA_* variables set its other settings.
        command = Command(self.words(), {**os.environ, **variables}, self.log_file)
        # Only this process inherits the gate's entrance. The supervisor keeps the other end, which
        # no part inherits (PEP 446: descriptors are not inheritable unless they are passed on): so
        # each part sees the end of its pipe when the supervisor dies.
        try:
            return Process(command, (*self.inherited, gate.entrance))
        finally:
            gate.give_entrance_away()

    def words(self) -> list[str]:
        """The command line of the process."""
        # An empty value is left out, and its option stands alone.
        options = [word for option in self.options.items() for word in option if word]
        return [sys.executable, "-m", "geminga_cli", self.command, *options]

    def release(self) -> None:
        """Open the gate."""
        if self.gate is not None:
            self.gate.open()
