"""Packages of requests: the content of a form's part, or a URL that this worker fetches.

A package is written to its topic as it arrives. One from a URL is fetched once, by the worker that
gets the request. So instances have the same bytes wherever and whenever they start, even if the
server of the URL changes the file or is gone. Operators say which URLs are allowed, since a worker
reaches networks that users who create functions may not reach.
"""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
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
from geminga_functions.packages.archives import check_file_name
from geminga_functions.packages.cache import BUILT_IN
from geminga_server.rest.errors import RestError

SCHEMES = {"http", "https", "file"}
# URLs of upstream's package management, which these brokers do not have.
MANAGED = ("function://", "source://", "sink://")
# A fetch fails if the server sends nothing for so long.
FETCH_TIMEOUT_S = 30.0
# One read in a thread; the store makes parts of its own.
FETCH_BYTES = 256 * 1024


@dataclass(slots=True)
class Upload:
    """The content of a form that creates or updates a component."""

    config: Config | None = None
    # Of the package, which is stored as soon as it has been read; empty without one. The caller
    # must remove it if the request is refused.
    package_path: str = ""
    file_name: str = ""

    async def take(self, request: Request, facade: Facade, kind: Kind, name: FunctionName) -> None:
        """Read the form, and store its package as it arrives. Raises ``RestError``."""
        content_type = request.headers.get("content-type", "")
        # The parts come in the client's order: the config may follow the package, so that the
        # package is stored before it is known whether the config is right.
        async for part in parts_of(content_type, request.stream()):
            if part.name == kind.config_part:
                self.config = parse(await part.read())
            elif part.name == "data" and part.file_name:
                await self._store(facade, name, base_name(part.file_name), part.chunks)
            elif part.name == "url" and (url := (await part.read()).decode("utf-8", "replace")):
                if url.startswith(BUILT_IN):
                    continue  # the config names the connector, too
                config = facade.worker.config
                allowed = (
                    config.additional_enabled_functions_url_patterns
                    if kind is FUNCTIONS
                    else config.additional_enabled_connector_url_patterns
                )
                # Before a request is sent: the URL may name a host that only this worker reaches.
                check_url(url, allowed, kind.word)
                chunks = fetched(url, allowed, kind.word)
                await self._store(facade, name, base_name(unquote(urlsplit(url).path)), chunks)

    async def _store(
        self, facade: Facade, name: FunctionName, file_name: str, chunks: AsyncIterator[bytes]
    ) -> None:
        # The first one is stored already; the caller removes it when this is raised.
        if self.package_path:
            raise RestError(400, "The form has more than one package")
        # Before the content is read, which may be large.
        check_file_name(file_name)
        # A new path for each upload: instances of the old version may still read the old package.
        path = f"{name}/{uuid4()}-{file_name}"
        await facade.worker.runtime.packages.store(path, file_name, chunks)
        # Only once it is stored: until then ``store`` removes what it has begun.
        self.package_path, self.file_name = path, file_name


def base_name(path: str) -> str:
    """The last part of a path, which may have Windows's separators."""
    return path.replace("\\", "/").rpartition("/")[2]


def check_url(url: str, allowed: Sequence[str], word: str) -> None:
    """Check that one of the expressions in ``allowed`` matches the whole ``url``.

    Raises ``RestError`` 400, with upstream's text if upstream refuses the URL, too.
    """
    # Before the general refusal, whose advice would not help here.
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
    """The content of a URL that ``check_url`` has accepted; redirects must be ``allowed``, too.

    Raises ``RestError`` 400.
    """
    try:
        opener = urllib.request.build_opener(_Redirects(allowed))
        opened = await asyncio.to_thread(opener.open, url, timeout=FETCH_TIMEOUT_S)
        try:
            while chunk := await asyncio.to_thread(opened.read, FETCH_BYTES):
                yield chunk
        finally:
            await asyncio.to_thread(opened.close)
    except (OSError, ValueError) as error:  # not a URL, not HTTP, or not found
        raise RestError(400, f"{word} Package {url} cannot be fetched: {error}") from None


def _is_allowed(url: str, allowed: Sequence[str]) -> bool:
    # urllib knows more schemes than these, such as ftp, and a pattern may be as wide as '.*'.
    is_known = urlsplit(url).scheme in SCHEMES
    return is_known and any(re.fullmatch(pattern, url) for pattern in allowed)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows only allowed redirects: a server must not lead this worker into another network."""

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
        """As ``HTTPRedirectHandler``, which urllib calls. Raises ``HTTPError``."""
        # urllib follows redirects before anything of the answer is seen here.
        if not _is_allowed(newurl, self._allowed):
            reason = f"it redirects to {newurl}, which is not allowed"
            raise HTTPError(newurl, code, reason, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
