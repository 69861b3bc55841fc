"""The handshake: who a client is, in as many steps as its method of authentication takes; and the
refusal of a connection too many.

    CONNECT ─▶ (AUTH_CHALLENGE ─▶ AUTH_RESPONSE)* ─▶ CONNECTED

When the credentials of a connected client have expired, the same challenges and answers refresh
them while its other commands go on. A client that answers too late is cut off in both cases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar

from google.protobuf.message import Message

from geminga_broker.sessions.command_rules.states import State
from geminga_broker.sessions.commands.command_group import CommandGroup, Handlers
from geminga_broker.sessions.session import Session
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_auth_challenge, encode_connected, encode_error
from geminga_protocol.pulsar.commands import NO_REQUEST_ID
from geminga_protocol.pulsar.connect import REFRESH_CHALLENGE, Forwarded, method_name
from geminga_protocol.pulsar.features import agreed_version, knows_broker_entries
from geminga_server.authentication import (
    Accepted,
    AuthenticationMethod,
    Challenge,
    Exchange,
    Outcome,
    Refused,
)
from geminga_server.connection_limits import Limit

# A connection too many is told so when its client has said CONNECT: the Java client takes an answer
# before that for garbage, and does not show the reason. So long it has time for it, while there are
# no more than this of them, for each takes a file of the broker's own; others are told at once.
REFUSED_WAIT_S = 1.0
REFUSED_WAITING_MAX = 16

Examine = Callable[[bytes], Awaitable[Outcome]]


class Handshake(CommandGroup):
    """Answers CONNECT and AUTH_RESPONSE, and refuses a connection too many."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        # One at a time: the handshake's end, the refusal, the next look at the credentials.
        self._timer: asyncio.TimerHandle | None = None
        self._refusal = b""
        self._is_refusal_waiting = False
        self._knows_refresh = False
        self._method: AuthenticationMethod | None = None
        # The exchange under way, and which of its methods the next AUTH_RESPONSE is given to; None
        # where the client was asked nothing.
        self._exchange: Exchange | None = None
        self._examine_answer: Examine | None = None
        self._expires_at_ms: int | None = None

    def begin(self) -> None:
        """The connection is open: its client has a keep-alive interval for the whole handshake, as
        upstream. That also bounds the number of its challenges."""
        session = self._session
        overdue = partial(session.give_up, "the handshake took too long")
        self._set_timer(session.context.config.keepalive_s, overdue)

    def disconnected(self) -> None:
        """The connection is over."""
        if self._timer is not None:
            self._timer.cancel()
        if self._is_refusal_waiting:
            self._is_refusal_waiting = False
            self._session.context.refused_waiting -= 1

    def _set_timer(self, delay_s: float, act: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, act)

    # A connection too many

    def refuse(self, exceeded: Limit) -> None:
        """Have the client told, in upstream's words, that it is one too many."""
        session, reason = self._session, "Reached the maximum number of connections"
        if exceeded is Limit.ADDRESS:
            reason += f" on address{session.address}"
        self._refusal = encode_error(NO_REQUEST_ID, api.NotAllowedError, reason)
        session.state = State.REFUSED
        if session.context.refused_waiting < REFUSED_WAITING_MAX:
            session.context.refused_waiting += 1
            self._is_refusal_waiting = True
            self._set_timer(REFUSED_WAIT_S, self.tell_refused)
        else:
            self.tell_refused()

    def tell_refused(self) -> None:
        """Tell it now, and close the connection."""
        self._session.send(self._refusal)
        self._session.close()

    # CONNECT and what follows it

    def _handle_connect(self, command: api.CommandConnect) -> None:
        session = self._session
        context = session.context
        session.state = State.AUTHENTICATING
        session.client_version = command.client_version.replace(" ", "_")
        session.protocol_version = agreed_version(command.protocol_version)
        is_exposed = context.config.exposing_broker_entry_metadata_to_client_enabled
        session.gets_broker_entries = is_exposed and knows_broker_entries(command)
        flags = command.feature_flags
        session.tells_source_positions = flags.supports_repl_dedup_by_lid_and_eid
        session.forwarded = Forwarded.of(command)
        self._knows_refresh = flags.supports_auth_refresh
        name = method_name(command)
        self._method = context.authentication.methods.get(name)
        if self._method is not None:
            self._exchange = self._method.exchange()
            self._start(command, self._exchange.begin, command.auth_data)
        elif context.authentication.anonymous is not None:
            self._connected(Accepted(context.authentication.anonymous))
        else:
            self._fail(f"no method of authentication is called {name!r}")

    def _handle_auth_response(self, command: api.CommandAuthResponse) -> None:
        examine, self._examine_answer = self._examine_answer, None
        if examine is None:
            reason = "authResponse answers a challenge, and there was none"
            if self._session.state is not State.CONNECTED:
                raise WireError(reason)
            self._session.send(encode_error(NO_REQUEST_ID, api.NotAllowedError, reason))
            return
        answer = command.response
        if not (answer.HasField("auth_data") and answer.HasField("auth_method_name")):
            raise WireError("an authResponse has a method and data")
        self._start(command, examine, answer.auth_data)

    def _start(self, command: Message, examine: Examine, data: bytes) -> None:
        """Examine what the client brought; until that is done, no AUTH_RESPONSE is expected."""
        self._session.start(command, self._decide(examine, data))

    async def _decide(self, examine: Examine, data: bytes) -> None:
        try:
            outcome = await examine(data)
        except BaseException as error:
            # Also where it took too long: what could not be examined is not accepted.
            self._fail(repr(error))
            raise
        if self._session.state is State.CLOSED:
            return
        match outcome:
            case Challenge(question):
                assert self._exchange is not None
                self._ask(question, self._exchange.answer)
            case Refused(reason):
                self._fail(reason)
            case Accepted() if self._session.state is State.CONNECTED:
                self._refreshed(outcome)
            case Accepted():
                self._connected(outcome)

    def _ask(self, question: bytes, examine: Examine) -> None:
        """Send a challenge, whose answer ``examine`` is given."""
        assert self._method is not None
        self._examine_answer = examine
        version = self._session.protocol_version
        self._session.send(encode_auth_challenge(self._method.name, question, version))

    def _fail(self, reason: str) -> None:
        """Send the client away; it is told as little as by upstream."""
        session = self._session
        if session.state is not State.CLOSED:
            error = api.AuthenticationError
            session.send(encode_error(NO_REQUEST_ID, error, "Failed to authenticate"))
            session.close_because(f"authentication failed: {reason}")

    def _connected(self, accepted: Accepted) -> None:
        """The handshake is done."""
        session = self._session
        context, principal = session.context, accepted.principal
        if self._method is not None and session.forwarded is not None:
            # A claim of the proxy's: the authorizer decides which principals may make it.
            principal = replace(principal, original=session.forwarded.original_principal)
        session.principal = principal
        session.state = State.CONNECTED
        context.counts.connections_greeted += 1
        maximum_bytes = context.config.max_message_bytes
        session.send(encode_connected(session.protocol_version, maximum_bytes))
        session.liveness.begin()
        self._exchange = None
        self._expires_at_ms = accepted.expires_at_ms
        assert self._timer is not None
        self._timer.cancel()
        if self._expires_at_ms is not None:
            self._set_timer(context.authentication.refresh_check_s, self._check_credentials)

    # Refreshing

    def _check_credentials(self) -> None:
        """Ask for fresh credentials where those that were accepted have expired. A client has until
        the next check to answer, however many challenges that takes."""
        session = self._session
        context = session.context
        if self._expires_at_ms is None or session.state is not State.CONNECTED:
            return
        self._set_timer(context.authentication.refresh_check_s, self._check_credentials)
        if context.clock.wall_ms() < self._expires_at_ms:
            return
        objection = self._objection_to_refresh()
        if objection is not None:
            session.close_because(f"credentials have expired, and {objection}")
            return
        assert self._method is not None
        self._exchange = self._method.exchange()
        self._ask(REFRESH_CHALLENGE, self._exchange.begin)

    def _objection_to_refresh(self) -> str | None:
        """Why the client cannot be asked for fresh credentials, or not again."""
        principal = self._session.principal
        assert principal is not None
        if principal.original:
            return "the proxy cannot be asked for those of its client"
        if not self._knows_refresh:
            return "the client cannot be asked for others"
        if self._exchange is not None:
            return "the client did not answer in time"
        return None

    def _refreshed(self, accepted: Accepted) -> None:
        """What the client does goes on under the principal that it had: it must not change."""
        principal = self._session.principal
        assert principal is not None
        if accepted.principal.role != principal.role:
            self._session.close_because(
                f"the principal {principal.role!r} became {accepted.principal.role!r}"
            )
            return
        self._exchange = None
        self._expires_at_ms = accepted.expires_at_ms

    handlers: ClassVar[Handlers] = {
        api.BaseCommand.CONNECT: _handle_connect,
        api.BaseCommand.AUTH_RESPONSE: _handle_auth_response,
    }
