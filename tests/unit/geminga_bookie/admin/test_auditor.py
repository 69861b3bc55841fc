"""The auditor is the bookie with the lowest vote, or else the leader of Pulsar's election."""

from __future__ import annotations

from tests.unit.geminga_bookie.fakes import bookie_session

from geminga_bookie.admin.auditor import current_auditor
from geminga_protocol.records.ledgers.underreplication import (
    LEADER_PATH,
    VOTES_PATH,
    encode_leader,
    encode_vote,
)


async def test_the_lowest_vote_counts_by_its_number() -> None:
    coordination = bookie_session()
    assert await current_auditor(coordination) is None
    for number, name in ((10, "b3"), (9, "b2")):
        path = f"{VOTES_PATH}/V_{number:010d}"
        await coordination.create(path, encode_vote(name), make_parents=True)
    await coordination.create(f"{VOTES_PATH}/other", make_parents=True)
    assert await current_auditor(coordination) == "b2"


async def test_without_votes_the_leader_counts() -> None:
    coordination = bookie_session()
    await coordination.create(LEADER_PATH, encode_leader("b7"), make_parents=True)
    assert await current_auditor(coordination) == "b7"


async def test_a_vote_that_names_no_bookie_elects_no_auditor() -> None:
    coordination = bookie_session()
    await coordination.create(f"{VOTES_PATH}/V_0000000001", b"who?", make_parents=True)
    assert await current_auditor(coordination) is None
