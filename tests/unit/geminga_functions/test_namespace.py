"""Proves that what workers publish is kept, whichever namespace they are given."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from geminga_functions.namespace import ASK_AGAIN_S, FOR_EVER, keep_for_ever
from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import RestAnswer, RestCall

LIMITED = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 10}


class Broker:
    """Has the retentions of namespaces, once it is there."""

    prefers_tls = False

    def __init__(self, namespaces: Mapping[str, object], away: int = 0) -> None:
        self.namespaces = dict(namespaces)
        self.away = away

    async def call(self, call: RestCall) -> RestAnswer:
        if self.away:
            self.away -= 1
            if self.away % 2:
                return RestAnswer(503)
            raise ServerUnreachable("it is away")
        name, _, policy = call.url.removeprefix("http://b/admin/v2/namespaces/").partition("/ret")
        match call.method:
            case "PUT":
                self.namespaces[name] = None
            case _ if name not in self.namespaces:
                return RestAnswer(404)
            case "POST":
                self.namespaces[name] = json.loads(call.body)
            case _:
                assert policy
                return RestAnswer(200, json.dumps(self.namespaces[name]).encode())
        return RestAnswer(204)


@pytest.mark.parametrize("found", [{}, {"a/b": None}, {"a/b": FOR_EVER}])
@pytest.mark.parametrize("away", [0, 4])
async def test_a_namespace_is_made_and_keeps_for_ever(
    found: Mapping[str, object], away: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert ASK_AGAIN_S > 0
    broker = Broker(found, away)
    await keep_for_ever(broker, "http://b", "a/b")
    assert broker.namespaces == {"a/b": FOR_EVER}
    assert not any(each.levelname == "ERROR" for each in caplog.records)


async def test_a_limit_that_someone_has_set_stays_and_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker({"a/b": LIMITED})
    await keep_for_ever(broker, "http://b", "a/b")
    assert broker.namespaces == {"a/b": LIMITED}
    assert caplog.records[-1].levelname == "ERROR"
