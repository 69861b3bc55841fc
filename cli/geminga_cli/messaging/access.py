"""Makes the arguments of a client of the options that say how to connect and authenticate.

Methods of authentication have the names of upstream's plugins, or short ones. Their parameters have
the forms that those plugins read: ``token:TEXT``, ``key1:value1,key2:value2``, or a JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from geminga import Authentication, Basic, MutualTls, OAuth2, Tls, Token
from geminga_cli.admin.errors import InvalidUse
from geminga_cli.messaging.files import key_at

_FILE = "file:"


def connect_arguments(given: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of ``geminga.connect`` besides the URL. Raises ``InvalidUse``."""
    arguments: dict[str, Any] = {"listener_name": given.listener_name}
    if given.memory_limit is not None:
        arguments["memory_limit_bytes"] = given.memory_limit
    # Stage 1: the method. From here on ``kind`` is one of our short words, or a wrong one.
    #
    # Parameters alone are a token: the usual case, and pulsar-client's shortest command line.
    plugin = given.auth_plugin or ("token" if given.auth_params else "")
    # Of upstream's org.apache.pulsar.client.impl.auth.AuthenticationTls: "tls".
    kind = plugin.rpartition(".")[2].removeprefix("Authentication").lower()
    # Stage 2: its parameters, in either of two forms.
    parameters: Mapping[str, str] = {}
    if kind not in ("", "token"):
        words: str = given.auth_params
        #     │ tlsCertFile:/a.pem,tlsKeyFile:/a.key
        #     │ {"tlsCertFile": "/a.pem", "tlsKeyFile": "/a.key"}
        #
        # Upstream's plugins take either form (``EncodedAuthenticationParameterSupport``).
        if words.startswith("{"):
            parameters = _object(words.encode())
        else:
            pairs = (each.partition(":") for each in words.split(",") if each)
            parameters = {name.strip(): value for name, _, value in pairs}
    # Stage 3: TLS, also without authentication.
    try:
        tls = Tls(
            trust_file=given.tls_trust_cert_path,
            # Mutual TLS names its certificate among the parameters of authentication, as upstream
            # does.
            certificate_file=parameters.get("tlsCertFile"),
            key_file=parameters.get("tlsKeyFile"),
            checks_hostname=not given.tls_skip_hostname_verification,
            allows_untrusted=given.tls_allow_insecure,
        )
    except ValueError as error:
        raise InvalidUse(f"the options of TLS do not go together: {error}") from None
    if tls != Tls():  # the client refuses options of TLS for a URL without TLS
        arguments["tls"] = tls
    if kind:
        arguments["authentication"] = _method(kind, plugin, given.auth_params, parameters)
    return arguments


def _method(kind: str, plugin: str, words: str, parameters: Mapping[str, str]) -> Authentication:
    """The method ``kind``; ``words`` are its parameters as they were given."""
    try:
        if kind == "token":
            return _token(words)
        if kind == "tls":
            if "tlsCertFile" not in parameters:
                raise KeyError("tlsCertFile")  # noqa: TRY301 - as where others are missing
            return MutualTls()  # whose certificate is an option of TLS
        if kind == "basic":
            return Basic(parameters["userId"], parameters["password"])
        if kind == "oauth2":
            # Upstream's key file: a JSON object with client_id and client_secret, which need not be
            # on the command line.
            own = _object(key_at(parameters["privateKey"]))
            return OAuth2(
                parameters["issuerUrl"],
                own["client_id"],
                own["client_secret"],
                audience=parameters.get("audience"),
                scope=parameters.get("scope"),
            )
    except KeyError as missing:
        raise InvalidUse(f"--auth-params of {plugin} lack {missing.args[0]!r}") from None
    raise InvalidUse(f"--auth-plugin {plugin} is not known: token, tls, basic or oauth2")


def _token(words: str) -> Token:
    text = words.removeprefix("token:")
    # Upstream's other form: {"token": "..."}.
    if text.startswith("{"):
        text = _object(text.encode())["token"]
    if not text:
        raise KeyError("token")
    if not text.startswith(_FILE):
        return Token(text)
    # A missing file is reported before the client connects; later the file is read whenever the
    # client authenticates, because a token may be replaced while the command runs.
    key_at(text)
    return Token(lambda: key_at(text).decode())


def _object(text: bytes) -> Mapping[str, str]:
    try:
        found: object = json.loads(text)
    except ValueError as error:
        raise InvalidUse(f"credentials should be a JSON object: {error}") from None
    if not isinstance(found, dict):
        raise InvalidUse("credentials should be a JSON object")
    return {str(name): str(value) for name, value in found.items()}
