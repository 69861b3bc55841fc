"""The registration of a live bookie: its addresses, in an ephemeral node below ``available``.

Facts: ``ZKRegistrationManager``, ``ZKRegistrationClient`` and ``BookieId`` of Apache BookKeeper;
the message is ``BookieServiceInfoFormat`` of DataFormats.proto.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from geminga_protocol.records.encodings.protobuf_records import parse_message, text_of, texts_of
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.ledgers.ledger_metadata import LEDGERS_PATH
from geminga_protocol.records.ledgers_pb2 import BookieServiceInfoFormat

#
#     /ledgers/available/HOST:PORT           takes new entries
#     /ledgers/available/readonly/HOST:PORT  serves reads only
#
# Both are ephemeral. A bookie whose disks fill up changes from one to the other.
#
# Its children are named by the ids of bookies that take new entries; one more child is the parent
# of the read-only bookies' nodes.
AVAILABLE_PATH = f"{LEDGERS_PATH}/available"
READ_ONLY_PATH = f"{AVAILABLE_PATH}/readonly"
READ_ONLY_NODE = "readonly"

# The endpoint that speaks BookKeeper's wire protocol.
RPC_PROTOCOL = "bookie-rpc"
RPC_ENDPOINT_ID = "bookie"
# The endpoint of its HTTP admin and metrics (``HttpService`` of Apache BookKeeper).
HTTP_PROTOCOL = "http"
HTTP_ENDPOINT_ID = "httpserver"

_RECORD = "bookie information"
_PORT = re.compile(r"\d{1,5}", re.ASCII)
# Upstream's pattern: its range from ":" to "_" also admits ";<=>?@[\]^", so these are admitted
# here.
_BOOKIE_ID = re.compile(r"[a-zA-Z0-9:-_.\-]+")


def is_bookie_id(name: str) -> bool:
    """Whether BookKeeper accepts ``name`` as the id of a bookie."""
    # A bookie of this name would have its node where the read-only bookies' parent is.
    return bool(_BOOKIE_ID.fullmatch(name)) and name.lower() != READ_ONLY_NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One address of a bookie, and the protocol that it serves there."""

    id: str
    host: str
    port: int
    protocol: str
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieInfo:
    """A live bookie's endpoints and properties."""

    endpoints: tuple[Endpoint, ...]
    # A bookie's own facts, for operators; no client depends on them.
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_address(cls, host: str, port: int, *, http_port: int | None = None) -> Self:
        """A bookie that serves the wire protocol at ``port``, and perhaps HTTP at ``http_port``."""
        rpc = Endpoint(id=RPC_ENDPOINT_ID, host=host, port=port, protocol=RPC_PROTOCOL)
        if http_port is None:
            return cls(endpoints=(rpc,))
        http = Endpoint(id=HTTP_ENDPOINT_ID, host=host, port=http_port, protocol=HTTP_PROTOCOL)
        return cls(endpoints=(rpc, http))

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the wire protocol; None where the bookie has no such endpoint."""
        for endpoint in self.endpoints:
            if endpoint.protocol == RPC_PROTOCOL:
                return endpoint.host, endpoint.port
        return None

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Host and port of its HTTP admin; None where the bookie has no such endpoint."""
        for endpoint in self.endpoints:
            if endpoint.id == HTTP_ENDPOINT_ID:
                # By its id: several endpoints may speak HTTP.
                return endpoint.host, endpoint.port
        return None

    def encode(self) -> bytes:
        """The bytes of the bookie's node."""
        message = BookieServiceInfoFormat(properties=self.properties)
        for endpoint in self.endpoints:
            message.endpoints.add(
                id=endpoint.id,
                port=endpoint.port,
                host=endpoint.host,
                protocol=endpoint.protocol,
                auth=endpoint.auth,
                extensions=endpoint.extensions,
            )
        # Deterministic: maps have no order in protobuf, and equal bookies have equal nodes.
        return message.SerializeToString(deterministic=True)

    @classmethod
    def decode(cls, value: bytes, bookie_id: str) -> Self:
        """Read a bookie's node. Old bookies leave it empty; their id is their ``host:port``.

        Raises ``MalformedRecord``.
        """
        # Bookies before 4.11 (``BookieServiceInfo`` is from then).
        if not value:
            host, _, port = bookie_id.rpartition(":")
            if not host or not _PORT.fullmatch(port):
                raise MalformedRecord(_RECORD, f"no endpoints, and {bookie_id!r} is no address")
            return cls.of_address(host, int(port))
        message = parse_message(BookieServiceInfoFormat, value, _RECORD)
        return cls(
            endpoints=tuple(
                Endpoint(
                    id=text_of(endpoint.id, _RECORD),
                    host=text_of(endpoint.host, _RECORD),
                    port=endpoint.port,
                    protocol=text_of(endpoint.protocol, _RECORD),
                    auth=texts_of(endpoint.auth, _RECORD),
                    extensions=texts_of(endpoint.extensions, _RECORD),
                )
                for endpoint in message.endpoints
            ),
            properties={
                text_of(key, _RECORD): text_of(text, _RECORD)
                for key, text in message.properties.items()
            },
        )
