"""A question names what the path is about, and a refusal keeps the handler from running."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from geminga_server.authorization import ANONYMOUS, Action, Principal, Resource
from geminga_server.errors import NotAuthorized
from geminga_server.rest.access import on_server, questions_of


class Asked:
    """Answers questions with no, and notes them."""

    def __init__(self) -> None:
        self.questions: list[tuple[Principal, Action, Resource]] = []

    async def __call__(self, principal: Principal, action: Action, resource: Resource) -> None:
        self.questions.append((principal, action, resource))
        raise NotAuthorized(principal.role, action, str(resource))


@pytest.fixture
def asked(app: FastAPI) -> Asked:
    """Who answers the questions of ``app``."""
    asked = Asked()
    app.state.access = replace(app.state.access, authorize=asked)
    return asked


@pytest.mark.parametrize(
    ("method", "path", "action", "resource"),
    [
        (
            "GET",
            "/topics/persistent/a/b/c%2Fd",
            Action.READ,
            Resource("topic", "persistent://a/b/c/d"),
        ),
        (
            "PUT",
            "/topics/persistent/a/b/c",
            Action.ADMINISTER,
            Resource("topic", "persistent://a/b/c"),
        ),
        ("GET", "/namespaces/a/b", Action.READ, Resource("namespace", "a/b")),
        ("GET", "/tenants/a", Action.READ, Resource("tenant", "a")),
        ("GET", "/clusters/there", Action.READ, Resource("cluster", "there")),
        ("GET", "/clusters", Action.READ, Resource("cluster", "here")),
        ("GET", "/self", Action.READ, Resource("broker", "127.0.0.1:8080")),
        # Who may not is not told what is wrong with the body.
        ("PUT", "/body", Action.ADMINISTER, Resource("broker", "127.0.0.1:8080")),
    ],
)
async def test_a_question_names_the_resource_and_its_refusal_is_the_answer(
    method: str,
    path: str,
    action: Action,
    resource: Resource,
    client: httpx.AsyncClient,
    asked: Asked,
) -> None:
    answer = await client.request(method, path, content=b"{")
    assert asked.questions == [(ANONYMOUS, action, resource)]
    assert answer.status_code == 403
    assert answer.json() == {"reason": f"an anonymous client may not {action} on {resource}"}


def test_what_a_route_asks_is_found() -> None:
    router = APIRouter()

    @router.get("/asked", dependencies=[on_server(Action.READ)])
    @router.get("/unasked")
    async def answer() -> None: ...

    asked = {
        route.path: [each.action for each in questions_of(route)]
        for route in router.routes
        if isinstance(route, APIRoute)
    }
    assert asked == {"/asked": [Action.READ], "/unasked": []}
