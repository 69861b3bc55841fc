"""Authentication of the client: Pulsar's usual methods, and the protocol for others.

A method begins an exchange with each broker that the client connects to. The exchange gives what
CONNECT carries, then answers the broker's challenges: in the steps of its method, and for fresh
credentials when those that it showed have expired, also on a connection that is in use.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlencode

from geminga._http import HttpRequest, fetch
from geminga.errors import ClientError, CredentialsUnavailable
from geminga.tls import Tls

# A token is replaced when so much of its life is over: none expires on its way to a broker.
_USED_UP = 0.9
# How long a token lives, in seconds, where the authorization server does not say.
_LIFE_S_DEFAULT = 300.0


class AuthenticationExchange(Protocol):
    """Shows one broker who the client is, on one connection.

    Whatever its methods raise ends the attempt to connect, as the reason of a
    ``CredentialsUnavailable``; a ``ClientError`` is raised as it is.
    """

    async def begin(self) -> bytes:
        """Return what CONNECT carries (``auth_data``)."""
        ...

    async def answer(self, challenge: bytes) -> bytes:
        """Return the answer to a broker's challenge.

        ``b"PulsarAuthRefresh"`` asks for fresh credentials: what ``begin`` would return now.
        """
        ...


class Authentication(Protocol):
    """A method of authentication, for ``connect(..., authentication=...)``.

    ``Token``, ``OAuth2``, ``Basic`` and ``MutualTls`` are such methods. A class of your own needs
    these three members, and a plugin of the same name at the brokers.
    """

    @property
    def name(self) -> str:
        """The name by which brokers know the method (``auth_method_name``)."""
        ...

    def exchange(self, host: str) -> AuthenticationExchange:
        """Begin an exchange with the broker at ``host``, for one connection."""
        ...

    async def http_headers(self) -> Mapping[str, str]:
        """Return the headers that lookups over HTTP carry."""
        ...


# What may happen on one connection: ``begin`` once, before CONNECT; then ``answer``, for each
# challenge, of which there is one at a time (``Connection._challenged``).
@dataclass(slots=True, eq=False)
class _OneStepExchange:
    """An exchange of one step: it shows the current credentials, at each challenge anew.

    ``show`` gives them. It is called with what this connection showed before, which the broker no
    longer accepts; with ``None`` at first.
    """

    show: Callable[[bytes | None], Awaitable[bytes]]
    # Not shown in a ``repr``: it is a secret.
    shown: bytes | None = field(default=None, repr=False)

    async def begin(self) -> bytes:
        self.shown = await self.show(self.shown)
        return self.shown

    async def answer(self, challenge: bytes) -> bytes:
        del challenge  # brokers challenge one-step methods for fresh credentials alone
        return await self.begin()


class _OneStep:
    """A method of authentication whose exchanges have one step."""

    # What CONNECT carries, where it is always the same.
    _credentials: bytes = b""

    def exchange(self, host: str) -> AuthenticationExchange:
        """Begin with the broker at ``host``."""
        del host  # every broker is shown the same
        return _OneStepExchange(self._show)

    async def http_headers(self) -> Mapping[str, str]:
        """What lookups over HTTP carry."""
        # Without a refused one: an answer 401 fails the lookup, and the next one asks for the
        # current token.
        return {"Authorization": f"Bearer {(await self._show(None)).decode()}"}

    async def _show(self, refused: bytes | None) -> bytes:
        """The credentials to show, other ones than ``refused`` where there are others."""
        del refused
        return self._credentials


class Token(_OneStep):
    """A token, a JSON Web Token for example: ``Token("eyJh...")``, or a function that returns one.

    The function is called for each connection, and whenever a broker asks for a fresh token, so
    ``Token(lambda: Path("token").read_text())`` follows a file. It may be ``async``; one that is
    not runs in the event loop, and must not take long. White space around a token is dropped.
    """

    name = "token"

    def __init__(self, token: str | Callable[[], str | Awaitable[str]]) -> None:
        self._token = token

    async def _show(self, refused: bytes | None) -> bytes:
        del refused
        # Called each time, so that a function may return a token that was renewed.
        token = self._token if isinstance(self._token, str) else self._token()
        if inspect.isawaitable(token):
            token = await token
        return token.strip().encode()


class Basic(_OneStep):
    """A user name and a password: ``Basic("alice", "secret")``. Both are sent unencrypted unless
    the connection has TLS."""

    name = "basic"

    def __init__(self, user: str, password: str) -> None:
        self._credentials = f"{user}:{password}".encode()

    async def http_headers(self) -> Mapping[str, str]:
        """What lookups over HTTP carry."""
        return {"Authorization": f"Basic {base64.b64encode(self._credentials).decode()}"}


class MutualTls(_OneStep):
    """The client's certificate: ``connect(url, tls=Tls(certificate_file=...),
    authentication=MutualTls())``."""

    # Brokers look at the certificate, and CONNECT carries nothing.
    name = "tls"

    async def http_headers(self) -> Mapping[str, str]:
        """None: the TLS handshake of the connection shows the certificate."""
        return {}


class OAuth2(_OneStep):
    """Tokens from an OAuth 2.0 authorization server, by client credentials (RFC 6749, 4.4):

        OAuth2("https://issuer.example", "client-id", "secret", audience="urn:pulsar")

    ``<issuer_url>/.well-known/openid-configuration`` names the server's token endpoint. A token is
    used until nine tenths of its life are over, or a broker asks for a fresh one. ``tls`` is for
    the authorization server; each of its answers may take ``timeout_s``.
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
        # The current token, and when it is due for replacement in seconds of the loop's clock. Both
        # change only within the lock, and together.
        self._token = b""
        self._replace_at_s = 0.0
        # Of many connections that are opened at the same time, one fetches the token for all.
        self._lock = asyncio.Lock()

    async def token(self, refused: bytes | None = None) -> bytes:
        """A token that is not about to expire, and is another one than ``refused``."""
        loop = asyncio.get_running_loop()
        # Looked at within the lock: another connection may have fetched a token during the wait.
        async with self._lock:
            # Compared with what the connection showed: if another one has replaced that token
            # since, the current one is good and is not fetched again.
            if not self._token or self._token == refused or loop.time() >= self._replace_at_s:
                configuration = f"{self._issuer_url}/.well-known/openid-configuration"
                # Asked each time: the endpoint may have moved, and tokens are fetched rarely.
                found = await self._ask(HttpRequest(configuration), "token_endpoint")
                endpoint = HttpRequest(str(found["token_endpoint"]), body=self._form)
                issued = await self._ask(endpoint, "access_token")
                # Optional in the answer (RFC 6749, 5.1).
                life_s = float(issued.get("expires_in") or _LIFE_S_DEFAULT)
                self._token = str(issued["access_token"]).encode()
                self._replace_at_s = loop.time() + _USED_UP * life_s
            return self._token

    async def _show(self, refused: bytes | None) -> bytes:
        # Not an alias: a subclass may have a token of its own.
        return await self.token(refused)

    async def _ask(self, request: HttpRequest, wanted: str) -> dict[str, Any]:
        """The JSON object that answers ``request``, with ``wanted`` in it."""
        answer = await fetch(request, self._tls, self._timeout_s)
        document: dict[str, Any] = {}
        with suppress(ValueError):
            parsed: object = json.loads(answer.body)
            document = parsed if isinstance(parsed, dict) else {}
        if answer.status != 200 or not document.get(wanted):
            # RFC 6749, 5.2, names the two fields.
            reason = document.get("error_description") or document.get("error") or "no reason"
            raise CredentialsUnavailable(
                self.name, f"{request.url} answers {answer.status} without {wanted}: {reason}"
            )
        return document


async def credentials_of(name: str, work: Awaitable[bytes]) -> bytes:
    """The credentials that a method of authentication shows, or a ``ClientError`` if it has none.

    A method may be a user's own, and raise anything.
    """
    try:
        return await work
    except ClientError:
        raise
    except Exception as error:
        raise CredentialsUnavailable(name, repr(error)) from error
