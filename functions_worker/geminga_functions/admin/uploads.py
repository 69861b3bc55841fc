"""Packages as requests bring them: in a form, or as a URL that this worker fetches.

A package goes to its topic as it comes. One from a URL is fetched once, by the worker that was
asked: instances get the same bytes wherever and whenever they start, though its server changes
them or is gone. What is fetched is for operators to allow: a worker stands in networks that those
who may create functions do not reach.
"""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator, Sequence
from http.client import HTTPMessage
from typing import IO
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from fastapi import Request

from geminga_functions.admin.facade import Facade
from geminga_functions.admin.forms import parts_of
from geminga_functions.admin.kinds import FUNCTIONS, Kind
from geminga_functions.definitions.members import Config, parse
from geminga_functions.names import FunctionName
from geminga_functions.packages.cache import BUILT_IN
from geminga_functions.packages.unpacking import check_file_name
from geminga_server.rest.errors import RestError

SCHEMES = {"http", "https", "file"}
# Upstream's packages management, which brokers here do not have.
MANAGED = ("function://", "source://", "sink://")
# A server that sends nothing for so long sends nothing more.
FETCH_TIMEOUT_S = 30.0
FETCH_BYTES = 256 * 1024


class Upload:
    """What a form of create or update said: the config, and the package that is stored already."""

    def __init__(self) -> None:
        self.config: Config | None = None
        self.package_path = ""
        self.file_name = ""

    async def take(self, request: Request, facade: Facade, kind: Kind, name: FunctionName) -> None:
        """Read the form; the package goes to its topic as it comes. Raises ``RestError``."""
        content_type = request.headers.get("content-type", "")
        async for part in parts_of(content_type, request.stream()):
            if part.name == kind.config_part:
                self.config = parse(await part.read())
            elif part.name == "data" and part.file_name:
                await self._store(facade, name, base_name(part.file_name), part.chunks)
            elif part.name == "url" and (url := (await part.read()).decode("utf-8", "replace")):
                if url.startswith(BUILT_IN):
                    continue  # the config says so too
                config = facade.worker.config
                allowed = (
                    config.additional_enabled_functions_url_patterns
                    if kind is FUNCTIONS
                    else config.additional_enabled_connector_url_patterns
                )
                check_url(url, allowed, kind.word)
                chunks = fetched(url, allowed, kind.word)
                await self._store(facade, name, base_name(unquote(urlsplit(url).path)), chunks)

    async def _store(
        self, facade: Facade, name: FunctionName, file_name: str, chunks: AsyncIterator[bytes]
    ) -> None:
        if self.package_path:
            raise RestError(400, "The form has more than one package")
        check_file_name(file_name)
        path = f"{name}/{uuid4()}-{file_name}"
        await facade.worker.runtime.packages.store(path, file_name, chunks)
        self.package_path, self.file_name = path, file_name


def base_name(path: str) -> str:
    """The file's own name: Windows's clients send paths with theirs."""
    return path.replace("\\", "/").rpartition("/")[2]


def check_url(url: str, allowed: Sequence[str], word: str) -> None:
    """Raise ``RestError`` 400 unless one of the expressions in ``allowed`` matches all of ``url``;
    in upstream's words where it refuses the URL too."""
    if url.startswith(MANAGED):
        raise RestError(
            400,
            f"{url} names a package of packages management, which this cluster does not have: "
            "upload the file with the function",
        )
    if not _is_allowed(url, allowed):
        setting = "Functions" if word == FUNCTIONS.word else "Connector"
        raise RestError(
            400,
            f"{word} Package url is not valid.supported url (http/https/file): upload the file, or "
            f"allow the URL in additionalEnabled{setting}UrlPatterns",
        )


async def fetched(url: str, allowed: Sequence[str], word: str) -> AsyncIterator[bytes]:
    """The content of a URL that ``check_url`` has let pass; redirects lead to what is ``allowed``.
    Raises ``RestError`` 400."""
    try:
        opened = await asyncio.to_thread(_open, url, allowed)
        try:
            while chunk := await asyncio.to_thread(opened.read, FETCH_BYTES):
                yield chunk
        finally:
            await asyncio.to_thread(opened.close)
    except (OSError, ValueError) as error:  # what is no URL, no HTTP, or not there
        raise RestError(400, f"{word} Package {url} cannot be fetched: {error}") from None


def _is_allowed(url: str, allowed: Sequence[str]) -> bool:
    is_known = urlsplit(url).scheme in SCHEMES
    return is_known and any(re.fullmatch(pattern, url) for pattern in allowed)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to what is allowed too: a server must not lead to another network."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = allowed

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """As urllib asks. Raises ``HTTPError``."""
        if not _is_allowed(newurl, self._allowed):
            reason = f"it redirects to {newurl}, which is not allowed"
            raise HTTPError(newurl, code, reason, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(url: str, allowed: Sequence[str]) -> IO[bytes]:
    """The answer of the URL's server. Blocks; raises ``OSError``, ``ValueError``."""
    opener = urllib.request.build_opener(_Redirects(allowed))
    opened: IO[bytes] = opener.open(url, timeout=FETCH_TIMEOUT_S)
    return opened
