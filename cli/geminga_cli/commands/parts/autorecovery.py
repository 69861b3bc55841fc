"""``geminga autorecovery``: runs auto-recovery without a bookie."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_autorecovery.config import AutoRecoveryPartConfig
from geminga_cli.commands.parts.part_command import run_part_command
from geminga_cli.commands.parts.settings_help import HelpPages, Subject

# The part's module, then modules that it imports when it begins to serve: imported while the part
# waits at its gate, they cost the start no time.
MODULES = (
    "geminga_autorecovery.part",
    "geminga_server.http.server",
    "uvicorn.protocols.http.h11_impl",
    "uvloop",
)

# Bookies show it too: they run auto-recovery themselves.
RECOVERY = Subject(
    "recovery",
    "how lost copies are found and replaced",
    ("auto_recovery_enabled", "auto_recovery.*"),
)
PAGES = HelpPages(
    "Run auto-recovery without a bookie: it finds ledgers that lost copies, and replaces these. "
    "Bookies do so themselves unless their auto_recovery_enabled is off.",
    first=(
        *("zookeeper", "bind_address", "http_port", "lost_bookie_recovery_delay_s"),
        *("auditor_periodic_check_interval_s", "replication_bytes_per_s", "log_level"),
    ),
    subjects=(
        Subject("network", "where metrics and health are", ("bind_address", "*port")),
        Subject("cluster", "where the cluster is", ("zookeeper*", "recovery_id")),
        Subject("process", "logs", ("log_*",)),
        RECOVERY,
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code."""
    return run_part_command("autorecovery", AutoRecoveryPartConfig, MODULES, arguments, PAGES)
