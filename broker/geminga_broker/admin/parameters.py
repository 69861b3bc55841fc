"""What handlers of the broker take from a request, beside ``geminga_server.rest.parameters``."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from geminga_broker.admin.services import Services
from geminga_broker.policies.levels import INT_MAX
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import json_body


async def _services(request: Request) -> Services:
    # ``app.create_app`` has put them there.
    services: Services = request.app.state.services
    return services


# The services, as an argument of a handler.
ServicesArg = Annotated[Services, Depends(_services)]


def listener_of(request: Request) -> str:
    """The advertised listener whose bind address the request came in on; "" is the internal one."""
    return str(request.scope.get("state", {}).get("listener", ""))


async def number_body(request: Request, refusal: str) -> int | None:
    """The body as a number of 0 or more; None for ``null`` or no body.

    Raises ``RestError`` 400 for anything but a number, 412 with ``refusal`` for one below 0.
    """
    value = await json_body(request)
    if value is None:
        return None
    # A larger number would make the record unreadable for Java.
    if not isinstance(value, int) or isinstance(value, bool) or value > INT_MAX:
        raise RestError(400, f"The body should be a number up to {INT_MAX}")
    if value < 0:
        raise RestError(412, refusal)
    return value
