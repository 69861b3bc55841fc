"""What a consumer says that makes no sense, over the wire to a real process: it is answered or cut
off, and another consumer of the same Shared subscription gets every message, none of them lost.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.raw_client import ConnectionClosed, RawClient, Refused

from geminga_protocol.pulsar import api_pb2 as api

TOPIC = "persistent://public/default/odd-consumers-"
MESSAGES = 20
MINUS_ONE = 2**64 - 1
SHARED = api.CommandSubscribe.Shared
Say = Callable[[RawClient, int], None]


def entry(ledger_id: int, entry_id: int, ack_set: tuple[int, ...] = ()) -> api.MessageIdData:
    return api.MessageIdData(ledgerId=ledger_id, entryId=entry_id, ack_set=ack_set)


def refused(act: Callable[[], object]) -> None:
    with pytest.raises(Refused):
        act()


def cut_off(client: RawClient) -> None:
    with pytest.raises(ConnectionClosed):
        client.ping()


def permits(count: int) -> Say:
    def say(client: RawClient, _: int) -> None:
        client.flow(1, count)
        cut_off(client)

    return say


def many_permits(client: RawClient, _: int) -> None:
    for _ in range(3):
        client.flow(1, 2**31 - 1)
    client.ping()


def acknowledgements_of_what_is_not_there(client: RawClient, ledger_id: int) -> None:
    client.acknowledge(1, [entry(ledger_id + 1000, 3), entry(MINUS_ONE, MINUS_ONE), entry(0, 0)])
    client.acknowledge(1, [entry(ledger_id, 1 << 40)])
    refused(lambda: client.acknowledge(9, [entry(ledger_id, 0)]))


def cumulative_ones_where_messages_are_shared(client: RawClient, ledger_id: int) -> None:
    cumulative = api.CommandAck.Cumulative
    refused(lambda: client.acknowledge(1, [entry(ledger_id, MESSAGES)], cumulative))
    refused(lambda: client.acknowledge(1, [], cumulative))


def ack_sets_that_fit_nothing(client: RawClient, ledger_id: int) -> None:
    client.acknowledge(1, [entry(ledger_id, 0, (-1,) * 20_000), entry(ledger_id, 1, (-1,) * 9000)])
    client.ping()


def giving_back_what_it_has_not(client: RawClient, ledger_id: int) -> None:
    for consumer_id in (1, 9):
        back = api.CommandRedeliverUnacknowledgedMessages(
            consumer_id=consumer_id, message_ids=[entry(ledger_id, 5), entry(MINUS_ONE, 0)]
        )
        kind = api.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES
        client.send(api.BaseCommand(type=kind, redeliverUnacknowledgedMessages=back))
    client.ping()


def seeks_to_nowhere(client: RawClient, _: int) -> None:
    for consumer_id in (1, 9):
        seek = api.CommandSeek(consumer_id=consumer_id, request_id=client.request_id())
        client.send(api.BaseCommand(type=api.BaseCommand.SEEK, seek=seek))
        refused(lambda: client.expect(api.BaseCommand.SUCCESS))


def unsubscribing_for_all(client: RawClient, _: int) -> None:
    for consumer_id in (1, 9):
        leave = api.CommandUnsubscribe(consumer_id=consumer_id, request_id=client.request_id())
        client.send(api.BaseCommand(type=api.BaseCommand.UNSUBSCRIBE, unsubscribe=leave))
        refused(lambda: client.expect(api.BaseCommand.SUCCESS))


SAYINGS = {
    "no permits": permits(0),
    "permits of 32 bits": permits(2**32 - 1),
    "many permits": many_permits,
    "unknown ids": acknowledgements_of_what_is_not_there,
    "cumulative": cumulative_ones_where_messages_are_shared,
    "ack sets": ack_sets_that_fit_nothing,
    "given back": giving_back_what_it_has_not,
    "seek": seeks_to_nowhere,
    "unsubscribe": unsubscribing_for_all,
}


@pytest.mark.parametrize("name", SAYINGS)
def test_nonsense_of_one_consumer_costs_another_no_message(
    standalone: StandaloneProcess, name: str
) -> None:
    topic = TOPIC + name.replace(" ", "-")
    with RawClient(standalone.service_url) as other, RawClient(standalone.service_url) as odd:
        for client in (other, odd):
            client.connect()
            client.subscribe(topic, "sub", 1, SHARED)
        other.create_producer(topic, 1)
        ids = [other.publish(1, number, b"m") for number in range(MESSAGES)]
        ledger_id, _ = ids[0]
        SAYINGS[name](odd, ledger_id)
        odd.close()
        other.flow(1, 100)
        taken = {
            other.expect(api.BaseCommand.MESSAGE).command.message.message_id.entryId
            for _ in range(MESSAGES)
        }
        assert taken == set(range(MESSAGES))
        other.acknowledge(1, [entry(ledger_id, number) for number in taken])
