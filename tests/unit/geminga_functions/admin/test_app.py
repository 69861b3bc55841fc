"""No route of a functions worker answers before it has asked whether it may."""

from __future__ import annotations

import pytest
from fastapi.routing import APIRoute
from starlette.requests import Request

from geminga_functions.admin.app import ROUTERS, answer_error
from geminga_functions.errors import StateTooLarge
from geminga_server.authorization import Action
from geminga_server.rest.access import questions_of


def routes() -> list[APIRoute]:
    found = [route for router in ROUTERS for route in router.routes]
    assert len(found) > 15
    return [route for route in found if isinstance(route, APIRoute)]


@pytest.mark.parametrize("route", routes(), ids=lambda one: f"{sorted(one.methods)} {one.path}")
def test_every_route_asks_once(route: APIRoute) -> None:
    questions = questions_of(route)
    assert len(questions) == 1
    changes = (route.methods or set()) <= {"PUT", "POST", "DELETE"}
    assert (questions[0].action is Action.ADMINISTER) == changes


async def test_a_state_that_no_broker_takes_is_too_large() -> None:
    request = Request({"type": "http", "path": "/admin/v3/functions/public/default/f/state/key"})
    answer = await answer_error(request, StateTooLarge(6, 5))
    assert answer.status_code == 413
