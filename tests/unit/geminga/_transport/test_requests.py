"""Proves that answers find their requests, and that these are bounded in number and time."""

from __future__ import annotations

import asyncio

import pytest

from geminga import (
    BrokerFailed,
    BrokerRefused,
    ConnectionLost,
    RequestTimedOut,
    TooManyRequests,
    TopicNotFound,
)
from geminga._transport.requests import Requests
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import PING, parse_command


def command(wire: bytes) -> BaseCommand:
    return parse_command(wire, 4, len(wire))[0]


async def test_an_answer_ends_its_request() -> None:
    requests = Requests()
    first = requests.add(1, "SEEK", 30)
    second = requests.add(2, "SEEK", 30)
    assert requests.answered(command(answers.encode_success(2)))
    assert not first.done()
    assert (await second).success.request_id == 2
    assert requests.answered(command(answers.encode_success(2)))


async def test_what_is_no_answer_is_left_to_others() -> None:
    assert not Requests().answered(command(PING))


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        (answers.encode_error(1, api.TopicNotFound, "no"), TopicNotFound),
        (answers.encode_error(1, api.UnknownError, "?"), BrokerFailed),
        (answers.encode_error(1, api.TransactionConflict, "?"), BrokerRefused),
        (
            answers.encode_refusal(
                BaseCommand(
                    type=BaseCommand.GET_SCHEMA,
                    getSchema=api.CommandGetSchema(request_id=1, topic="t"),
                ),
                api.TopicNotFound,
                "no",
            ),
            TopicNotFound,
        ),
    ],
)
async def test_an_error_is_raised(wire: bytes, kind: type[BrokerRefused]) -> None:
    requests = Requests()
    answer = requests.add(1, "SEEK", 30)
    requests.answered(command(wire))
    with pytest.raises(BrokerRefused) as caught:
        await answer
    assert type(caught.value) is kind


async def test_an_unanswered_request_times_out() -> None:
    requests = Requests()
    started_s = asyncio.get_running_loop().time()
    with pytest.raises(RequestTimedOut, match="SEEK within 30 s"):
        await requests.add(1, "SEEK", 30)
    assert asyncio.get_running_loop().time() == pytest.approx(started_s + 30)
    assert requests.answered(command(answers.encode_success(1)))


async def test_requests_are_bounded() -> None:
    requests = Requests(requests_max=2)
    requests.add(1, "SEEK", 30)
    requests.add(2, "SEEK", 30)
    with pytest.raises(TooManyRequests):
        requests.add(3, "SEEK", 30)
    requests.answered(command(answers.encode_success(1)))
    requests.add(3, "SEEK", 30)


async def test_all_fail_together_and_late_answers_are_dropped() -> None:
    requests = Requests()
    waiting = [requests.add(number, "SEEK", 30) for number in range(3)]
    waiting[0].cancel()
    requests.fail_all(ConnectionLost("broke"))
    for answer in waiting[1:]:
        with pytest.raises(ConnectionLost):
            await answer
    await asyncio.sleep(60)


async def test_a_request_whose_caller_was_cancelled_gets_no_result() -> None:
    requests = Requests()
    answer = requests.add(1, "SEEK", 30)
    answer.cancel()
    assert requests.answered(command(answers.encode_success(1)))
    requests.add(2, "SEEK", 30).cancel()
    await asyncio.sleep(60)


async def test_a_producer_that_waits_its_turn_is_answered_twice() -> None:
    requests = Requests()
    answer = requests.add(1, "PRODUCER", 30)
    waiting = answers.encode_producer_success(1, "p", is_ready=False)
    assert requests.answered(command(waiting))
    await asyncio.sleep(600)
    assert not answer.done()
    assert requests.answered(command(answers.encode_producer_success(1, "p")))
    assert (await answer).producer_success.producer_ready


async def test_a_forgotten_request_leaves_its_place_to_the_next() -> None:
    requests = Requests(requests_max=1)
    requests.add(1, "PRODUCER", 30)
    requests.forget(1)
    requests.forget(1)
    requests.add(2, "PRODUCER", 30)
