"""``geminga bookie``: runs one bookie."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_bookie.config import BookieConfig
from geminga_cli.commands.parts.autorecovery import RECOVERY
from geminga_cli.commands.parts.part_command import run_part_command
from geminga_cli.commands.parts.settings_help import HelpPages, Subject

# The part's module, then modules that it imports when it begins to serve: imported while the part
# waits at its gate, they cost the start no time.
MODULES = (
    "geminga_bookie.part",
    "geminga_server.http.server",
    "uvicorn.protocols.http.h11_impl",
    "uvloop",
)

PAGES = HelpPages(
    "Run one bookie: it stores the entries of ledgers on its disks, and acknowledges each once it "
    "is synced. It finds its cluster in ZooKeeper, where `geminga initialize-cluster-metadata` "
    "has written the cluster's first records.",
    first=(
        *("zookeeper", "data_directory", "journal_directories", "ledger_directories"),
        *("bind_address", "advertised_address", "port", "http_port"),
        *("auto_recovery_enabled", "log_level"),
    ),
    subjects=(
        Subject(
            "network",
            "where it listens, and the address that clients are given",
            ("bind_address", "advertised_address", "*port", "bookie_id", "connections.*"),
        ),
        Subject("tls", "TLS: certificates, and authorities to trust", ("tls.*",)),
        Subject("cluster", "where the cluster is", ("zookeeper*",)),
        Subject("process", "logs", ("log_*",)),
        Subject("directories", "where its data is", ("*_directory", "*_directories")),
        Subject("space", "when disks are full", ("space.*",)),
        Subject(
            "garbage",
            "how the space of deleted ledgers is reclaimed",
            ("garbage.*", "compaction_bytes_per_s"),
        ),
        Subject(
            "storage",
            "journal, entry logs and caches",
            ("sync", "*_cache_bytes_max", "*_file_bytes_max", "entry_log_*", "accept_lost_entries"),
        ),
        RECOVERY,
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code."""
    return run_part_command("bookie", BookieConfig, MODULES, arguments, PAGES)
