"""Proves what options of TLS and authentication make of a client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from geminga import Basic, MutualTls, OAuth2, Token
from geminga_cli.admin.errors import InvalidUse
from geminga_cli.commands.read import make_parser
from geminga_cli.messaging.access import connect_arguments

UPSTREAM = "org.apache.pulsar.client.impl.auth"


def arguments_of(*words: str) -> dict[str, Any]:
    return connect_arguments(make_parser().parse_args(["t", *words]))


async def shown(authentication: Any) -> bytes:
    return bytes(await authentication.exchange("host").begin())


async def test_a_token_is_given_or_read_from_its_file_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    for words, token in (
        (["--auth-params", "token:abc"], b"abc"),
        (["--auth-plugin", f"{UPSTREAM}.AuthenticationToken", "--auth-params", "abc"], b"abc"),
        (["--auth-plugin", "token", "--auth-params", json.dumps({"token": "abc"})], b"abc"),
        (["--auth-params", f"token:file://{file}"], b"first"),
    ):
        authentication = arguments_of(*words)["authentication"]
        assert isinstance(authentication, Token)
        assert await shown(authentication) == token
    file.write_text("second\n")
    assert await shown(authentication) == b"second"


async def test_other_methods_have_the_parameters_of_upstream(tmp_path: Path) -> None:
    basic = arguments_of("--auth-plugin", "basic", "--auth-params", "userId:me,password:a:b")
    assert isinstance(basic["authentication"], Basic)
    assert await shown(basic["authentication"]) == b"me:a:b"
    words = ("--auth-plugin", f"{UPSTREAM}.AuthenticationTls")
    mutual = arguments_of(*words, "--auth-params", "tlsCertFile:/c.pem,tlsKeyFile:/k.pem")
    assert isinstance(mutual["authentication"], MutualTls)
    assert (mutual["tls"].certificate_file, mutual["tls"].key_file) == ("/c.pem", "/k.pem")
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({"client_id": "me", "client_secret": "s"}))
    said = {"issuerUrl": "https://i", "privateKey": f"file://{secret}", "audience": "a"}
    words = ("--auth-plugin", f"{UPSTREAM}.oauth2.AuthenticationOAuth2")
    made = arguments_of(*words, "--auth-params", json.dumps(said))
    assert isinstance(made["authentication"], OAuth2)


def test_the_client_authenticates_only_where_parameters_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GEMINGA_AUTH_PARAMS", raising=False)
    assert arguments_of() == {"listener_name": None}
    monkeypatch.setenv("GEMINGA_AUTH_PARAMS", "token:abc")
    assert isinstance(arguments_of()["authentication"], Token)


def test_tls_trusts_what_is_said() -> None:
    tls = arguments_of("--tlsTrustCertsFilePath", "ca.pem")["tls"]
    assert (tls.trust_file, tls.checks_hostname, tls.allows_untrusted) == ("ca.pem", True, False)
    tls = arguments_of("--tls-allow-insecure", "--tls-skip-hostname-verification")["tls"]
    assert (tls.checks_hostname, tls.allows_untrusted) == (False, True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--auth-plugin", "sasl"], "is not known"),
        (["--auth-plugin", "token"], "lack 'token'"),
        (["--auth-plugin", "basic", "--auth-params", "userId:me"], "lack 'password'"),
        (["--auth-plugin", "tls"], "lack 'tlsCertFile'"),
        (["--auth-plugin", "basic", "--auth-params", "{"], "a JSON object"),
        (["--auth-params", "token:file:///nowhere"], "cannot be read"),
        (["--tls-allow-insecure", "--tls-trust-cert-path", "ca.pem"], "do not go together"),
    ],
)
def test_what_is_of_no_use_is_refused(words: list[str], reason: str) -> None:
    with pytest.raises(InvalidUse, match=reason):
        arguments_of(*words)
