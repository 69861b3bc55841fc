"""V3 requests are answered as a bookie of the original answers them, at once or later."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.project_files import GOLDEN
from tests.unit.geminga_bookie.fakes import make_add, make_entry
from tests.unit.geminga_bookie.host import Host
from tests.unit.geminga_bookie.v3_requests import V3Client, add, bookie_info, read, request

from geminga_bookie.sessions.context import DiskSpace
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v2 import encode_read
from geminga_protocol.bookkeeper.v3 import encode_frame
from geminga_protocol.framing import FRAME_SIZE

RECORDED = GOLDEN / "bookie"


async def test_it_answers_the_recorded_requests_as_the_original_did() -> None:
    rows = [json.loads(line) for line in (RECORDED / "frames-v3.jsonl").read_text().splitlines()]
    assert len(rows) > 70
    host = Host()
    async with host.bookie():
        client = host.network.connect_client()
        for row in rows:
            asked = bytes.fromhex(row["request"])
            client.send(FRAME_SIZE.pack(len(asked)) + asked)
            frames: list[bytes] = []
            while not frames:
                await asyncio.sleep(0.01)
                frames = client.taken_frames()
            assert [(row["what"], frame.hex()) for frame in frames] == [
                (row["what"], row["answer"])
            ]


async def test_v3_requests_between_v2_requests_are_answered_in_v3() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        client.send(make_add(1, 0), encode_frame(add(1, 1)), make_add(1, 2))
        frames: list[bytes] = []
        while len(frames) < 3:
            await asyncio.sleep(0.01)
            frames += client.taken_frames()
        assert sorted(frame[0] for frame in frames) == [2, 2, 10]
        answers = await client.ask(*(encode_read(1, number) for number in range(3)))
        assert [answer[4] for answer in answers] == [make_entry(1, number) for number in range(3)]
        assert bookie.counters.v3_requests == 1


@pytest.mark.parametrize(
    "asked", [add(-1, 0), add(1, -1), add(1, 0, body=b""), add(1, 0, body=b"x" * 60), read(-1, 0)]
)
async def test_requests_that_make_no_sense_are_refused_with_their_ids(asked: pb.Request) -> None:
    host = Host()
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        answer = await client.ask(asked)
        assert answer.status == pb.EBADREQ
        body = answer.addResponse if answer.HasField("addResponse") else answer.readResponse
        of = asked.addRequest if asked.HasField("addRequest") else asked.readRequest
        assert (body.status, body.ledgerId, body.entryId) == (pb.EBADREQ, of.ledgerId, of.entryId)


@pytest.mark.parametrize(
    "operation", [pb.ADD_ENTRY, pb.READ_ENTRY, pb.START_TLS, pb.RANGE_ADD_ENTRY, pb.GET_BOOKIE_INFO]
)
async def test_what_is_not_served_or_says_nothing_is_a_bad_request(
    operation: pb.OperationType.ValueType,
) -> None:
    host = Host()
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        assert await client.status(request(operation)) == "EBADREQ"
        assert await client.status(add(1, 0)) == "EOK"


async def test_the_disks_are_told_as_asked_for() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = V3Client(host.network.connect_client())
        info = (await client.ask(bookie_info(3))).getBookieInfoResponse
        assert (info.totalDiskCapacity, info.freeDiskSpace) == bookie.disk_space()
        info = (await client.ask(bookie_info(1))).getBookieInfoResponse
        assert not info.HasField("freeDiskSpace")


async def test_a_disk_that_cannot_be_measured_is_an_io_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> DiskSpace:
        raise OSError(5, "no such device any more")

    host = Host()
    bookie = host.bookie()
    monkeypatch.setattr(bookie, "disk_space", fail)
    async with bookie:
        client = V3Client(host.network.connect_client())
        assert await client.status(bookie_info(3)) == "EIO"
