"""No route of a functions worker answers before it has asked whether it may."""

from __future__ import annotations

import pytest
from fastapi.routing import APIRoute

from geminga_functions.admin.app import ROUTERS
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
