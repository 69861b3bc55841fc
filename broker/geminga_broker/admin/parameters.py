"""What handlers of the broker take from a request, beside ``geminga_server.rest.parameters``."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from geminga_broker.admin.services import Services


async def _services(request: Request) -> Services:
    # ``app.create_app`` has put them there.
    services: Services = request.app.state.services
    return services


# The services, as an argument of a handler.
ServicesArg = Annotated[Services, Depends(_services)]


def listener_of(request: Request) -> str:
    """The advertised listener whose bind address the request came in on; "" is the internal one."""
    return str(request.scope.get("state", {}).get("listener", ""))
