"""Virtual environments with what packages require: one for each set of requirements.

An environment is made in its place and finished with a file that says so: what a crash left without
that file is made anew. It has the worker's interpreter, and installs with the worker's pip, which
takes its index from where pip always takes it. The worker's own packages stand behind those of the
environment: a function that requires another version of one gets its own.
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
from geminga_functions.packages.unpacking import Unpacked

log = logging.getLogger(__name__)

FINISHED: Final = "finished"
# What pip wrote last, for the author of the function: its errors stand at the end.
OUTPUT_CHARACTERS_MAX: Final = 8 * 1024
READ_BYTES: Final = 64 * 1024
# Environments that no function here uses any more are kept for the next that requires the same;
# each takes some dozens of MB.
UNUSED_MAX: Final = 10

# Each takes a processor, and the network: the instances that wait for others would win nothing.
BUILDS_AT_ONCE_MAX: Final = 2


class Environments:
    """Builds environments below ``directory``, which belongs to this worker alone.

    ``variables`` are the environment variables that pip sees. Building takes ``timeout_s`` at most.
    """

    def __init__(self, directory: Path, variables: Mapping[str, str], timeout_s: float) -> None:
        self._directory = directory
        self._variables = dict(variables)
        self._timeout_s = timeout_s
        self._locks: dict[str, asyncio.Lock] = {}
        self._used: Counter[str] = Counter()
        self._builds = asyncio.Semaphore(BUILDS_AT_ONCE_MAX)

    async def python_for(self, package: Unpacked) -> Path:
        """The interpreter for a package: the worker's own where it requires nothing. It stays until
        ``release``.

        Raises ``EnvironmentNotBuilt``, ``OSError``.
        """
        if not package.requirements.strip() and not package.wheels:
            return Path(sys.executable)
        digest = await asyncio.to_thread(digest_of, package)
        place = self._directory / digest
        python = place / "bin" / "python"
        # Instances of one function come at the same time: the first builds, the others wait.
        async with self._locks.setdefault(digest, asyncio.Lock()):
            if not (place / FINISHED).exists():
                async with self._builds:
                    # Neither what is used nor what is being built makes room.
                    built = (each for each, lock in self._locks.items() if lock.locked())
                    await asyncio.to_thread(self._make_room, place, {*self._used, *built})
                    try:
                        async with asyncio.timeout(self._timeout_s):
                            await self._build(place, python, package)
                    except TimeoutError:
                        reason = f"pip did not end within {self._timeout_s:g} s"
                        raise EnvironmentNotBuilt(reason, "") from None
            self._used[digest] += 1
        return python

    def release(self, python: Path) -> None:
        """A package that got this interpreter needs it no more."""
        digest = python.parent.parent.name
        self._used[digest] -= 1
        if self._used[digest] <= 0:
            del self._used[digest]

    def _make_room(self, place: Path, kept: Collection[str]) -> None:
        shutil.rmtree(place, ignore_errors=True)
        self._directory.mkdir(parents=True, exist_ok=True)
        unused = [each for each in self._directory.iterdir() if each.name not in kept]
        unused.sort(key=lambda each: each.stat().st_mtime)
        for each in unused[:-UNUSED_MAX]:
            shutil.rmtree(each, ignore_errors=True)

    async def _build(self, place: Path, python: Path, package: Unpacked) -> None:
        await self._run("-m", "venv", "--without-pip", str(place))
        paths = {"base": str(place), "platbase": str(place)}
        modules = Path(sysconfig.get_path("purelib", "venv", vars=paths))
        # ``addsitedir``, since the worker's folders may name others in files of this kind.
        lines = [f"import site; site.addsitedir({folder!r})\n" for folder in own_modules()]
        (modules / "geminga_worker.pth").write_text("".join(lines), encoding="utf-8")
        options = [option for wheel in package.wheels[:1] for option in _links(wheel)]
        if package.requirements.strip():
            file = place / "requirements.txt"
            file.write_text(package.requirements, encoding="utf-8")
            options += ["-r", str(file)]
        else:
            options.append("--no-index")
        pip = ("-m", "pip", "--python", str(python), "--disable-pip-version-check", "--no-input")
        wheels = map(str, package.wheels)
        await self._run(*pip, "install", "--no-warn-script-location", *options, *wheels)
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
            # pip builds what comes as source with processes of its own: all of them end.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise
        if code:
            raise EnvironmentNotBuilt("what the package requires cannot be installed", output)


def digest_of(package: Unpacked) -> str:
    """What an environment depends on, as one word. Blocks."""
    digest = hashlib.sha256()
    for part in (sys.version, sys.executable, package.requirements):
        digest.update(part.encode() + b"\0")
    for wheel in package.wheels:
        digest.update(wheel.name.encode() + b"\0")
        with wheel.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:32]


def own_modules() -> list[str]:
    """The folders of the distributions that the worker runs with."""
    return [path for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}]


def _links(wheel: Path) -> tuple[str, str]:
    return "--find-links", str(wheel.parent)
