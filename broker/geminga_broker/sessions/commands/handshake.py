"""The handshake: authenticates a client, in as many steps as its method takes; and refuses a
connection too many.

    CONNECT ─▶ (AUTH_CHALLENGE ─▶ AUTH_RESPONSE)* ─▶ CONNECTED

When the credentials of a connected client have expired, the same challenges and answers refresh
them while its other commands go on. A client that answers too late is disconnected in both cases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from geminga_broker.sessions.command_rules.states import State
from geminga_broker.sessions.commands.command_group import CommandGroup, Handlers
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

# A connection too many is refused once its client has sent CONNECT: the Java client takes an answer
# before that for garbage, and does not show the reason. It has REFUSED_WAIT_S for that. Each such
# connection takes a file descriptor: more than REFUSED_WAITING_MAX at a time are refused at once.
# 16 descriptors for a second each: a flood of connections cannot take more.
REFUSED_WAIT_S = 1.0
REFUSED_WAITING_MAX = 16

# Takes what a client sent (credentials, the answer to a challenge) and decides how it goes on.
Examine = Callable[[bytes], Awaitable[Outcome]]


@dataclass(slots=True, eq=False)
class Handshake(CommandGroup):
    """Answers CONNECT and AUTH_RESPONSE, and refuses a connection too many."""

    # One timer for what can only come one after the other: the end of the handshake, the refusal,
    # the next check of the credentials. ``_set_timer`` cancels the one before.
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    # The frame that refuses a connection too many, and whether it waits for CONNECT.
    _refusal: bytes = field(default=b"", init=False)
    _is_refusal_waiting: bool = field(default=False, init=False)
    # The client can be asked for fresh credentials.
    _knows_refresh: bool = field(default=False, init=False)
    _method: AuthenticationMethod | None = field(default=None, init=False)
    # What the two are in each situation:
    #
    #     no exchange                 None       None
    #     credentials are examined    exchange   None       an AUTH_RESPONSE now has no challenge
    #     challenge is with client    exchange   method     taken by the next AUTH_RESPONSE
    #
    # The exchange in progress, and the one of its methods that the next AUTH_RESPONSE goes to; None
    # where the client was sent no challenge.
    _exchange: Exchange | None = field(default=None, init=False)
    _examine_answer: Examine | None = field(default=None, init=False)
    # When the accepted credentials expire, in Unix ms; None: never.
    _expires_at_ms: int | None = field(default=None, init=False)

    def begin(self) -> None:
        """Give the client one keep-alive interval for the whole handshake, as upstream does. That
        bounds the number of its challenges, too."""
        session = self.session
        # Not ``close``: such a client may not read either, and would hold its descriptor.
        overdue = partial(session.give_up, "the handshake took too long")
        self._set_timer(session.context.config.keepalive_s, overdue)

    def disconnected(self) -> None:
        """Cancel the timer, and make room for another connection that waits to be refused."""
        if self._timer is not None:
            self._timer.cancel()
        if self._is_refusal_waiting:
            self._is_refusal_waiting = False
            self.session.context.refused_waiting -= 1

    def _set_timer(self, delay_s: float, act: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, act)

    # A connection too many

    def refuse(self, exceeded: Limit) -> None:
        """Refuse the connection, in upstream's words, as soon as its client can understand it."""
        session, reason = self.session, "Reached the maximum number of connections"
        if exceeded is Limit.ADDRESS:
            reason += f" on address{session.address}"
        self._refusal = encode_error(NO_REQUEST_ID, api.NotAllowedError, reason)
        # In this state the first bytes from the client send the refusal (``Connection``). Whatever
        # the bytes are: nothing of them is decoded.
        session.state = State.REFUSED
        if session.context.refused_waiting < REFUSED_WAITING_MAX:
            session.context.refused_waiting += 1
            self._is_refusal_waiting = True
            self._set_timer(REFUSED_WAIT_S, self.tell_refused)
        else:
            self.tell_refused()

    def tell_refused(self) -> None:
        """Send the refusal now, and close the connection."""
        self.session.send(self._refusal)
        self.session.close()

    # CONNECT and what follows it

    def connect(self, command: api.CommandConnect) -> None:
        """CONNECT: note what the client says of itself, and begin to authenticate it."""
        session = self.session
        context = session.context
        # In the same turn, so that a second CONNECT in the same read is refused.
        session.state = State.AUTHENTICATING
        session.client_version = command.client_version.replace(" ", "_")
        session.protocol_version = agreed_version(command.protocol_version)
        is_exposed = context.config.exposing_broker_entry_metadata_to_client_enabled
        session.gets_broker_entries = is_exposed and knows_broker_entries(command)
        # Each feature is on only if the client names it: older clients do not know its commands.
        flags = command.feature_flags
        session.tells_source_positions = flags.supports_repl_dedup_by_lid_and_eid
        session.forwarded = Forwarded.of(command)
        self._knows_refresh = flags.supports_auth_refresh
        name = method_name(command)
        self._method = context.authentication.methods.get(name)
        if self._method is not None:
            self._exchange = self._method.exchange()
            # Until the task ends, no AUTH_RESPONSE is expected. A task, because methods may wait,
            # say for keys that they fetch.
            session.start(command, self._decide(self._exchange.begin, command.auth_data))
        # A client without a method that the broker has gets the anonymous role, if there is one.
        elif context.authentication.anonymous is not None:
            self._connected(Accepted(context.authentication.anonymous))
        else:
            self._fail(f"no method of authentication is called {name!r}")

    def auth_response(self, command: api.CommandAuthResponse) -> None:
        """AUTH_RESPONSE: the answer to a challenge, in the handshake or a refresh."""
        # Each challenge takes one answer. Taken away before it is examined: a client that answers
        # twice has its second answer refused.
        examine, self._examine_answer = self._examine_answer, None
        if examine is None:
            reason = "authResponse answers a challenge, and there was none"
            if self.session.state is not State.CONNECTED:
                raise WireError(reason)
            self.session.send(encode_error(NO_REQUEST_ID, api.NotAllowedError, reason))
            return
        answer = command.response
        # Optional in the protocol file, but an answer without them cannot be examined.
        if not (answer.HasField("auth_data") and answer.HasField("auth_method_name")):
            raise WireError("an authResponse has a method and data")
        self.session.start(command, self._decide(examine, answer.auth_data))

    async def _decide(self, examine: Examine, data: bytes) -> None:
        try:
            # While this waits, the timer may close the connection, and the client may leave.
            outcome = await examine(data)
        except BaseException as error:
            # Cancelled, too, where it took too long: what was not examined is not accepted.
            self._fail(repr(error))
            raise
        if self.session.state is State.CLOSED:
            return  # the client left, or was too late, while it was examined
        match outcome:
            case Challenge(question):
                assert self._exchange is not None
                self._ask(question, self._exchange.answer)
            case Refused(reason):
                self._fail(reason)
            case Accepted() if self.session.state is State.CONNECTED:
                # A refresh. The producers and consumers of the client were authorized for its
                # principal, so that this must not become another one. Only the role counts: a token
                # with another expiry, or another key, is the same principal.
                principal = self.session.principal
                assert principal is not None
                if outcome.principal.role != principal.role:
                    self.session.close_because(
                        f"the principal {principal.role!r} became {outcome.principal.role!r}"
                    )
                    return
                # The next check finds that the client has answered.
                self._exchange = None
                self._expires_at_ms = outcome.expires_at_ms
            case Accepted():
                self._connected(outcome)

    def _ask(self, question: bytes, examine: Examine) -> None:
        """Send a challenge; its answer goes to ``examine``."""
        assert self._method is not None
        self._examine_answer = examine
        version = self.session.protocol_version
        self.session.send(encode_auth_challenge(self._method.name, question, version))

    def _fail(self, reason: str) -> None:
        """Refuse the client. As upstream, the answer does not say why: that goes to the log."""
        session = self.session
        if session.state is not State.CLOSED:
            error = api.AuthenticationError
            session.send(encode_error(NO_REQUEST_ID, error, "Failed to authenticate"))
            session.close_because(f"authentication failed: {reason}")

    def _connected(self, accepted: Accepted) -> None:
        """End the handshake: the client may use everything its principal is authorized for."""
        session = self.session
        context, principal = session.context, accepted.principal
        if self._method is not None and session.forwarded is not None:
            # Only a claim of the proxy: ``authorize`` decides which principals may make it.
            principal = replace(principal, original=session.forwarded.original_principal)
        session.principal = principal
        # Before the answer is sent: the client may use the connection as soon as it reads it.
        session.state = State.CONNECTED
        context.counts.connections_greeted += 1
        maximum_bytes = context.config.max_message_bytes
        session.send(encode_connected(session.protocol_version, maximum_bytes))
        # From here on keep-alive bounds how long the client may be silent, and the timer of the
        # handshake no longer. Until here the timer of ``begin`` was the only bound.
        session.liveness.begin()
        self._exchange = None
        self._expires_at_ms = accepted.expires_at_ms
        assert self._timer is not None
        self._timer.cancel()
        if self._expires_at_ms is not None:
            self._set_timer(context.authentication.refresh_check_s, self._check_credentials)

    # Refreshing credentials

    def _check_credentials(self) -> None:
        """Ask for fresh credentials where those that were accepted have expired.

        A client has until the next check to answer, however many challenges that takes.
        """
        session = self.session
        context = session.context
        if self._expires_at_ms is None or session.state is not State.CONNECTED:
            return
        self._set_timer(context.authentication.refresh_check_s, self._check_credentials)
        # The next check is scheduled already: a client that has not answered by then is
        # disconnected.
        if context.clock.wall_ms() < self._expires_at_ms:
            return
        objection: str | None = None
        assert session.principal is not None
        if session.principal.original:
            objection = "the proxy cannot be asked for those of its client"
        elif not self._knows_refresh:
            objection = "the client cannot be asked for others"
        elif self._exchange is not None:
            objection = "the client did not answer in time"
        if objection is not None:
            session.close_because(f"credentials have expired, and {objection}")
            return
        assert self._method is not None
        self._exchange = self._method.exchange()
        self._ask(REFRESH_CHALLENGE, self._exchange.begin)

    handlers: ClassVar[Handlers] = {
        api.BaseCommand.CONNECT: connect,
        api.BaseCommand.AUTH_RESPONSE: auth_response,
    }
