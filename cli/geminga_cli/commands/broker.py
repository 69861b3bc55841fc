"""``geminga broker``: runs one broker with a TOML file, environment variables, or options."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_broker.settings import BrokerSettings
from geminga_cli.commands.part import run_part_command

# The part, then what it imports when it begins to serve.
MODULES = (
    "geminga_broker.part",
    "geminga_broker.admin.app",
    "geminga_server.http",
    "uvicorn.protocols.http.h11_impl",
    "uvloop",
)


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code."""
    return run_part_command("broker", BrokerSettings, MODULES, arguments)
