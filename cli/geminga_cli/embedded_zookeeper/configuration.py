"""The configuration file and the command line of a ZooKeeper server. Pure text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from geminga_cli.embedded_zookeeper.jars import class_path

WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - recognised, not chosen
# Of a single server, too: it reads from its configuration that there is no quorum.
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

# Sessions are checked once a tick, so an expiry may be noticed that much later.
TICK_MS = 500
SESSION_TIMEOUT_MIN_MS = 1_000
# ZooKeeper grants a session the time-out that its client asks for, cut to these two bounds. Without
# this the limit is 20 ticks, which is 10 s; Java clients ask for 30 s.
SESSION_TIMEOUT_MAX_MS = 60_000
# Connections, at most. The limit for one address is the same: all parts of a small cluster have
# one.
CONNECTIONS_MAX = 2_000
# A restart replays at most this many changes: about 0.2 s.
CHANGES_PER_SNAPSHOT = 20_000
SNAPSHOTS_KEPT = 3
PURGE_INTERVAL_HOURS = 1
# The transaction log grows in steps of this size. The default of 64 MiB is much for a small
# cluster.
LOG_STEP_KIB = 4_096
# The longest value or request. Pulsar configures its ZooKeepers with the same.
REQUEST_BYTES_MAX = 10 * 1024 * 1024
# The heap begins small and grows when it has to: 10 MB less than Java's own first guess.
HEAP_FIRST_MIB = 8
HEAP_MAX_MIB_DEFAULT = 256


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """One embedded ZooKeeper server."""

    data_directory: Path
    host: str
    port: int
    # Without it the server leaves out every fsync.
    is_synced: bool = True
    heap_max_mib: int = HEAP_MAX_MIB_DEFAULT

    @property
    def log_file(self) -> Path:
        """The file of its log."""
        return self.data_directory / "zookeeper.log"

    @property
    def local_host(self) -> str:
        """The host at which clients on this machine reach it."""
        # A wildcard is an address to listen on, not one to connect to.
        return "127.0.0.1" if self.host in WILDCARDS else self.host

    @property
    def address(self) -> str:
        """``host:port``, for clients on this machine."""
        return f"{self.local_host}:{self.port}"


def configuration_text(
    settings: ZooKeeperSettings, *, connections_max: int = CONNECTIONS_MAX
) -> str:
    """The configuration file (zoo.cfg) of a single server that accepts so many connections.

    The server is ready when it answers ``srvr``.
    """
    # Limited by descriptors too (``geminga_server.open_files``): beyond them Java would fail at
    # accept.
    connections_max = min(connections_max, CONNECTIONS_MAX)
    return "\n".join(
        # One server without ``server.N`` lines: ``MAIN_CLASS`` then runs it alone.
        (
            f"dataDir={settings.data_directory}",
            f"clientPort={settings.port}",
            f"clientPortAddress={settings.host}",
            f"tickTime={TICK_MS}",
            f"minSessionTimeout={SESSION_TIMEOUT_MIN_MS}",
            f"maxSessionTimeout={SESSION_TIMEOUT_MAX_MS}",
            f"maxClientCnxns={connections_max}",
            f"maxCnxns={connections_max}",
            # What ``four_letter_words`` asks, and ``ruok``, which people try by hand.
            "4lw.commands.whitelist=srvr,mntr,ruok",
            # Its HTTP server needs Jetty, which is not among our jars.
            "admin.enableServer=false",
            # Off by default: snapshots and logs would fill the disk.
            f"autopurge.snapRetainCount={SNAPSHOTS_KEPT}",
            f"autopurge.purgeInterval={PURGE_INTERVAL_HOURS}",
            "",
        )
    )


def java_options(settings: ZooKeeperSettings) -> list[str]:
    """Options of the JVM, and ZooKeeper's system properties.

    ``class_archive`` uses the same: an archive fits only a JVM with the same collector. The serial
    collector and the first compiler alone start fastest and need least memory.
    """
    logging = "-Dorg.apache.logging.log4j.simplelog"
    return [
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Xms{HEAP_FIRST_MIB}m",
        f"-Xmx{settings.heap_max_mib}m",
        # The supervisor starts it again; a server that lives on without memory answers nothing.
        "-XX:+ExitOnOutOfMemoryError",
        # A file in /tmp for each JVM, which no tool of ours reads.
        "-XX:-UsePerfData",
        # log4j's own small logger; named here, because log4j warns where it finds no other.
        "-Dlog4j.provider=org.apache.logging.log4j.simple.internal.SimpleProvider",
        f"{logging}.level=WARN",
        f"{logging}.showdatetime=true",
        f"{logging}.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
        # Until the server is ready, it logs a null pointer, with its trace, for each ``srvr``.
        f"{logging}.org.apache.zookeeper.server.ServerCnxn.level=FATAL",
        "-Dzookeeper.jmx.log4j.disable=true",
        # ``forceSync=no`` leaves out the fsync of the transaction log before a change is
        # acknowledged.
        f"-Dzookeeper.forceSync={'yes' if settings.is_synced else 'no'}",
        f"-Dzookeeper.preAllocSize={LOG_STEP_KIB}",
        f"-Dzookeeper.snapCount={CHANGES_PER_SNAPSHOT}",
        f"-Djute.maxbuffer={REQUEST_BYTES_MAX}",
    ]


def command_line(
    java: Path,
    jars: Path,
    settings: ZooKeeperSettings,
    configuration: Path,
    *,
    class_archive: Path | None = None,
    more_options: tuple[str, ...] = (),
) -> list[str]:
    """The whole command: ``java`` with its options, ZooKeeper's main class, its configuration."""
    # A missing or unfit archive is ignored by the JVM (``-Xshare:auto`` is its default), so nothing
    # is checked here.
    archive = [f"-XX:SharedArchiveFile={class_archive}"] if class_archive else []
    return [
        str(java),
        *java_options(settings),
        *archive,
        *more_options,
        "-cp",
        class_path(jars),
        MAIN_CLASS,
        str(configuration),
    ]
