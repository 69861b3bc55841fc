"""The header by which a balancer says who is behind it: the PROXY protocol, versions 1 and 2
(HAProxy's ``proxy-protocol.txt``), at the very beginning of a stream.

A header cannot be taken for the beginning of a Pulsar frame: both would be the size of a frame of
more than 200 MB. So a stream may have one, or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from struct import Struct

from geminga_protocol.errors import WireError

# Version 1: PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n
V1_START = b"PROXY "
V1_END = b"\r\n"
V1_BYTES_MAX = 107

# Version 2:
# +-----------+--------------------+-------------------+--------+-----------+
# | signature | version and command| family and way    | length | addresses |    length counts
# |  12 bytes |  u8                |  u8               |  u16   |           |    what follows it
# +-----------+--------------------+-------------------+--------+-----------+
V2_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V2_HEAD = Struct(">12sBBH")
assert V2_HEAD.size == 16
# Addresses, and what balancers add about TLS: a certificate's names.
V2_REST_BYTES_MAX = 4096
LOCAL = 0x20
PROXY = 0x21
# By family: the bytes of an address; the source's comes first.
ADDRESS_BYTES = {0x1: 4, 0x2: 16}


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """The header took ``size_bytes`` of the stream, 0 where there is none. ``source`` is the host
    that connected to the balancer; None where that is the balancer itself, or not said."""

    size_bytes: int
    source: str | None = None


NO_HEADER = ProxyHeader(0)


def read_proxy_header(stream: bytes) -> ProxyHeader | None:
    """The header at the beginning of ``stream``; None where more of it must come first. Raises
    ``WireError`` for what begins as a header and is none."""
    if stream.startswith(V2_SIGNATURE):
        return _read_v2(stream)
    if stream.startswith(V1_START):
        return _read_v1(stream)
    is_begun = any(start.startswith(stream) for start in (V1_START, V2_SIGNATURE))
    return None if is_begun else NO_HEADER


def _read_v1(stream: bytes) -> ProxyHeader | None:
    end = stream.find(V1_END, 0, V1_BYTES_MAX)
    if end < 0:
        if len(stream) >= V1_BYTES_MAX:
            raise WireError("a PROXY header of version 1 has no end")
        return None
    size_bytes = end + len(V1_END)
    words = stream[:end].decode("latin-1").split(" ")
    if words[1] == "UNKNOWN":
        return ProxyHeader(size_bytes)
    if words[1] not in ("TCP4", "TCP6") or len(words) != 6:
        raise WireError(f"not a PROXY header: {stream[:end]!r}")
    try:
        return ProxyHeader(size_bytes, str(ip_address(words[2])))
    except ValueError as error:
        raise WireError(f"not a PROXY header: {error}") from None


def _read_v2(stream: bytes) -> ProxyHeader | None:
    if len(stream) < V2_HEAD.size:
        return None
    _, command, family, rest_bytes = V2_HEAD.unpack_from(stream)
    if command not in (LOCAL, PROXY) or rest_bytes > V2_REST_BYTES_MAX:
        raise WireError(f"not a PROXY header: command {command:#x}, {rest_bytes} bytes")
    size_bytes = V2_HEAD.size + rest_bytes
    if len(stream) < size_bytes:
        return None
    address_bytes = ADDRESS_BYTES.get(family >> 4)
    if command == LOCAL or address_bytes is None:
        return ProxyHeader(size_bytes)
    if rest_bytes < 2 * address_bytes:
        raise WireError("a PROXY header has no room for its addresses")
    source = stream[V2_HEAD.size : V2_HEAD.size + address_bytes]
    return ProxyHeader(size_bytes, str(ip_address(source)))
