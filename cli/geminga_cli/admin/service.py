"""Requests to brokers' REST, for a program that ends when it has its answer.

It uses ``http.client``: other HTTP libraries take longer to load than a whole request.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urljoin, urlsplit

from geminga_cli.admin.errors import AdminRefused, BrokerUnreachable, InvalidUse

ROOT = "/admin/v2/"
# A broker redirects to the broker that has the topic, which may have changed meanwhile.
REDIRECTS_MAX = 5
# A longer answer is no broker's: the statistics of 100,000 topics take a tenth of it.
ANSWER_BYTES_MAX = 1 << 30
DEFAULT_PORTS = {"http": 80, "https": 443}
TOKEN, TOKEN_FILE = "token:", "file:"
FILE_READ_BYTES = 256 * 1024
# Random bytes of the line between the parts of a form: no file contains it by chance.
BOUNDARY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer. Names of headers are in lower case."""

    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class FormPart:
    """One part of a multipart form: a text, or a file whose content is streamed."""

    name: str
    content: str | Path
    media_type: str = "text/plain"

    def head(self, boundary: str) -> bytes:
        """The bytes before the content."""
        words = f'form-data; name="{self.name}"'
        if isinstance(self.content, Path):
            # As browsers do: quotes and backslashes would end the name.
            file_name = self.content.name.replace("\\", "\\\\").replace('"', '\\"')
            words += f'; filename="{file_name}"'
        head = f"--{boundary}\r\nContent-Disposition: {words}\r\n"
        return f"{head}Content-Type: {self.media_type}\r\n\r\n".encode()


class AdminService:
    """The REST of the broker at ``url``, and of those that it redirects to; operations ask it."""

    def __init__(
        self, url: str, *, auth_params: str = "", tls: TlsOptions | None = None, timeout_s: float
    ) -> None:
        """``auth_params`` is ``token:TEXT`` or ``token:file:///PATH``, or empty.

        Raises ``InvalidUse``.
        """
        # Found here, and not as a connection that fails: the URL is mostly what was mistyped.
        if urlsplit(url).scheme not in DEFAULT_PORTS or not urlsplit(url).hostname:
            raise InvalidUse(f"{url!r} should be a URL such as http://localhost:8080")
        self._url = url
        self._tls = tls or TlsOptions()
        self._timeout_s = timeout_s
        # Java's endpoints answer text or JSON, and refuse a request that takes only the other.
        self._headers = {"Accept": "*/*", **_authorization(auth_params)}
        # Only this thread uses them, one request at a time: each answer is read to its end before
        # the next request goes out.
        #
        # By scheme and ``host:port``: connections that are kept for the next request.
        self._open: dict[tuple[str, str], http.client.HTTPConnection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._open.values():
            connection.close()

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        content: Any = None,  # noqa: ANN401 - JSON
    ) -> Any:  # noqa: ANN401 - JSON
        """Send a request; returns the JSON of the answer, None for an empty one.

        ``path`` is below ``/admin/v2/`` unless it begins with a slash; ``content`` is sent as JSON
        unless it is None. Raises ``AdminRefused``, ``BrokerUnreachable``.
        """
        body = None
        if content is not None:
            body = _Body("application/json", (json.dumps(content).encode(),))
        return _value_of(self._exchange(method, path, query, body).body)

    def fetch(self, path: str, query: Mapping[str, Any] | None = None) -> Answer:
        """GET a path; returns the answer as it is. Raises as ``ask``."""
        return self._exchange("GET", path, query, None)

    def submit(self, method: str, path: str, parts: Sequence[FormPart]) -> Any:  # noqa: ANN401 - JSON
        """Send a multipart form; returns the JSON of the answer.

        Raises as ``ask``, and ``InvalidUse`` for a file that cannot be read.
        """
        # Between the parts no length is written, so that the files are streamed as they are.
        boundary = os.urandom(BOUNDARY_BYTES).hex()
        content: list[bytes | Path] = []
        for part in parts:
            inner = part.content
            content += [
                part.head(boundary),
                inner if isinstance(inner, Path) else inner.encode(),
                b"\r\n",
            ]
        content.append(f"--{boundary}--\r\n".encode())
        body = _Body(f"multipart/form-data; boundary={boundary}", tuple(content))
        return _value_of(self._exchange(method, path, None, body).body)

    def download(self, path: str, query: Mapping[str, Any], file: Path) -> None:
        """GET a path, and write the answer into ``file``.

        Raises as ``ask``, and ``InvalidUse`` if the file cannot be written.
        """
        self._exchange("GET", path, query, None, into=file)

    def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: _Body | None,
        into: Path | None = None,
    ) -> Answer:
        # Booleans as JSON and Java write them: ``true``.
        words = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in (query or {}).items()
        }
        asked = urlencode(words)
        target = path if path.startswith("/") else ROOT + path
        url = urljoin(self._url, target + (f"?{asked}" if asked else ""))
        # The method and the body stay the same, unlike in a browser: REST redirects with 307.
        status, headers, answered = self._once(method, url, body, into)
        # A broker that is not the owner of a topic redirects with the owner's address.
        for _ in range(REDIRECTS_MAX):
            if status // 100 != 3:
                break
            url = urljoin(url, headers.get("location", url))
            # The credentials go along to the broker that the answer names: it is of the same
            # cluster.
            status, headers, answered = self._once(method, url, body, into)
        if status // 100 == 2:
            return Answer(headers, answered)
        raise AdminRefused.of(status, _reason(answered))

    def _once(
        self, method: str, url: str, body: _Body | None, into: Path | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        parts = urlsplit(url)
        headers = dict(self._headers)
        if body is not None:
            headers |= {"Content-Type": body.media_type, "Content-Length": str(body.size_bytes())}
        # The fragment of a URL, if a redirect has one, is for browsers.
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        try:
            # After an answer that closes its connection, http.client opens it again for the next
            # request.
            connection = self._open.get((parts.scheme, parts.netloc))
            if connection is None:
                timeout_s = self._timeout_s
                connection = (
                    http.client.HTTPSConnection(
                        parts.netloc, timeout=timeout_s, context=self._tls.context()
                    )
                    if parts.scheme == "https"
                    else http.client.HTTPConnection(parts.netloc, timeout=timeout_s)
                )
                self._open[parts.scheme, parts.netloc] = connection
            # A server may refuse a long body, and close the connection, while the body is being
            # sent. Its answer can still be read.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, target, body, headers)
            # Also after a request that could not be sent to its end: if there is no answer either,
            # this raises, and the reason is reported as of a broker that does not answer.
            response = connection.getresponse()
            # Only now is the file opened: a refusal must not empty one that is there.
            if into is not None and response.status // 100 == 2:
                try:
                    opened = into.open("wb")
                except OSError as error:
                    raise InvalidUse(f"{into} cannot be written: {error}") from None
                with opened:
                    shutil.copyfileobj(response, opened, FILE_READ_BYTES)
            # Also of a redirect: the connection can be used again only when its answer is read.
            answered = response.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException, ValueError) as error:
            where = f"{parts.scheme}://{parts.netloc}"
            raise BrokerUnreachable(where, str(error) or type(error).__name__) from None
        # HTTP's names ignore case, dictionaries do not.
        return response.status, {k.lower(): v for k, v in response.headers.items()}, answered


@dataclass(frozen=True, slots=True)
class _Body:
    """The body of a request. It can be iterated over again, for the target of a redirect."""

    media_type: str
    parts: tuple[bytes | Path, ...]

    def size_bytes(self) -> int:
        """The length of the body. Raises ``InvalidUse`` for a file that cannot be read."""
        try:
            return sum(
                part.stat().st_size if isinstance(part, Path) else len(part) for part in self.parts
            )
        except OSError as error:
            raise InvalidUse(f"a file cannot be sent: {error}") from None

    def __iter__(self) -> Iterator[bytes]:
        for part in self.parts:
            if isinstance(part, bytes):
                yield part
                continue
            try:
                # Opened anew for each redirect.
                with part.open("rb") as file:
                    while chunk := file.read(FILE_READ_BYTES):
                        yield chunk
            except OSError as error:
                raise InvalidUse(f"{part} cannot be read: {error}") from None


def _value_of(answered: bytes) -> Any:  # noqa: ANN401 - JSON
    if not answered.strip():
        return None
    try:
        return json.loads(answered)
    except ValueError:  # versions and some others are bare words
        return answered.decode(errors="replace").strip()


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """How the certificates of brokers are verified."""

    # The authorities to trust; None: those of the system.
    trust_file: Path | None = None
    allow_insecure: bool = False
    checks_hostname: bool = True

    def context(self) -> Any:  # noqa: ANN401 - ssl is loaded only where it is used
        """The TLS context. Raises ``InvalidUse`` for a file without certificates."""
        import ssl  # noqa: PLC0415 - takes as long to load as a request without TLS

        try:
            context = ssl.create_default_context(cafile=self.trust_file)
        except (OSError, ssl.SSLError) as error:
            raise InvalidUse(f"{self.trust_file} holds no certificates: {error}") from None
        # In this order: ssl refuses CERT_NONE while host names are checked.
        if self.allow_insecure or not self.checks_hostname:
            context.check_hostname = False
        if self.allow_insecure:
            context.verify_mode = ssl.CERT_NONE
        return context


def _authorization(auth_params: str) -> Mapping[str, str]:
    """The header that authenticates a request, if any."""
    if not auth_params:
        return {}
    if not auth_params.startswith(TOKEN):
        raise InvalidUse(f"--auth-params should be {TOKEN}TEXT or {TOKEN}{TOKEN_FILE}///PATH")
    token = auth_params.removeprefix(TOKEN)
    if token.startswith(TOKEN_FILE):
        # file:///PATH, as the setting of Java's tools has it; a relative path is no URL.
        file = Path(urlsplit(token).path)
        try:
            token = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidUse(f"the token cannot be read from {file}: {error}") from None
    return {"Authorization": f"Bearer {token}"}


def _reason(answered: bytes) -> str:
    """The reason of a refusal: a member of a JSON object, or the beginning of a text.

    A page of HTML comes from a server that is no broker, and explains nothing.
    """
    text = answered.decode(errors="replace")
    try:
        document = json.loads(text)
    except ValueError:
        return "" if "<html" in text.lower() else text[:1_000]
    return str(document.get("reason", text)) if isinstance(document, dict) else text[:1_000]
