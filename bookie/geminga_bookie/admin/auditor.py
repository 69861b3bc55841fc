"""Who is the auditor, as the votes in ZooKeeper say it; who becomes it is auto-recovery's business.

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
    """The bookie id of the auditor; None where nobody was elected. Raises ``CoordinationError``."""
    try:
        votes = votes_in_order(await coordination.children(VOTES_PATH))
        if votes:
            value, _ = await coordination.get(f"{VOTES_PATH}/{votes[0]}")
            return decode_vote(value)
    except (NodeMissing, MalformedRecord):
        pass  # no vote, or one that says nothing: there is the other way to be elected
    try:
        value, _ = await coordination.get(LEADER_PATH)
        return decode_leader(value)
    except (NodeMissing, MalformedRecord):
        return None
