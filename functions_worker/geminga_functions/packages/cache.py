"""Packages on a worker's disk, which all instances of a version share.

A package is fetched, unpacked and given an environment when the first instance uses it, and removed
when no instance uses it any more.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from geminga_functions.packages.archives import check_file_name, unpack
from geminga_functions.packages.environments import Environments
from geminga_protocol.functions.functions_pb2 import FunctionMetaData
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

BUILT_IN = "builtin://"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A package that is ready to run."""

    # The file of the package; None for a function that is built in.
    package: Path | None
    # The folders of its modules.
    import_paths: tuple[Path, ...]
    # The interpreter of an environment with what the package requires.
    python: Path


# Reads the package with this path; the bytes are right only if no error comes before their end.
ReadPackage = Callable[[str], AsyncIterator[bytes]]


@dataclass(slots=True)
class _Shared:
    """A package that instances use."""

    folder: Path
    # Its result is a ``Prepared``, or the error that all users of the package get.
    preparing: asyncio.Task[object]
    # Instances that use it or wait for it. The last one to leave removes the package, also while it
    # is still being prepared.
    users: int = 0


class PackageCache(Service):
    """The packages below ``directory``, which belongs to this worker alone."""

    def __init__(self, directory: Path, read: ReadPackage, environments: Environments) -> None:
        super().__init__()
        self._directory = directory.resolve()
        self._read = read
        self._environments = environments
        # By the paths of packages. An entry is here from its first user to its last. A path always
        # stands for the same bytes: each upload gets a new one.
        self._shared: dict[str, _Shared] = {}
        # Folders that were used so far; their numbers are their names.
        self._folders = 0

    async def _open(self, stack: AsyncExitStack) -> None:  # noqa: ARG002 - nothing stays open
        # Packages that an earlier run of the worker left may be incomplete.
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    @asynccontextmanager
    async def use(self, metadata: FunctionMetaData) -> AsyncGenerator[Prepared]:
        """Prepare the package of a function; it stays on the disk until the block ends.

        Raises ``PackageError``, ``ClientError``, ``ServerUnreachable``, ``OSError``.
        """
        location = metadata.packageLocation
        path = location.packagePath
        if not path or path.startswith(BUILT_IN):
            yield Prepared(None, (), Path(sys.executable))
            return
        shared = self._shared.get(path)
        if shared is None:
            # A new folder, since an earlier one of this package may still be being removed.
            self._folders += 1
            folder = self._directory / str(self._folders)
            work = self._outcome(path, location.originalFileName, folder)
            shared = _Shared(folder, self.spawn(work, name=f"package {path}"))
            self._shared[path] = shared
        # Counted before the wait: a user that ends meanwhile must not remove the folder.
        shared.users += 1
        try:
            # Shielded: if this instance is stopped meanwhile, others still wait for the package.
            outcome = await asyncio.shield(shared.preparing)
            if isinstance(outcome, Exception):
                raise outcome
            assert isinstance(outcome, Prepared)
            yield outcome
        finally:
            shared.users -= 1
            if not shared.users:
                await self._remove(path, shared)

    async def _remove(self, path: str, shared: _Shared) -> None:
        # At once: an instance that comes now must prepare the package anew.
        if self._shared.get(path) is shared:
            del self._shared[path]
        # A task that has ended is not changed by it; one that still prepares stops at its next
        # wait, and leaves a part of the folder.
        shared.preparing.cancel()
        await asyncio.wait([shared.preparing])
        if not shared.preparing.cancelled():
            outcome = shared.preparing.result()
            if isinstance(outcome, Prepared):
                self._environments.release(outcome.python)
        # Last, since the task above wrote into it until it ended.
        await asyncio.to_thread(shutil.rmtree, shared.folder, ignore_errors=True)

    async def _outcome(self, path: str, file_name: str, folder: Path) -> Prepared | Exception:
        """Prepare a package; an error is returned, for all instances that wait for the package."""
        try:
            # Again, though uploads check it: the metadata may come from another worker.
            check_file_name(file_name)
            (folder / "file").mkdir(parents=True)
            file = folder / "file" / file_name
            opened = await asyncio.to_thread(file.open, "wb")
            try:
                async for part in self._read(path):
                    await asyncio.to_thread(opened.write, part)
            finally:
                await asyncio.to_thread(opened.close)
            # Only now, with all parts read: ``ReadPackage`` has compared the digest by then.
            unpacked = await asyncio.to_thread(unpack, file, folder / "unpacked")
            python = await self._environments.python_for(unpacked)
        except (GemingaError, OSError) as error:
            return error
        log.info("package prepared", extra={"package": path, "python": str(python)})
        return Prepared(file, unpacked.import_paths, python)
