"""Proves that brokers are shown credentials in as many steps as the method has, and fresh ones when
they ask; and where the credentials come from."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, Session, until
from tests.unit.geminga.fake_network import FakeNetwork
from tests.unit.geminga.web import Answered, Asked, web_server

from geminga import (
    Authentication,
    AuthenticationExchange,
    Basic,
    Client,
    ConnectionLost,
    CredentialsUnavailable,
    MutualTls,
    NotAuthenticated,
    OAuth2,
    Opening,
    Tls,
    Token,
    connect,
)
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import NO_REQUEST_ID
from geminga_protocol.pulsar.connect import REFRESH_CHALLENGE

CONNECTED = answers.encode_connected(21, 100_000)


def as_client(
    network: FakeNetwork, broker: FakeBroker, method: Authentication | None
) -> Opening[Client]:
    return connect(broker.url, authentication=method, network=network)


def shown(broker: FakeBroker) -> list[tuple[str, bytes]]:
    """The method and the credentials of each CONNECT."""
    return [
        (each.connect.auth_method_name, each.connect.auth_data)
        for each in broker.of_type(BaseCommand.CONNECT)
    ]


def answered(broker: FakeBroker) -> list[bytes]:
    return [
        each.authResponse.response.auth_data for each in broker.of_type(BaseCommand.AUTH_RESPONSE)
    ]


def challenge(session: Session, question: bytes) -> None:
    session.write(answers.encode_auth_challenge("steps", question, 21))


class Steps:
    """Greets, then answers a challenge with its words backwards."""

    name = "steps"

    def exchange(self, host: str) -> AuthenticationExchange:
        self.host = host
        return self

    async def begin(self) -> bytes:
        return b"hello"

    async def answer(self, challenge: bytes) -> bytes:
        return challenge[::-1]

    async def http_headers(self) -> Mapping[str, str]:
        return {}


@pytest.mark.parametrize(
    ("method", "credentials"),
    [
        (None, ("none", b"")),
        (Token("secret"), ("token", b"secret")),
        (Token(lambda: "from-a-file\n"), ("token", b"from-a-file")),
        (Basic("me", "open:sesame"), ("basic", b"me:open:sesame")),
        (Steps(), ("steps", b"hello")),
    ],
)
async def test_connect_carries_the_credentials(
    network: FakeNetwork,
    broker: FakeBroker,
    method: Authentication | None,
    credentials: tuple[str, bytes],
) -> None:
    async with as_client(network, broker, method) as client:
        await client.producer("orders")
    assert shown(broker) == [credentials]


async def test_a_token_is_asked_for_at_each_connection(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    tokens = iter(["first", "second"])

    async def token() -> str:
        return next(tokens)

    async with as_client(network, broker, Token(token)) as client:
        producer = await client.producer("orders")
        broker.drop_connections()
        await producer.send(b"again")
    assert shown(broker) == [("token", b"first"), ("token", b"second")]


async def test_a_method_may_take_several_steps(network: FakeNetwork, broker: FakeBroker) -> None:
    method = Steps()
    broker.on(BaseCommand.CONNECT, lambda session, _, __: challenge(session, b"abc"))

    def judge(session: Session, command: BaseCommand, _: bytes) -> None:
        if command.authResponse.response.auth_data == b"cba":
            challenge(session, b"xyz")
        else:
            session.write(CONNECTED)

    broker.on(BaseCommand.AUTH_RESPONSE, judge)
    async with as_client(network, broker, method) as client:
        await client.producer("orders")
    assert answered(broker) == [b"cba", b"zyx"]
    assert method.host == "broker"


async def test_a_connection_in_use_answers_with_a_fresh_token(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    tokens = iter(["first", "second"])
    async with as_client(network, broker, Token(lambda: next(tokens))) as client:
        producer = await client.producer("orders")
        challenge(broker.session, REFRESH_CHALLENGE)
        await until(lambda: bool(answered(broker)))
        await producer.send(b"goes on")
        (response,) = broker.of_type(BaseCommand.AUTH_RESPONSE)
    assert shown(broker) == [("token", b"first")]
    assert response.authResponse.response.auth_method_name == "token"
    assert response.authResponse.response.auth_data == b"second"
    assert broker.received[0].connect.feature_flags.supports_auth_refresh


async def test_a_refusal_is_raised_at_once(network: FakeNetwork, broker: FakeBroker) -> None:
    refused = answers.encode_error(NO_REQUEST_ID, api.AuthenticationError, "who are you")
    broker.on(BaseCommand.CONNECT, lambda session, _, __: session.write(refused))
    async with as_client(network, broker, Token("wrong")) as client:
        with pytest.raises(NotAuthenticated, match="who are you"):
            await client.producer("orders")
    assert len(shown(broker)) == 1


async def test_a_method_that_has_nothing_to_show_says_why(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    def token() -> str:
        raise FileNotFoundError("token.txt")

    async with as_client(network, broker, Token(token)) as client:
        with pytest.raises(CredentialsUnavailable, match=r"'token'.*token\.txt"):
            await client.producer("orders")
    assert broker.received == []


async def test_a_challenge_that_cannot_be_answered_ends_the_handshake(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    tokens = ["only"]
    broker.on(BaseCommand.CONNECT, lambda session, _, __: challenge(session, REFRESH_CHALLENGE))
    async with as_client(network, broker, Token(tokens.pop)) as client:
        with pytest.raises(CredentialsUnavailable, match="IndexError"):
            await client.producer("orders")


async def test_a_live_connection_without_fresh_credentials_is_replaced(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    tokens = ["third", "", "first"]

    def token() -> str:
        return tokens.pop() or str(1 // 0)

    async with as_client(network, broker, Token(token)) as client:
        producer = await client.producer("orders")
        challenge(broker.session, REFRESH_CHALLENGE)
        await until(lambda: len(shown(broker)) == 2)
        await producer.send(b"goes on")
    assert [data for _, data in shown(broker)] == [b"first", b"third"]


@pytest.mark.parametrize("method", [None, Steps()])
async def test_challenges_that_make_no_sense_end_the_connection(
    network: FakeNetwork, broker: FakeBroker, method: Authentication | None
) -> None:
    """Without authentication there is no answer; with it, one challenge is answered at a time."""

    def ask_twice(session: Session, _: BaseCommand, __: bytes) -> None:
        challenge(session, b"a")
        challenge(session, b"b")

    broker.on(BaseCommand.CONNECT, ask_twice)
    async with connect(
        broker.url, authentication=method, network=network, operation_timeout_s=1
    ) as client:
        with pytest.raises(ConnectionLost, match="it asks"):
            await client.producer("orders")


def test_mutual_tls_needs_a_certificate() -> None:
    for tls in (None, Tls()):
        with pytest.raises(ValueError, match="certificate_file"):
            connect("pulsar+ssl://broker:6651", tls=tls, authentication=MutualTls())


async def test_lookups_over_http_carry_credentials_too() -> None:
    assert await Token("t").http_headers() == {"Authorization": "Bearer t"}
    assert await Basic("me", "pw").http_headers() == {"Authorization": "Basic bWU6cHc="}
    assert await MutualTls().http_headers() == {}


class Issuer:
    """An authorization server that numbers its tokens."""

    def __init__(self, expires_in: float = 3600) -> None:
        self.issued = 0
        self.expires_in = expires_in

    def answer(self, asked: Asked) -> Answered:
        if asked.path == "/.well-known/openid-configuration":
            return Answered({"token_endpoint": f"http://{asked.headers['Host']}/token"})
        if "client_secret=s%26cret" not in asked.body:
            return Answered({"error": "invalid_client"}, 401)
        self.issued += 1
        return Answered({"access_token": f"token-{self.issued}", "expires_in": self.expires_in})


@pytest.mark.real_loop
async def test_an_oauth2_token_is_used_until_it_is_used_up_or_refused() -> None:
    issuer = Issuer()
    async with web_server(issuer.answer) as server:
        method = OAuth2(server.url, "me", "s&cret", audience="urn:pulsar", scope="all")
        first, second = method.exchange("a"), method.exchange("b")
        assert await first.begin() == await second.begin() == b"token-1"
        posted = server.asked[-1]
        assert (posted.method, posted.path) == ("POST", "/token")
        assert posted.body == (
            "grant_type=client_credentials&client_id=me&client_secret=s%26cret"
            "&audience=urn%3Apulsar&scope=all"
        )
        assert await first.answer(REFRESH_CHALLENGE) == b"token-2"
        # The other connection is asked, too: there is a newer token than the one it has shown.
        assert await second.answer(REFRESH_CHALLENGE) == b"token-2"
        assert await second.answer(REFRESH_CHALLENGE) == b"token-3"
        assert await method.http_headers() == {"Authorization": "Bearer token-3"}
        assert issuer.issued == 3
        issuer.expires_in = 1e-9
        assert await first.answer(REFRESH_CHALLENGE) == b"token-3"
        assert await first.answer(REFRESH_CHALLENGE) == b"token-4"
        assert await method.exchange("c").begin() == b"token-5"


@pytest.mark.real_loop
async def test_an_oauth2_server_that_refuses_is_quoted() -> None:
    async with web_server(Issuer().answer) as server:
        method = OAuth2(server.url, "me", "wrong")
        with pytest.raises(
            CredentialsUnavailable, match="401 without access_token: invalid_client"
        ):
            await method.exchange("a").begin()
    with pytest.raises(CredentialsUnavailable, match="404 without token_endpoint: no reason"):
        async with web_server(lambda _: Answered(b"not here", 404)) as server:
            await OAuth2(server.url, "me", "s").exchange("a").begin()
