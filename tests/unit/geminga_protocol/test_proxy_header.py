"""Proves that PROXY headers are read to the byte, wherever the stream is cut, and nothing else is
taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.errors import WireError
from geminga_protocol.proxy_header import NO_HEADER, ProxyHeader, read_proxy_header

V2 = b"\r\n\r\n\x00\r\nQUIT\n"
V1_TCP4 = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 6650\r\n"
V1_TCP6 = b"PROXY TCP6 2001:db8::1 ::1 56324 6650\r\n"
V2_TCP4 = V2 + b"\x21\x11\x00\x0c" + bytes([192, 0, 2, 1, 198, 51, 100, 1, 0xDC, 4, 0x19, 0xFA])
V2_TCP6 = (
    V2 + b"\x21\x21\x00\x29" + b"\x20\x01\x0d\xb8" + bytes(11) + b"\x01" + bytes(20) + b"tlv.."
)
SOURCES = {
    V1_TCP4: "192.0.2.1",
    V1_TCP6: "2001:db8::1",
    b"PROXY UNKNOWN\r\n": None,
    b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n": None,
    V2_TCP4: "192.0.2.1",
    V2_TCP6: "2001:db8::1",
    V2 + b"\x20\x00\x00\x00": None,
    V2 + b"\x21\x31\x00\x02ab": None,
}


@pytest.mark.parametrize("header", SOURCES)
def test_a_header_says_who_connected_wherever_it_is_cut(header: bytes) -> None:
    for cut in range(len(header)):
        assert read_proxy_header(header[:cut]) is None
    expected = ProxyHeader(len(header), SOURCES[header])
    assert read_proxy_header(header) == expected
    assert read_proxy_header(header + b"\x00\x00\x00\x08and more") == expected


def test_a_pulsar_frame_is_no_header() -> None:
    assert read_proxy_header(b"\x00\x00\x00\x1f\x00\x00\x00\x1b\x08\x02") == NO_HEADER


@pytest.mark.parametrize(
    "stream",
    [
        b"PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n",
        b"PROXY TCP4 nonsense 198.51.100.1 1 2\r\n",
        b"PROXY UDP4 192.0.2.1 198.51.100.1 1 2\r\n",
        b"PROXY " + b"x" * 200,
        V2 + b"\x31\x11\x00\x0c",
        V2 + b"\x21\x11\xff\xff",
        V2 + b"\x21\x11\x00\x02ab",
    ],
)
def test_what_begins_as_a_header_and_is_none_is_refused(stream: bytes) -> None:
    with pytest.raises(WireError):
        read_proxy_header(stream)


@given(st.sampled_from([b"", V2, b"PROXY "]), st.binary(max_size=200))
def test_garbage_gives_an_answer_or_a_wire_error(start: bytes, rest: bytes) -> None:
    try:
        header = read_proxy_header(start + rest)
    except WireError:
        return
    assert header is None or 0 <= header.size_bytes <= len(start + rest)
