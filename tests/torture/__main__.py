"""The torture test at full size: ``python -m tests.torture`` (``make torture``)."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.integration.cluster_process import StandaloneProcess
from tests.torture.torture import Ordeal, torture

# A disk: where temporary files live in memory, nothing is proved about it.
DIRECTORY = Path("/var/tmp")


def main() -> None:
    """Start a cluster, torture it, say what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100_000_000)
    parser.add_argument(
        "--kill-interval", type=int, default=25_000, help="lines from one strike to the next"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, default=DIRECTORY)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the cluster is stopped too, below
    ordeal = Ordeal(
        lines=options.lines,
        text_bytes=options.bytes,
        strikes=options.lines // options.kill_interval,
        seed=options.seed,
    )
    with tempfile.TemporaryDirectory(prefix="magnetar-torture-", dir=options.directory) as name:
        cluster = StandaloneProcess.start(Path(name) / "data")
        try:
            sys.stdout.write(f"{torture(cluster, ordeal, Path(name))}\n")
        except BaseException:
            sys.stderr.write(f"{ordeal}\n{cluster.log_tail(100)}\n")
            raise
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
