"""Proves which ledgers and entries count as too old, and which of them are spared."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain, LedgerSpan
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.subscriptions.decisions.expired_entries import (
    NEVER_MS,
    end_of_expired_ledgers,
    is_expired,
    runs_between,
    split_expired,
)
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import encode_payload

LIMIT_MS = 10_000


def entry(entry_id: int, deliver_at_ms: int | None = None, *, published_ms: int = 1) -> Entry:
    metadata = api.MessageMetadata(
        producer_name="p", sequence_id=entry_id, publish_time=published_ms
    )
    if deliver_at_ms is not None:
        metadata.deliver_at_time = deliver_at_ms
    return entry_id, encode_payload(metadata, b"m"), 1


def test_plain_entries_expire_and_delayed_ones_count_from_their_delivery() -> None:
    run = [entry(3), entry(4, LIMIT_MS + 7), entry(5, LIMIT_MS - 1), entry(6, LIMIT_MS + 2)]
    assert split_expired(run, LIMIT_MS) == ([3, 5], LIMIT_MS + 2)
    assert split_expired(run[:1], LIMIT_MS) == ([3], NEVER_MS)


def test_one_that_is_younger_than_it_stands_stays_unless_its_ledger_is_known_to_be_old() -> None:
    run = [entry(3), entry(4, published_ms=LIMIT_MS), entry(5)]
    assert split_expired(run, LIMIT_MS) == ([3, 5], LIMIT_MS)
    assert split_expired(run, LIMIT_MS, are_old=True) == ([3, 4, 5], NEVER_MS)
    assert is_expired(LedgerSpan(1, 3, closed_at_ms=LIMIT_MS - 1), LIMIT_MS)
    assert not is_expired(LedgerSpan(1, 3, closed_at_ms=LIMIT_MS), LIMIT_MS)
    assert not is_expired(LedgerSpan(1, 3), LIMIT_MS)
    assert not is_expired(None, LIMIT_MS)


def test_an_entry_that_cannot_be_parsed_expires() -> None:
    assert split_expired([(3, b"", 1), (4, b"\x0e\x01 nonsense", 1)], LIMIT_MS) == (
        [3, 4],
        NEVER_MS,
    )


def chain_of(*closed_at_ms: int) -> LedgerChain:
    """Ledgers of ten entries, closed at these times."""
    return LedgerChain(
        LedgerSpan(number, 10, closed_at_ms=closed) for number, closed in enumerate(closed_at_ms, 1)
    )


def test_ledgers_that_were_closed_long_ago_expire_as_a_whole() -> None:
    chain = chain_of(LIMIT_MS - 2, LIMIT_MS - 1, LIMIT_MS, 0)
    start = chain.before_first
    assert end_of_expired_ledgers(chain, start, LIMIT_MS) == Position(2, 9)
    assert end_of_expired_ledgers(chain, Position(2, 5), LIMIT_MS) == Position(2, 9)
    assert end_of_expired_ledgers(chain, Position(3, 5), LIMIT_MS) == Position(3, 5)


def test_an_open_ledger_does_not_expire_as_a_whole() -> None:
    chain = chain_of(0, 1)
    assert end_of_expired_ledgers(chain, chain.before_first, LIMIT_MS) == chain.before_first


position = st.builds(Position, st.integers(0, 4), st.integers(-1, 9))


@given(position, position, st.sets(st.tuples(st.integers(1, 3), st.integers(0, 9))))
def test_runs_between_are_the_entries_between(
    after: Position, upto: Position, entries: set[tuple[int, int]]
) -> None:
    singles = [(ledger, entry, entry) for ledger, entry in sorted(entries)]
    expected = [each for each in singles if after < each[:2] <= upto]
    assert runs_between(singles, after, upto) == expected
    whole = [(ledger, 0, 9) for ledger in (1, 2, 3)]
    found = [
        (ledger, entry)
        for ledger, first, last in runs_between(whole, after, upto)
        for entry in range(first, last + 1)
    ]
    everything = [(ledger, entry) for ledger in (1, 2, 3) for entry in range(10)]
    assert found == [each for each in everything if after < each <= upto]
