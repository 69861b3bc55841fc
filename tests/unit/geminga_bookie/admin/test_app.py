"""The admin's paths are told from the part's own, each asks who may, every failure is answered."""

from __future__ import annotations

import pytest
from tests.unit.geminga_bookie.admin.cluster import RESOURCE, Cluster, run

from geminga_bookie.admin.app import BODY_BYTES_MAX
from geminga_bookie.admin.documents.messages import PARAMETERS_MAX
from geminga_bookie.admin.routes import ROUTES
from geminga_runtime.coordination import ConnectionLost
from geminga_server.authorization import Action, Principal, Resource
from geminga_server.errors import NotAuthorized


def test_other_paths_are_the_parts_own() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert (await cluster.get("/metrics/")).status == 299
        assert (await cluster.get("/health")).status == 299
        for target in ("/api/v1/nothing", "/heartbeats", "/api/v1/%2e"):
            assert (await cluster.get(target)).status == 404

    run(scenario)


def test_slashes_too_many_say_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        for target in ("/api/v1/ledger/list/", "//heartbeat///", "/api//v1/bookie/state?x=/"):
            assert (await cluster.get(target)).status == 200
        assert (await cluster.get("/metrics//")).status == 299

    run(scenario)


def test_head_is_get_without_the_body() -> None:
    async def scenario(cluster: Cluster) -> None:
        for target in ("/heartbeat", "/api/v1/ledger/list"):
            answer = await cluster.ask("HEAD", target)
            assert (answer.status, answer.body) == (200, b"")

    run(scenario)


@pytest.mark.parametrize("method", ["PATCH", "OPTIONS", "BREW"])
def test_a_method_that_no_path_has_is_not_allowed(method: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        for path in ROUTES:
            assert (await cluster.ask(method, path)).status == 405

    run(scenario)


def test_a_method_that_a_path_does_not_have_is_not_found_but_for_one_path() -> None:
    async def scenario(cluster: Cluster) -> None:
        for path in ROUTES:
            expected = 405 if path == "/api/v1/bookie/gc" else 404
            assert (await cluster.ask("POST", path)).status == expected

    run(scenario)


class Asked:
    """Refuses the actions in ``refused``; notes what it is asked."""

    def __init__(self, *refused: Action) -> None:
        self.refused = refused
        self.questions: list[tuple[Action, Resource]] = []

    async def authorize(self, principal: Principal, action: Action, resource: Resource) -> None:
        """Refuse or return."""
        self.questions.append((action, resource))
        if action in self.refused:
            raise NotAuthorized(principal.role, action, str(resource))


def test_a_client_without_the_right_to_read_gets_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        asked = Asked(Action.READ)
        cluster.authorize = asked.authorize
        for path, methods in {**ROUTES, "/api/nothing": {"GET": None}}.items():
            for method in methods:
                assert (await cluster.ask(method, path)).status == 403
        assert set(asked.questions) == {(Action.READ, RESOURCE)}

    run(scenario)


def test_orders_and_the_content_of_ledgers_are_for_administrators() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.authorize = Asked(Action.ADMINISTER).authorize
        for method, target in (
            ("PUT", "/api/v1/bookie/gc"),
            ("PUT", "/api/v1/bookie/state/readonly"),
            ("DELETE", "/api/v1/ledger/delete?ledger_id=0"),
            ("GET", "/api/v1/ledger/read?ledger_id=0"),
        ):
            assert (await cluster.ask(method, target)).status == 403
        assert (await cluster.get("/api/v1/bookie/gc")).status == 200
        assert not cluster.bookies[0].storage.is_read_only

    run(scenario)


def test_bodies_and_queries_beyond_all_measure_are_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        body = b" " * (BODY_BYTES_MAX + 1)
        assert (await cluster.ask("PUT", "/api/v1/bookie/gc", body)).status == 413
        query = "&".join(f"p{number}=1" for number in range(PARAMETERS_MAX + 1))
        assert (await cluster.get(f"/heartbeat?{query}")).status == 400
        for garbage in (b"{", b"\xff", b"[" * 60_000):
            assert (await cluster.ask("PUT", "/api/v1/bookie/gc", garbage)).status == 400

    run(scenario)


def test_a_zookeeper_that_is_away_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(_path: str) -> list[str]:
        raise ConnectionLost("no answer")

    async def scenario(cluster: Cluster) -> None:
        monkeypatch.setattr(cluster.coordination, "children", lost)
        for target in ("/api/v1/bookie/list_bookies", "/api/v1/ledger/list"):
            answer = await cluster.get(target)
            assert (answer.status, "no answer" in answer.text) == (503, True)

    run(scenario)
