"""Which path and method goes to which endpoint, and which right a client needs for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from geminga_bookie.admin import bookies, collection, ledgers, recovery, this_bookie
from geminga_bookie.admin.access import AdminAccess
from geminga_bookie.admin.documents.messages import Answer, Request
from geminga_server.authorization import Action

Endpoint = Callable[[AdminAccess, Request], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint, and the right that a client needs for it."""

    endpoint: Endpoint
    action: Action = Action.READ


def _order(endpoint: Endpoint) -> Route:
    """A route for administrators."""
    return Route(endpoint, Action.ADMINISTER)


# Upstream's server takes these methods for every path, and answers 404 where the endpoint has
# another one. One endpoint answers 405 instead, as the server does to all other methods.
METHODS = frozenset(("GET", "PUT", "POST", "DELETE"))
REFUSES_METHODS = frozenset(("/api/v1/bookie/gc",))

# Metadata holds passwords, and entries what users wrote: reading them is for administrators too.
ROUTES: Mapping[str, Mapping[str, Route]] = {
    "/heartbeat": {"GET": Route(this_bookie.heartbeat)},
    "/api/v1/config/server_config": {"GET": _order(this_bookie.server_config)},
    "/api/v1/ledger/list": {"GET": _order(ledgers.list_ledgers)},
    "/api/v1/ledger/metadata": {"GET": _order(ledgers.ledger_metadata)},
    "/api/v1/ledger/read": {"GET": _order(ledgers.read_ledger)},
    "/api/v1/ledger/delete": {"DELETE": _order(ledgers.delete_ledger)},
    "/api/v1/bookie/list_bookies": {"GET": Route(bookies.list_bookies)},
    "/api/v1/bookie/list_bookie_info": {"GET": Route(bookies.list_bookie_info)},
    "/api/v1/bookie/cluster_info": {"GET": Route(bookies.cluster_info)},
    "/api/v1/bookie/last_log_mark": {"GET": Route(this_bookie.last_log_mark)},
    "/api/v1/bookie/list_disk_file": {"GET": Route(this_bookie.list_disk_file)},
    "/api/v1/bookie/info": {"GET": Route(this_bookie.info)},
    "/api/v1/bookie/state": {"GET": Route(this_bookie.state)},
    "/api/v1/bookie/state/readonly": {
        "GET": Route(this_bookie.read_only),
        "PUT": _order(this_bookie.set_read_only),
    },
    "/api/v1/bookie/is_ready": {"GET": Route(this_bookie.is_ready)},
    "/api/v1/bookie/sanity": {"GET": _order(this_bookie.sanity)},
    "/api/v1/bookie/gc": {
        "GET": Route(collection.gc_state),
        "PUT": _order(collection.trigger_gc),
    },
    "/api/v1/bookie/gc/suspend_compaction": {
        "GET": Route(collection.suspended_compactions),
        "PUT": _order(collection.suspend_compaction),
    },
    "/api/v1/bookie/gc/resume_compaction": {"PUT": _order(collection.resume_compaction)},
    "/api/v1/bookie/gc_details": {"GET": Route(collection.gc_details)},
    "/api/v1/autorecovery/status": {
        "GET": Route(recovery.status),
        "PUT": _order(recovery.set_status),
    },
    "/api/v1/autorecovery/bookie": {"PUT": _order(recovery.recover_bookie)},
    "/api/v1/autorecovery/list_under_replicated_ledger": {
        "GET": Route(recovery.list_under_replicated)
    },
    "/api/v1/autorecovery/who_is_auditor": {"GET": Route(recovery.who_is_auditor)},
    "/api/v1/autorecovery/trigger_audit": {"PUT": _order(recovery.trigger_audit)},
    "/api/v1/autorecovery/lost_bookie_recovery_delay": {
        "GET": Route(recovery.lost_bookie_delay),
        "PUT": _order(recovery.set_lost_bookie_delay),
    },
    "/api/v1/autorecovery/decommission": {"PUT": _order(recovery.decommission_bookie)},
}
