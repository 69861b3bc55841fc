"""What is no V2 add or read is answered or refused, and never ends a connection in silence."""

from __future__ import annotations

import pytest
from tests.unit.geminga_bookie.fakes import make_add
from tests.unit.geminga_bookie.host import Host
from tests.unit.geminga_bookie.v3_requests import request

from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v3 import encode_frame, parse_response
from geminga_protocol.framing import FRAME_SIZE

AUTH = FRAME_SIZE.pack(25) + b"\x02\x03\0\0" + b"whoever asks may come"


async def test_authentication_is_agreed_to_in_the_version_it_came_in() -> None:
    host = Host()
    async with host.bookie():
        client = await host.network.connect_client().authorized()
        client.send(AUTH)
        (frame,) = client.taken_frames()
        assert frame[:4] == b"\x02\x03\0\0"
        assert pb.AuthMessage.FromString(frame[4:]).authPluginName == "AuthDisabledPlugin"
        client.send(encode_frame(request(pb.AUTH)))
        (frame,) = client.taken_frames()
        response = parse_response(frame)
        assert response.status == pb.EOK
        assert response.authResponse.authPluginName == "AuthDisabledPlugin"


async def test_brokers_that_ask_nothing_rare_pay_nothing_for_it() -> None:
    host = Host()
    async with host.bookie():
        client = await host.network.connect_client().authorized()
        await client.ask(make_add(1, 0))
        assert client.session._rare is None


@pytest.mark.parametrize(
    "frame",
    [b"\x02\x07\0\0" + bytes(20), b"\x02\x07\0\1" + bytes(40), b"\x02\x07\0\0" + b"\xff" * 36],
)
async def test_a_batch_read_that_is_none_closes_the_connection(frame: bytes) -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = await host.network.connect_client().authorized()
        client.send(FRAME_SIZE.pack(len(frame)) + frame)
        assert client.transport.has_ended
        assert bookie.counters.connections_faulty == 1
