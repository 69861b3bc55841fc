"""Which bookie is the auditor, by the votes in ZooKeeper.

Electing it is auto-recovery's business (``geminga_autorecovery.auditing.election``).

Facts: ``ZkLedgerAuditorManager`` of Apache BookKeeper, ``PulsarLedgerAuditorManager`` of Apache
Pulsar.
"""

from __future__ import annotations

from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.ledgers.underreplication import (
    LEADER_PATH,
    VOTES_PATH,
    decode_leader,
    decode_vote,
    votes_in_order,
)
from geminga_runtime.coordination import Coordination, NodeMissing


async def current_auditor(coordination: Coordination) -> str | None:
    """The bookie id of the auditor; None where none is elected. Raises ``CoordinationError``."""
    # BookKeeper's own way to elect: the oldest vote wins. Pulsar's metadata drivers have another
    # one, with a single node for the leader.
    try:
        votes = votes_in_order(await coordination.children(VOTES_PATH))
        if votes:
            value, _ = await coordination.get(f"{VOTES_PATH}/{votes[0]}")
            return decode_vote(value)
    except (NodeMissing, MalformedRecord):
        pass  # no vote, or one that says nothing: look for a leader of the other way
    try:
        value, _ = await coordination.get(LEADER_PATH)
        return decode_leader(value)
    except (NodeMissing, MalformedRecord):
        return None
