"""Who the client is: the methods that brokers know, and what a method of one's own has to do.

A method begins an exchange with each broker that the client connects to. The exchange gives what
CONNECT carries, then answers whatever the broker asks: in the steps of its method, and for fresh
credentials when those it showed have expired, also on a connection that is in use.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

from geminga._http import HttpAnswer, HttpRequest, fetch
from geminga.errors import ClientError, CredentialsUnavailable
from geminga.tls import Tls

# A token is replaced when so much of its life is over, so that none expires on its way.
_USED_UP = 0.9
# What is assumed where the authorization server does not tell how long a token lives.
_LIFE_S_DEFAULT = 300.0


class AuthenticationExchange(Protocol):
    """Shows one broker who the client is. Whatever its methods raise ends the attempt to connect,
    as the reason of a ``CredentialsUnavailable``."""

    async def begin(self) -> bytes:
        """What CONNECT carries."""
        ...

    async def answer(self, challenge: bytes) -> bytes:
        """The answer to what the broker asks. ``b"PulsarAuthRefresh"`` asks for fresh credentials:
        what ``begin`` would give now."""
        ...


class Authentication(Protocol):
    """A method of authentication, for ``geminga.connect(..., authentication=...)``."""

    @property
    def name(self) -> str:
        """What brokers call it."""
        ...

    def exchange(self, host: str) -> AuthenticationExchange:
        """Begin with the broker at ``host``."""
        ...

    async def http_headers(self) -> Mapping[str, str]:
        """What lookups over HTTP carry."""
        ...


class _OneStep:
    """An exchange whose answer to everything is what it has to show at that moment."""

    def __init__(self, show: Callable[[], Awaitable[bytes]]) -> None:
        self._show = show

    async def begin(self) -> bytes:
        return await self._show()

    async def answer(self, challenge: bytes) -> bytes:
        del challenge  # one-step methods are only asked for fresh credentials
        return await self._show()


class Token:
    """A token, as JSON Web Tokens are: ``Token("eyJh...")``, or a function that returns one.

    The function is called for each connection, and whenever a broker asks for a fresh token. It
    may be ``async``; one that is not runs in the event loop, and must not take long. White space
    around a token is dropped, as files have it.
    """

    name = "token"

    def __init__(self, token: str | Callable[[], str | Awaitable[str]]) -> None:
        self._token = token

    def exchange(self, host: str) -> AuthenticationExchange:
        """Begin with the broker at ``host``."""
        del host
        return _OneStep(self._show)

    async def http_headers(self) -> Mapping[str, str]:
        """What lookups over HTTP carry."""
        return {"Authorization": f"Bearer {(await self._show()).decode()}"}

    async def _show(self) -> bytes:
        token = self._token if isinstance(self._token, str) else self._token()
        if inspect.isawaitable(token):
            token = await token
        return token.strip().encode()


class Basic:
    """A name and a password. They are sent as they are: use TLS."""

    name = "basic"

    def __init__(self, user: str, password: str) -> None:
        self._credentials = f"{user}:{password}".encode()

    def exchange(self, host: str) -> AuthenticationExchange:
        """Begin with the broker at ``host``."""
        del host
        return _OneStep(self._show)

    async def http_headers(self) -> Mapping[str, str]:
        """What lookups over HTTP carry."""
        return {"Authorization": f"Basic {base64.b64encode(self._credentials).decode()}"}

    async def _show(self) -> bytes:
        return self._credentials


class MutualTls:
    """The client's certificate says who it is: ``Tls(certificate_file=...)`` of the same client."""

    name = "tls"

    def exchange(self, host: str) -> AuthenticationExchange:
        """Begin with the broker at ``host``."""
        del host
        return _OneStep(self._show)

    async def http_headers(self) -> Mapping[str, str]:
        """What lookups over HTTP carry: nothing, the connection says it."""
        return {}

    async def _show(self) -> bytes:
        return b""


class OAuth2:
    """Tokens from an OAuth 2.0 authorization server, for which the client shows its secret
    (RFC 6749, 4.4: client credentials).

    The server is found by ``<issuer_url>/.well-known/openid-configuration``. A token is used until
    it is about to expire, or a broker asks for another. ``tls`` is for the authorization server,
    which ``timeout_s`` bounds for each of its answers.
    """

    name = "token"

    def __init__(
        self,
        issuer_url: str,
        client_id: str,
        client_secret: str,
        *,
        audience: str | None = None,
        scope: str | None = None,
        tls: Tls | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self._issuer_url = issuer_url.rstrip("/")
        form = {
            "grant_type": "client_credentials",
            "client_id": client_id,
            "client_secret": client_secret,
            "audience": audience,
            "scope": scope,
        }
        self._form = urlencode({name: value for name, value in form.items() if value is not None})
        self._tls = tls or Tls()
        self._timeout_s = timeout_s
        self._token = b""
        self._replace_at_s = 0.0
        # Of many connections that are opened at a time, one asks for a token.
        self._lock = asyncio.Lock()

    def exchange(self, host: str) -> AuthenticationExchange:
        """Begin with the broker at ``host``."""
        del host
        return _OAuth2Exchange(self)

    async def http_headers(self) -> Mapping[str, str]:
        """What lookups over HTTP carry."""
        return {"Authorization": f"Bearer {(await self.token()).decode()}"}

    async def token(self, refused: bytes | None = None) -> bytes:
        """A token that is valid for a while yet, and not ``refused``."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if not self._token or self._token == refused or loop.time() >= self._replace_at_s:
                self._token, life_s = await self._fetch_token()
                self._replace_at_s = loop.time() + _USED_UP * life_s
            return self._token

    async def _fetch_token(self) -> tuple[bytes, float]:
        found = await self._ask(
            HttpRequest(f"{self._issuer_url}/.well-known/openid-configuration"), "token_endpoint"
        )
        endpoint = HttpRequest(str(found["token_endpoint"]), body=self._form)
        issued = await self._ask(endpoint, "access_token")
        return str(issued["access_token"]).encode(), float(
            issued.get("expires_in") or _LIFE_S_DEFAULT
        )

    async def _ask(self, request: HttpRequest, wanted: str) -> dict[str, Any]:
        """The JSON object that answers ``request``, with ``wanted`` in it."""
        answer = await fetch(request, self._tls, self._timeout_s)
        document = _json_object(answer)
        if answer.status != 200 or not document.get(wanted):
            # RFC 6749, 5.2
            reason = document.get("error_description") or document.get("error") or "no reason"
            raise CredentialsUnavailable(
                self.name, f"{request.url} answers {answer.status} without {wanted}: {reason}"
            )
        return document


class _OAuth2Exchange:
    """Remembers what it showed: a broker that asks again does not want that token any more."""

    def __init__(self, method: OAuth2) -> None:
        self._method = method
        self._shown: bytes | None = None

    async def begin(self) -> bytes:
        self._shown = await self._method.token()
        return self._shown

    async def answer(self, challenge: bytes) -> bytes:
        del challenge
        self._shown = await self._method.token(refused=self._shown)
        return self._shown


def _json_object(answer: HttpAnswer) -> dict[str, Any]:
    try:
        document: object = json.loads(answer.body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


async def credentials_of(name: str, work: Awaitable[bytes]) -> bytes:
    """What a method of authentication has to show; it may be of the user's, and raise anything.

    Raises ``ClientError``.
    """
    try:
        return await work
    except ClientError:
        raise
    except Exception as error:
        raise CredentialsUnavailable(name, repr(error)) from error
