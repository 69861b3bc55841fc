"""The namespace of the workers' own topics, whose messages must be retained without limits.

The topics of functions and of assignments have no subscriptions. In a namespace without retention,
a broker would trim them as soon as it begins another ledger, at its next restart at the latest.
``initialize-cluster-metadata`` sets the retention of ``public/functions``; workers may have any
other namespace in their settings.
"""

from __future__ import annotations

import asyncio
import json
import logging

from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import RestAnswer, RestCall, RestCalls

log = logging.getLogger(__name__)

# RetentionPolicies of upstream: -1 is no limit, where 0 is no retention at all.
FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
ASK_AGAIN_S = 1.0


async def keep_for_ever(calls: RestCalls, web_url: str, namespace: str) -> None:
    """Set an unlimited retention of ``namespace``, and create the namespace if there is none.

    Pulsar's workers do the same. A retention that is already set is not changed; if it is limited,
    an error is logged. Returns once brokers have answered, however long that takes.
    """
    url = f"{web_url.rstrip('/')}/admin/v2/namespaces/{namespace}"
    headers = {"Content-Type": "application/json"}
    found = await _answer(calls, RestCall("GET", f"{url}/retention"))
    # A worker may be the first to use a namespace of its own in this cluster.
    if found.status == 404:
        # Another worker may create it first; its answer, a 409, is as good.
        await _answer(calls, RestCall("PUT", url, headers))
        found = await _answer(calls, RestCall("GET", f"{url}/retention"))
    # None is set. A retention that an operator has chosen is respected, even a short one.
    if found.is_success and found.json() is None:
        call = RestCall("POST", f"{url}/retention", headers, json.dumps(FOR_EVER).encode())
        found = await _answer(calls, call)
        if found.is_success:
            log.info("functions are kept for ever", extra={"namespace": namespace})
            return
    # The worker goes on all the same: it may be the operator's choice, and the log says what it
    # risks.
    if not found.is_success or found.json() != FOR_EVER:
        extra = {"namespace": namespace, "answer": found.body.decode(errors="replace")[:200]}
        log.error("functions may be lost: no retention without limits", extra=extra)


async def _answer(calls: RestCalls, call: RestCall) -> RestAnswer:
    """Send a request until it is answered without a server error."""
    while True:
        try:
            answer = await calls.call(call)
        except ServerUnreachable as error:
            log.warning("no broker says what it keeps", extra={"reason": str(error)})
        else:
            # Every other answer is final, a refusal among them.
            if answer.status < 500:
                return answer
            log.warning("no broker says what it keeps", extra={"reason": answer.reason})
        await asyncio.sleep(ASK_AGAIN_S)
