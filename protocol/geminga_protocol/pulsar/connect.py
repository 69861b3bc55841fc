"""What CONNECT says of who is there: credentials, and whom a proxy speaks for."""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_protocol.pulsar import api_pb2 as api

# The name of the method of a client that names none.
NO_METHOD = "none"
# What a broker sends as a challenge when credentials have expired: clients answer with fresh ones.
REFRESH_CHALLENGE = b"PulsarAuthRefresh"
_ENUM_PREFIX = "AuthMethod"


def method_name(command: api.CommandConnect) -> str:
    """The name of the client's method of authentication. Clients before 2.0 name one of an enum:
    its value's name in small letters, without the enum's own."""
    if command.HasField("auth_method_name"):
        return command.auth_method_name
    if command.HasField("auth_method"):
        name = api.AuthMethod.Name(command.auth_method)
        return name.removeprefix(_ENUM_PREFIX).lower()
    return NO_METHOD


@dataclass(frozen=True, slots=True)
class Forwarded:
    """What a proxy says of itself and of its client: claims, which are worth as much as the proxy's
    own credentials. Fields that it leaves out are empty."""

    proxy_version: str
    proxy_to_broker_url: str
    """``host:port`` of the broker that a proxy is to connect to; brokers do not look at it."""
    original_principal: str
    original_auth_method: str
    original_auth_data: str = field(repr=False)

    @classmethod
    def of(cls, command: api.CommandConnect) -> Forwarded | None:
        """What ``command`` forwards; None where no proxy stands between."""
        fields = (
            command.proxy_version,
            command.proxy_to_broker_url,
            command.original_principal,
            command.original_auth_method,
            command.original_auth_data,
        )
        return cls(*fields) if any(fields) else None
