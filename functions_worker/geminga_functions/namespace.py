"""The namespace of the workers' own topics, whose messages are to be kept for ever.

The topics of functions and of assignments have no subscriptions: where a namespace retains nothing,
a broker trims what they hold as soon as it begins another ledger, with its restart at the latest.
``initialize-cluster-metadata`` sees to that for ``public/functions``; workers of another cluster on
the same brokers may have any other.
"""

from __future__ import annotations

import asyncio
import json
import logging

from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import RestAnswer, RestCall, RestCalls

log = logging.getLogger(__name__)

FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
ASK_AGAIN_S = 1.0


async def keep_for_ever(calls: RestCalls, web_url: str, namespace: str) -> None:
    """Have brokers keep what the topics of ``namespace`` hold, and make it where there is none, as
    Pulsar's workers do. Returns once a broker has answered. A retention that was set is left, and
    an error is logged where it is limited."""
    url = f"{web_url.rstrip('/')}/admin/v2/namespaces/{namespace}"
    headers = {"Content-Type": "application/json"}
    found = await _answer(calls, RestCall("GET", f"{url}/retention"))
    if found.status == 404:
        await _answer(calls, RestCall("PUT", url, headers))
        found = await _answer(calls, RestCall("GET", f"{url}/retention"))
    if found.is_success and found.json() is None:
        call = RestCall("POST", f"{url}/retention", headers, json.dumps(FOR_EVER).encode())
        found = await _answer(calls, call)
        if found.is_success:
            log.info("functions are kept for ever", extra={"namespace": namespace})
            return
    if not found.is_success or found.json() != FOR_EVER:
        extra = {"namespace": namespace, "answer": found.body.decode(errors="replace")[:200]}
        log.error("functions may be lost: no retention without limits", extra=extra)


async def _answer(calls: RestCalls, call: RestCall) -> RestAnswer:
    while True:
        try:
            answer = await calls.call(call)
        except ServerUnreachable as error:
            log.warning("no broker says what it keeps", extra={"reason": str(error)})
        else:
            if answer.status < 500:
                return answer
            log.warning("no broker says what it keeps", extra={"reason": answer.reason})
        await asyncio.sleep(ASK_AGAIN_S)
