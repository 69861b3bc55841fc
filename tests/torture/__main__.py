"""The torture tests at full size: ``python -m tests.torture`` (``make torture``).

Five ordeals, one after the other, each on a cluster of its own: the *passage* of a real text while
broker and bookie are killed; the *siege* of a cluster of four bookies under load; the same with
*power cuts*, which take from bookies what they had not synced; the siege of a *cluster* of three
brokers behind two proxies, in which brokers take over from each other; and that of three clusters
that replicate to each other (*geo*), in which links are cut and whole clusters are lost as well.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.integration.processes.cluster_process import (
    STANDALONE,
    ClusterProcess,
    StandaloneProcess,
)
from tests.torture.harm.wires import Wires
from tests.torture.ordeals.geo import GeoSiege, besiege_clusters, three_clusters
from tests.torture.ordeals.siege import (
    CLUSTER_OPTIONS,
    CLUSTER_PARTS,
    CLUSTER_TOPICS,
    FRAGILE,
    OPTIONS,
    WIRED,
    Siege,
    besiege,
)
from tests.torture.ordeals.text_passage import Ordeal, torture

# A disk: where temporary files live in memory, nothing is proved about it.
DIRECTORY = Path("/var/tmp")
PASSAGE, SIEGE, POWER_CUTS, CLUSTER, GEO = "passage", "siege", "power-cuts", "cluster", "geo"
ORDEALS = (PASSAGE, SIEGE, POWER_CUTS, CLUSTER, GEO)
# Each message is stored in three clusters.
GEO_RATE_PART = 3
LOG_LINES = 100


def main() -> None:
    """Run the ordeals that were asked for; say what happened in each."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the cluster is stopped too, below
    ordeals: dict[str, Callable[[Path], object]] = {
        PASSAGE: lambda directory: pass_through(directory, _ordeal(options)),
        SIEGE: lambda directory: withstand(directory, _siege(options)),
        POWER_CUTS: lambda directory: withstand(directory, _siege(options, has_power_cuts=True)),
        CLUSTER: lambda directory: withstand_many(
            directory, replace(_siege(options), parts=CLUSTER_PARTS, topics=CLUSTER_TOPICS)
        ),
        GEO: lambda directory: withstand_far_apart(directory, _geo_siege(options)),
    }
    for name in options.ordeal or ORDEALS:
        with tempfile.TemporaryDirectory(
            prefix=f"geminga-{name}-", dir=options.directory
        ) as directory:
            sys.stdout.write(f"{name}: {ordeals[name](Path(directory))}\n")
            sys.stdout.flush()


def pass_through(directory: Path, ordeal: Ordeal) -> object:
    """Run the text through a cluster of its own."""
    cluster = StandaloneProcess.start(directory / "data")
    try:
        return torture(cluster, ordeal, directory)
    except BaseException:
        sys.stderr.write(f"{ordeal}\n{cluster.log_tail(LOG_LINES)}\n")
        raise
    finally:
        cluster.stop()


def withstand_many(directory: Path, siege: Siege) -> object:
    """Besiege a cluster whose brokers can be parted from ZooKeeper."""
    with Wires(siege.parts.brokers) as wires:
        return withstand(directory, siege, wires)


def withstand(directory: Path, siege: Siege, wires: Wires | None = None) -> object:
    """Besiege a cluster of its own."""
    started: list[StandaloneProcess] = []

    def start() -> StandaloneProcess:
        if wires is not None:
            started.append(cluster_of(siege, directory / "data", wires))
        else:
            module = FRAGILE if siege.has_power_cuts else STANDALONE
            started.append(StandaloneProcess.start(directory / "data", *OPTIONS, module=module))
        return started[-1]

    try:
        return besiege(start, siege, wires)
    except BaseException:
        sys.stderr.write(f"{siege}\n")
        for cluster in started[-1:]:
            sys.stderr.write(f"{cluster.log_tail(LOG_LINES)}\n")
        raise
    finally:
        for cluster in started[-1:]:
            cluster.stop()


def withstand_far_apart(directory: Path, siege: GeoSiege) -> object:
    """Besiege three clusters that replicate to each other."""
    with three_clusters(directory) as clusters:
        try:
            return besiege_clusters(clusters, siege)
        except BaseException:
            sys.stderr.write(f"{siege}\n")
            for name, cluster in clusters.items():
                sys.stderr.write(f"{name}:\n{cluster.log_tail(LOG_LINES)}\n")
            raise


def cluster_of(siege: Siege, data_directory: Path, wires: Wires) -> ClusterProcess:
    """A cluster with the parts that are struck."""
    parts = siege.parts
    return ClusterProcess.up(
        data_directory,
        *CLUSTER_OPTIONS,
        *wires.options,
        brokers=len(parts.brokers),
        bookies=len(parts.bookies),
        proxies=len(parts.proxies),
        module=WIRED,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--ordeal", action="append", choices=ORDEALS, help="only this one; may be repeated")
    add("--seed", type=int, default=1)
    add("--directory", type=Path, default=DIRECTORY)
    add("--minutes", type=float, default=10.0, help="of each siege of one cluster")
    add("--geo-minutes", type=float, default=15.0, help="of the siege of three clusters")
    add("--rate", type=int, default=1000, help="messages a second in a siege")
    add("--lines", type=int, default=1_000_000, help="of the text")
    add("--bytes", type=int, default=100_000_000, help="of the text")
    add("--kill-interval", type=int, default=25_000, help="lines from one strike to the next")
    return parser.parse_args()


def _ordeal(options: argparse.Namespace) -> Ordeal:
    return Ordeal(
        lines=options.lines,
        text_bytes=options.bytes,
        strikes=options.lines // options.kill_interval,
        seed=options.seed,
    )


def _siege(options: argparse.Namespace, *, has_power_cuts: bool = False) -> Siege:
    return Siege(
        seconds=options.minutes * 60,
        seed=options.seed,
        rate=options.rate,
        has_power_cuts=has_power_cuts,
    )


def _geo_siege(options: argparse.Namespace) -> GeoSiege:
    return GeoSiege(
        seconds=options.geo_minutes * 60, seed=options.seed, rate=options.rate // GEO_RATE_PART
    )


if __name__ == "__main__":
    main()
