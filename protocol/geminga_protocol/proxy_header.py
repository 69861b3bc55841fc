"""The PROXY protocol: a header in which a load balancer names the client that it forwards.

Versions 1 (text) and 2 (binary) are read, as HAProxy's ``proxy-protocol.txt`` defines them. The
header stands at the very beginning of a stream and may be missing: it cannot be mistaken for a
Pulsar frame, because read as a frame's size either beginning means more than 200 MB.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from struct import Struct

from geminga_protocol.errors import WireError

# Version 1 is a line of text: PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n
# (family, source address, destination address, source port, destination port). The specification
# gives 107 bytes for the longest one.
V1_START = b"PROXY "
V1_END = b"\r\n"
V1_BYTES_MAX = 107

# Version 2:
# +-----------+--------------------+-------------------+--------+-----------+
# | signature | version and command| family, transport | length | addresses |    length counts
# |  12 bytes |  u8                |  u8               |  u16   |           |    what follows it
# +-----------+--------------------+-------------------+--------+-----------+
#  The upper four bits of the third field are the family, the lower four the transport protocol.
#  The addresses are the source's, the destination's, then two ports; extensions may follow.
V2_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V2_HEAD = Struct(">12sBBH")
assert V2_HEAD.size == 16
# Room for the addresses and for extensions, of which the names in a TLS certificate are the
# largest.
V2_REST_BYTES_MAX = 4096
# Version 2 with its two commands: a connection of the balancer's own (a health check), and one that
# it forwards.
LOCAL = 0x20
PROXY = 0x21
# Bytes of an address by family: IPv4, IPv6.
ADDRESS_BYTES = {0x1: 4, 0x2: 16}


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """What a stream begins with."""

    # Bytes of the stream that the header takes; 0 where there is no header.
    size_bytes: int
    # The address that connected to the balancer; None where the balancer itself is the client or
    # does not name one.
    source: str | None = None


NO_HEADER = ProxyHeader(0)


def read_proxy_header(stream: bytes) -> ProxyHeader | None:
    """Read the header at the beginning of ``stream``; None where more bytes are needed to tell.

    Raises ``WireError`` for bytes that begin like a header and are none.
    """
    if stream.startswith(V2_SIGNATURE):
        return _read_v2(stream)
    if stream.startswith(V1_START):
        return _read_v1(stream)
    # The stream may be shorter than the beginning of a header.
    is_begun = any(start.startswith(stream) for start in (V1_START, V2_SIGNATURE))
    return None if is_begun else NO_HEADER


def _read_v1(stream: bytes) -> ProxyHeader | None:
    end = stream.find(V1_END, 0, V1_BYTES_MAX)
    # The line may not have arrived as a whole. With the longest possible line and no end in it, it
    # is no header, and the caller need not wait (or hold bytes) any longer.
    if end < 0:
        if len(stream) >= V1_BYTES_MAX:
            raise WireError("a PROXY header of version 1 has no end")
        return None
    size_bytes = end + len(V1_END)
    words = stream[:end].decode("latin-1").split(" ")
    # The balancer does not name its client. The specification tells receivers to ignore whatever
    # stands between this word and the end of the line.
    if words[1] == "UNKNOWN":
        return ProxyHeader(size_bytes)
    if words[1] not in ("TCP4", "TCP6") or len(words) != 6:
        raise WireError(f"not a PROXY header: {stream[:end]!r}")
    try:
        return ProxyHeader(size_bytes, str(ip_address(words[2])))
    except ValueError as error:
        raise WireError(f"not a PROXY header: {error}") from None


def _read_v2(stream: bytes) -> ProxyHeader | None:
    # The signature alone is 12 of the 16 bytes.
    if len(stream) < V2_HEAD.size:
        return None
    _, command, family, rest_bytes = V2_HEAD.unpack_from(stream)
    if command not in (LOCAL, PROXY) or rest_bytes > V2_REST_BYTES_MAX:
        raise WireError(f"not a PROXY header: command {command:#x}, {rest_bytes} bytes")
    size_bytes = V2_HEAD.size + rest_bytes
    # All extensions are awaited and skipped with the addresses: the stream of the client begins
    # behind them.
    if len(stream) < size_bytes:
        return None
    # A family that is not in the table (unspecified, or a UNIX socket) has no IP address to name.
    # The header is valid nevertheless.
    address_bytes = ADDRESS_BYTES.get(family >> 4)
    if command == LOCAL or address_bytes is None:
        return ProxyHeader(size_bytes)
    if rest_bytes < 2 * address_bytes:
        raise WireError("a PROXY header has no room for its addresses")
    source = stream[V2_HEAD.size : V2_HEAD.size + address_bytes]
    return ProxyHeader(size_bytes, str(ip_address(source)))
