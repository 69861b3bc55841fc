"""``/admin/v3/functions/upload`` and ``download``: packages under paths, and of components."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from tempfile import TemporaryFile
from typing import IO

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from geminga_functions.admin.components import ONE, FacadeArg, FoundArg, KindArg, NameArg
from geminga_functions.admin.components import READS as READS_NAMESPACE
from geminga_functions.admin.facade import Facade
from geminga_functions.admin.forms import Part, parts_of
from geminga_functions.admin.uploads import base_name
from geminga_functions.errors import PackageNotFound, PackageTooLarge
from geminga_functions.packages.cache import BUILT_IN
from geminga_server.authorization import Action
from geminga_server.rest.access import on_cluster
from geminga_server.rest.answers import no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import flag

READ_BYTES = 256 * 1024
# The name of a package's topic is made of its path.
PATH_CHARACTERS_MAX = 1024

router = APIRouter()


def _uploaded(path: str) -> str:
    """The path that a package uploaded under ``path`` is stored by.

    Packages of components never have paths with a slash at the beginning, so that an upload cannot
    replace one.
    """
    return f"/{path}"


@router.post("/admin/v3/functions/upload", dependencies=[on_cluster(Action.ADMINISTER)])
async def upload(request: Request, facade: FacadeArg) -> Response:
    """Store a file under a path; an earlier one is replaced. Raises ``RestError`` 400."""
    packages = facade.worker.runtime.packages
    path, file_name = "", None
    # Upstream's clients send the file before its path: until then it is kept on the disk.
    with TemporaryFile() as file:
        async for part in parts_of(request.headers.get("content-type", ""), request.stream()):
            if part.name == "path":
                path = (await part.read()).decode("utf-8", "replace").strip()
            elif part.name == "data":
                # Some clients send the whole path on their machine.
                file_name = base_name(part.file_name)
                await _spool(part, file, packages.bytes_max)
        if not path or file_name is None:
            raise RestError(400, f"Function Package is not provided {path}".rstrip())
        if len(path) > PATH_CHARACTERS_MAX:
            raise RestError(400, f"A path has at most {PATH_CHARACTERS_MAX} characters")
        # Only once it is complete: storing it begins with removing the one before.
        await packages.store(_uploaded(path), file_name, _chunks_of(file))
    return no_content()


async def _spool(part: Part, file: IO[bytes], bytes_max: int) -> None:
    file.truncate(0)  # of several files in a form, the last one counts
    size_bytes = 0
    async for chunk in part.chunks:
        size_bytes += len(chunk)
        # Checked before it is written: the disk must hold no more than is allowed.
        if size_bytes > bytes_max:
            raise PackageTooLarge(part.file_name, size_bytes, bytes_max)
        await asyncio.to_thread(file.write, chunk)


async def _chunks_of(file: IO[bytes]) -> AsyncIterator[bytes]:
    file.seek(0)
    # Disks are read and written in threads: 256 KiB may take longer than the loop may wait.
    while chunk := await asyncio.to_thread(file.read, READ_BYTES):
        yield chunk


@router.get("/admin/v3/functions/download", dependencies=[on_cluster(Action.READ)])
async def download_path(request: Request, facade: FacadeArg) -> Response:
    """Download the file that was uploaded under ``path``.

    Raises ``RestError`` 404 if there is none; upstream answers with an empty body.
    """
    return await _content(facade, _uploaded(request.query_params.get("path", "")))


@router.get(ONE + "/download", dependencies=READS_NAMESPACE)
async def download(
    request: Request, facade: FacadeArg, kind: KindArg, name: NameArg, found: FoundArg
) -> Response:
    """Download the package of a component, as it was uploaded."""
    path = found.packageLocation.packagePath
    if flag(request, "transform-function"):
        raise RestError(404, f"{kind.word} {name.name} has no transform function")
    if path.startswith(BUILT_IN):
        raise RestError(400, f"{kind.word} {name.name} is built in and has no package")
    return await _content(facade, path)


async def _content(facade: Facade, path: str) -> Response:
    # Nothing is read yet: a generator begins with its first ``anext``.
    chunks = facade.worker.runtime.packages.read(path)
    # The first part is read before the answer begins: an error can still have a status of its own.
    try:
        first = await anext(chunks, b"")
    except PackageNotFound:
        raise RestError(404, f"No package is stored under {path.removeprefix('/')!r}") from None

    async def content() -> AsyncIterator[bytes]:
        yield first
        async for chunk in chunks:
            yield chunk

    # An error after the first part cuts the answer short: the client sees a chunked body without an
    # end.
    return StreamingResponse(content(), media_type="application/octet-stream")
