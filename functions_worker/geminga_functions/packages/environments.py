"""Virtual environments with what packages require: one for each set of requirements.

An environment is built in its final place, and a file marks it as finished: one without that file,
as after a crash, is built anew. It has the worker's interpreter. The worker's pip installs into it,
configured as pip is on this machine. The worker's own distributions come last on its path: a
function that requires another version of one of them gets that version.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import signal
import sys
import sysconfig
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from geminga_functions.errors import EnvironmentNotBuilt
from geminga_functions.packages.archives import Unpacked

log = logging.getLogger(__name__)

# An environment, below the folder that is named by the digest of all that it depends on:
#
#   bin/python                            the worker's interpreter, by a link
#   lib/.../site-packages/                what pip has installed
#   .../site-packages/geminga_worker.pth  the worker's own folders, behind them
#   requirements.txt                      if the package has requirements
#   finished                              written last
FINISHED: Final = "finished"
# The end of pip's output, where its errors are, is kept for the author of the function.
OUTPUT_CHARACTERS_MAX: Final = 8 * 1024
READ_BYTES: Final = 64 * 1024
# Environments that are kept without a user, for the next function that requires the same. Each
# takes some dozens of MB.
UNUSED_MAX: Final = 10

# Builds compete for processors and the network: more of them at once would not end earlier.
BUILDS_AT_ONCE_MAX: Final = 2


class Environments:
    """Builds environments below ``directory``, which belongs to this worker alone.

    ``variables`` are the environment variables of pip. A build takes at most ``timeout_s``.
    """

    def __init__(self, directory: Path, variables: Mapping[str, str], timeout_s: float) -> None:
        self._directory = directory
        self._variables = dict(variables)
        self._timeout_s = timeout_s
        # By the digests of environments, which are also the names of their folders: locks that are
        # held while one is built or waited for, and the number of packages that use it.
        self._locks: dict[str, asyncio.Lock] = {}
        self._used: Counter[str] = Counter()
        self._builds = asyncio.Semaphore(BUILDS_AT_ONCE_MAX)

    async def python_for(self, package: Unpacked) -> Path:
        """The interpreter for a package: the worker's own if the package requires nothing.

        Its environment stays until ``release``. Raises ``EnvironmentNotBuilt``, ``OSError``.
        """
        if not package.requirements.strip() and not package.wheels:
            return Path(sys.executable)
        digest = await asyncio.to_thread(digest_of, package)
        place = self._directory / digest
        python = place / "bin" / "python"
        # Several packages may require the same at the same time: the first builds, the others wait.
        async with self._locks.setdefault(digest, asyncio.Lock()):
            if not (place / FINISHED).exists():
                # Only a build waits for a place: an environment that is finished is used at once.
                async with self._builds:
                    # Environments that are in use or being built are not removed.
                    built = (each for each, lock in self._locks.items() if lock.locked())
                    await asyncio.to_thread(self._make_room, place, {*self._used, *built})
                    try:
                        async with asyncio.timeout(self._timeout_s):
                            await self._build(place, python, package)
                    except TimeoutError:
                        reason = f"pip did not end within {self._timeout_s:g} s"
                        raise EnvironmentNotBuilt(reason, "") from None
            # Still under the lock, so that ``_make_room`` of another build cannot remove it in
            # between.
            self._used[digest] += 1
        return python

    def release(self, python: Path) -> None:
        """End one use of an interpreter that ``python_for`` returned."""
        # Of the worker's own interpreter too, whose use is not counted: this changes nothing then.
        digest = python.parent.parent.name
        self._used[digest] -= 1
        if self._used[digest] <= 0:
            # An environment without users stays on the disk until room is needed.
            del self._used[digest]

    def _make_room(self, place: Path, kept: Collection[str]) -> None:
        """Remove an unfinished build in ``place``, and environments beyond ``UNUSED_MAX``."""
        # What a crash, a failed pip or a time-out has left: pip would take half an installation for
        # a whole one.
        shutil.rmtree(place, ignore_errors=True)
        self._directory.mkdir(parents=True, exist_ok=True)
        unused = [each for each in self._directory.iterdir() if each.name not in kept]
        # By when they were built, the newest last.
        unused.sort(key=lambda each: each.stat().st_mtime)
        for each in unused[:-UNUSED_MAX]:
            shutil.rmtree(each, ignore_errors=True)

    async def _build(self, place: Path, python: Path, package: Unpacked) -> None:
        """Create an environment, with the worker's distributions, and install a package's."""
        # Without pip, which takes seconds to install: the worker's pip installs into another
        # environment by ``--python``.
        await self._run("-m", "venv", "--without-pip", str(place))
        paths = {"base": str(place), "platbase": str(place)}
        modules = Path(sysconfig.get_path("purelib", "venv", vars=paths))
        # ``addsitedir``, not a bare path: the worker's folders may have .pth files, too.
        own = [path for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}]
        lines = [f"import site; site.addsitedir({folder!r})\n" for folder in own]
        (modules / "geminga_worker.pth").write_text("".join(lines), encoding="utf-8")
        options: list[str] = []
        if package.wheels:
            # All wheels are in one folder; those that requirements name are found there.
            options += ["--find-links", str(package.wheels[0].parent)]
        # Without requirements pip needs no index, and must not look for one: the machine may be cut
        # off.
        if package.requirements.strip():
            file = place / "requirements.txt"
            file.write_text(package.requirements, encoding="utf-8")
            options += ["-r", str(file)]
        else:
            options.append("--no-index")
        pip = ("-m", "pip", "--python", str(python), "--disable-pip-version-check", "--no-input")
        wheels = map(str, package.wheels)
        await self._run(*pip, "install", "--no-warn-script-location", *options, *wheels)
        # Last of all: only with this file is the environment used.
        (place / FINISHED).touch()
        log.info("environment built", extra={"environment": place.name})

    async def _run(self, *words: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *words),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            env=self._variables,
            start_new_session=True,
        )
        output = ""
        assert process.stdout is not None
        try:
            while chunk := await process.stdout.read(READ_BYTES):
                output = (output + chunk.decode(errors="replace"))[-OUTPUT_CHARACTERS_MAX:]
            code = await process.wait()
        except BaseException:
            # pip builds packages that come as source in other processes: the whole group is killed.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise
        if code:
            raise EnvironmentNotBuilt("what the package requires cannot be installed", output)


def digest_of(package: Unpacked) -> str:
    """The digest of everything that an environment depends on. Blocks."""
    digest = hashlib.sha256()
    # The interpreter is among it: what was compiled for another version of Python may not load.
    for part in (sys.version, sys.executable, package.requirements):
        digest.update(part.encode() + b"\0")
    for wheel in package.wheels:
        digest.update(wheel.name.encode() + b"\0")
        with wheel.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:32]
