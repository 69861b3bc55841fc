"""``geminga autorecovery``: runs auto-recovery alone, with a TOML file, variables, or options."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_autorecovery.part_settings import AutoRecoveryPartSettings
from geminga_cli.commands.part import run_part_command

# The part, then what it imports when it begins to serve.
MODULES = (
    "geminga_autorecovery.part",
    "geminga_server.http",
    "uvicorn.protocols.http.h11_impl",
    "uvloop",
)


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code."""
    return run_part_command("autorecovery", AutoRecoveryPartSettings, MODULES, arguments)
