"""Fetches and prepares what the embedded ZooKeeper needs, once; later there is nothing to do.

Several setups may run at the same time (test workers, two terminals): one works, the others wait.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from geminga_cli.embedded_zookeeper.class_archive import make_archive
from geminga_cli.embedded_zookeeper.fetch import (
    copy_jars,
    damaged_jars,
    fetch_zookeeper,
    jars_of_installed_pyspark,
)
from geminga_cli.embedded_zookeeper.installation import Installation, find_installation
from geminga_cli.embedded_zookeeper.jars import ARCHIVE_BYTES, ZOOKEEPER_VERSION
from geminga_cli.errors import SetupFailed

Say = Callable[[str], None]


def set_up(environment: Mapping[str, str], say: Say, *, is_checked: bool = False) -> Installation:
    """Fetch what is missing; with ``is_checked``, also read every jar and replace damaged ones.

    ``say`` is called with a line for everything that takes long. Without a class-data archive
    ZooKeeper only starts more slowly, so failing to make one is reported and is no error.

    Raises ``JavaMissing``, ``SetupFailed``.
    """
    installation = find_installation(environment)
    directory = installation.jars
    # Beside the directory, which may be replaced. Everything is looked at under the lock: another
    # setup may have finished while this one waited.
    with _locked(directory.parent / "setup.lock"):
        # Stage 1: the jars, of which an archive is made.
        if not installation.is_usable or (is_checked and damaged_jars(directory)):
            # With PySpark installed, there is nothing to download.
            installed = jars_of_installed_pyspark()
            if installed is not None:
                say(f"copying ZooKeeper {ZOOKEEPER_VERSION} out of {installed} into {directory}")
                copy_jars(directory, installed)
            else:
                say(
                    f"fetching ZooKeeper {ZOOKEEPER_VERSION} into {directory}: "
                    f"a download of {ARCHIVE_BYTES // 1_000_000} MB, once"
                )
                fetch_zookeeper(directory)
        # Stage 2: the archive for this Java. It lies in the directory of the jars, so a replaced
        # directory has none.
        if not installation.is_quick:
            say(f"preparing ZooKeeper for {installation.java.executable}: some seconds, once")
            try:
                make_archive(directory, installation.java, installation.class_archive)
            except SetupFailed as error:
                say(f"ZooKeeper will start more slowly than it could: {error}")
    return installation


@contextmanager
def _locked(lock: Path) -> Generator[None, None, None]:
    """Hold a lock between processes; the kernel releases it when its holder dies."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise SetupFailed(
            f"{lock.parent} cannot be written to ({error.strerror}): "
            "set XDG_CACHE_HOME to a directory that can"
        ) from error
    # The file is never removed: another process may be waiting for its lock.
    try:
        # Waits without a limit: the holder may be downloading for half an hour.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        # Releases the lock.
        os.close(descriptor)
