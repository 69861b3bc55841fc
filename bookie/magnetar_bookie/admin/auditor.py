"""Who is the auditor, as the votes in ZooKeeper say it; who becomes it is auto-recovery's business.

Facts: ``ZkLedgerAuditorManager`` of Apache BookKeeper, ``PulsarLedgerAuditorManager`` of Apache
Pulsar.
"""

from __future__ import annotations

import re

from magnetar_protocol.records.errors import MalformedRecord
from magnetar_protocol.records.underreplication import (
    LEADER_PATH,
    VOTE_PREFIX,
    VOTES_PATH,
    decode_leader,
    decode_vote,
)
from magnetar_runtime.coordination import Coordination, NodeMissing

_VOTE = re.compile(rf"{VOTE_PREFIX}(-?\d{{1,10}})", re.ASCII)


async def current_auditor(coordination: Coordination) -> str | None:
    """The bookie id of the auditor; None where nobody was elected. Raises ``CoordinationError``."""
    try:
        names = await coordination.children(VOTES_PATH)
        votes = [(int(match[1]), name) for name in names if (match := _VOTE.fullmatch(name))]
        if votes:
            value, _ = await coordination.get(f"{VOTES_PATH}/{min(votes)[1]}")
            return decode_vote(value)
    except (NodeMissing, MalformedRecord):
        pass  # no vote, or one that says nothing: there is the other way to be elected
    try:
        value, _ = await coordination.get(LEADER_PATH)
        return decode_leader(value)
    except (NodeMissing, MalformedRecord):
        return None
