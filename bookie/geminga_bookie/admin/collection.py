"""The endpoints of garbage collection: its state, starting it, suspending compactions.

Facts: ``TriggerGCService``, ``SuspendCompactionService``, ``ResumeCompactionService``,
``GCDetailsService`` and ``GarbageCollectionStatus`` of Apache BookKeeper.
"""

from __future__ import annotations

from http import HTTPStatus

from geminga_bookie.admin.access import AdminAccess
from geminga_bookie.admin.documents.messages import Answer, Refused, Request, json_answer
from geminga_bookie.decisions.garbage import CompactionKind
from geminga_bookie.garbage.collector import Collector

# RocksDB compacts the index by itself: upstream's counter of that stays where it begins.
_NEVER = 0
_JOB = "garbage collection"


async def gc_state(access: AdminAccess, _request: Request) -> Answer:
    """Tell whether a collection that was ordered goes on."""
    return json_answer({"is_in_force_gc": str(_is_forced(access)).lower()})  # a word, as upstream


async def trigger_gc(access: AdminAccess, request: Request) -> Answer:
    """Start a collection, unless one goes on.

    ``forceMinor`` and ``forceMajor`` say which compactions it does; where they do not, it does
    those that are not suspended.
    """
    # The body is optional here; one that is there must be JSON.
    fields = request.fields() if request.body.strip() else {}
    collector = _collector(access)
    is_minor = _flag(fields, "forceMinor", default=CompactionKind.MINOR not in collector.suspended)
    is_major = _flag(fields, "forceMajor", default=CompactionKind.MAJOR not in collector.suspended)
    # A second order while one goes on changes nothing, and is answered alike, as upstream.
    if not _is_forced(access):
        access.start(_JOB, access.bookie.force_gc(is_minor=is_minor, is_major=is_major))
    return json_answer(f"Triggered GC on BookieServer: {access.bookie.bookie_id}")


async def suspended_compactions(access: AdminAccess, _request: Request) -> Answer:
    """Tell which compactions are not done, by order or for want of room."""
    collector = _collector(access)
    # A full disk suspends them too, without an order.
    suspended = collector.suspended
    is_minor = CompactionKind.MINOR in suspended or not collector.may_minor
    is_major = CompactionKind.MAJOR in suspended or not collector.may_major
    # Upstream answers with words, "true" or "false".
    return json_answer(
        {
            "isMinorGcSuspended": str(is_minor).lower(),
            "isMajorGcSuspended": str(is_major).lower(),
        }
    )


async def suspend_compaction(access: AdminAccess, request: Request) -> Answer:
    """Do no more compactions of the kinds that ``suspendMajor`` and ``suspendMinor`` name."""
    wanted = _kinds(request, "suspend")
    # The order holds from the next round on: a compaction that is under way goes on to its end.
    _collector(access).suspended |= set(wanted)
    return _obeyed(access, "Suspend", wanted)


async def resume_compaction(access: AdminAccess, request: Request) -> Answer:
    """Do compactions of the kinds that ``resumeMajor`` and ``resumeMinor`` name again."""
    wanted = _kinds(request, "resume")
    _collector(access).suspended -= set(wanted)
    return _obeyed(access, "Resume", wanted)


async def gc_details(access: AdminAccess, _request: Request) -> Answer:
    """Tell what is going on, and what was done since the start."""
    collector = _collector(access)
    collected = collector.collected
    status = {
        "forceCompacting": _is_forced(access),
        "majorCompacting": collector.compaction is CompactionKind.MAJOR,
        "minorCompacting": collector.compaction is CompactionKind.MINOR,
        "lastMajorCompactionTime": collected.last_major_ms,
        "lastMinorCompactionTime": collected.last_minor_ms,
        "lastEntryLocationCompactionTime": _NEVER,
        "majorCompactionCounter": collected.major_compactions,
        "minorCompactionCounter": collected.minor_compactions,
        "entryLocationCompactionCounter": _NEVER,
    }
    return json_answer([status])


def _collector(access: AdminAccess) -> Collector:
    collector = access.bookie.collector
    assert collector is not None, "HTTP is served after the bookie is open"
    return collector


def _is_forced(access: AdminAccess) -> bool:
    """Whether a collection that was ordered goes on."""
    # The job begins before the collector's part of it, with a checkpoint.
    return _JOB in access.jobs or _collector(access).is_forced


def _kinds(request: Request, verb: str) -> list[CompactionKind]:
    """The compactions that an order names, the major one first. Raises ``Refused``."""
    if not request.body.strip():
        raise Refused(HTTPStatus.BAD_REQUEST, "Empty request body")
    names = {f"{verb}Major": CompactionKind.MAJOR, f"{verb}Minor": CompactionKind.MINOR}
    fields = request.fields()
    if not fields.keys() & names.keys():
        raise Refused(HTTPStatus.BAD_REQUEST, f"No {' or '.join(names)} params found")
    return [kind for name, kind in names.items() if _flag(fields, name, default=False)]


def _obeyed(access: AdminAccess, verb: str, kinds: list[CompactionKind]) -> Answer:
    """Confirm an order in upstream's words."""
    bookie_id = access.bookie.bookie_id
    return json_answer(
        ", ".join(f"{verb} {kind.name.lower()}GC on BookieServer: {bookie_id}" for kind in kinds)
    )


def _flag(fields: dict[str, object], name: str, *, default: bool) -> bool:
    """A boolean, or its word as upstream takes it. Raises ``Refused``."""
    value = fields.get(name, default)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise Refused(HTTPStatus.BAD_REQUEST, f"{name} must be true or false, not {value!r}")
    return value
