"""``geminga bookie``: runs one bookie with a TOML file, environment variables, or options."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_bookie.part_settings import BookiePartSettings
from geminga_cli.commands.part import run_part_command

# The part, then what it imports when it begins to serve.
MODULES = (
    "geminga_bookie.part",
    "geminga_server.http",
    "uvicorn.protocols.http.h11_impl",
    "uvloop",
)


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code."""
    return run_part_command("bookie", BookiePartSettings, MODULES, arguments)
