"""The parts of CONNECT that identify the client: its credentials, and what a proxy forwards."""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_protocol.pulsar import api_pb2 as api

#     client                          broker
#     CONNECT method, data ─────────▶
#             ◀──────────── AUTH_CHALLENGE    as often as the method asks
#     AUTH_RESPONSE ────────────────▶
#             ◀───────────────── CONNECTED    later challenges are REFRESH_CHALLENGE
#
# The authentication method of a client that names none.
NO_METHOD = "none"
# The challenge that a broker sends when credentials have expired; clients answer it with fresh
# ones.
REFRESH_CHALLENGE = b"PulsarAuthRefresh"
_ENUM_PREFIX = "AuthMethod"


def method_name(command: api.CommandConnect) -> str:
    """The name of the client's authentication method.

    Clients before 2.0 send a value of the enum ``AuthMethod`` instead of a name: AuthMethodAthens
    is the method ``athens``.
    """
    if command.HasField("auth_method_name"):
        return command.auth_method_name
    if command.HasField("auth_method"):
        # The enum has AuthMethodNone, AuthMethodYcaV1 and AuthMethodAthens.
        name = api.AuthMethod.Name(command.auth_method)
        return name.removeprefix(_ENUM_PREFIX).lower()
    return NO_METHOD


@dataclass(frozen=True, slots=True)
class Forwarded:
    """What a proxy claims about itself and about the client behind it.

    A broker may trust these claims as far as it trusts the proxy's own credentials. Fields that the
    proxy leaves out are empty.
    """

    proxy_version: str
    # ``host:port`` of the broker that the client asks a proxy to connect to. Brokers ignore it.
    proxy_to_broker_url: str
    # The role of the client, as the proxy authenticated it.
    original_principal: str
    # The client's own credentials, which a broker can check once more; never in a log.
    original_auth_method: str
    original_auth_data: str = field(repr=False)

    @classmethod
    def of(cls, command: api.CommandConnect) -> Forwarded | None:
        """Take the claims out of ``command``; None where the client connected directly."""
        fields = (
            command.proxy_version,
            command.proxy_to_broker_url,
            command.original_principal,
            command.original_auth_method,
            command.original_auth_data,
        )
        # Absent fields read as empty texts.
        return cls(*fields) if any(fields) else None
