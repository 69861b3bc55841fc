"""The endpoints of garbage collection: begin one now, and how it stands.

Facts: ``TriggerGCService``, ``GCDetailsService`` and ``GarbageCollectionStatus`` of Apache
BookKeeper.
"""

from __future__ import annotations

from http import HTTPStatus

from magnetar_bookie.admin.access import AdminAccess
from magnetar_bookie.admin.messages import Answer, Refused, Request, json_answer
from magnetar_bookie.garbage.garbage import Compaction

# RocksDB compacts the index by itself: upstream's counter of that stays where it begins.
_NEVER = 0


async def gc_state(access: AdminAccess, _request: Request) -> Answer:
    """Whether a collection that was ordered goes on."""
    collector = access.bookie.collector
    is_forced = collector is not None and collector.is_forced
    return json_answer({"is_in_force_gc": "true" if is_forced else "false"})


async def trigger_gc(access: AdminAccess, request: Request) -> Answer:
    """Begin a collection, unless one goes on; ``forceMinor`` and ``forceMajor`` may leave out."""
    fields = request.fields() if request.body.strip() else {}
    is_minor = _flag(fields, "forceMinor")
    is_major = _flag(fields, "forceMajor")
    bookie = access.bookie
    collector = bookie.collector
    if collector is not None and not collector.is_forced:
        access.start("garbage collection", bookie.force_gc(is_minor=is_minor, is_major=is_major))
    return json_answer(f"Triggered GC on BookieServer: {bookie.bookie_id}")


async def gc_details(access: AdminAccess, _request: Request) -> Answer:
    """What is going on, and what was done since the start."""
    collector = access.bookie.collector
    assert collector is not None, "HTTP is served after the bookie is open"
    collected = collector.collected
    status = {
        "forceCompacting": collector.is_forced,
        "majorCompacting": collector.compaction is Compaction.MAJOR,
        "minorCompacting": collector.compaction is Compaction.MINOR,
        "lastMajorCompactionTime": collected.last_major_ms,
        "lastMinorCompactionTime": collected.last_minor_ms,
        "lastEntryLocationCompactionTime": _NEVER,
        "majorCompactionCounter": collected.major_compactions,
        "minorCompactionCounter": collected.minor_compactions,
        "entryLocationCompactionCounter": _NEVER,
    }
    return json_answer([status])


def _flag(fields: dict[str, object], name: str) -> bool:
    """A boolean, or its word as upstream takes it; true where it is not given."""
    value = fields.get(name, True)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise Refused(HTTPStatus.BAD_REQUEST, f"{name} must be true or false, not {value!r}")
    return value
