"""``/lookup/v2/topic``: which broker serves a topic, for clients with an HTTP service URL."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.owner_routes import elsewhere, owner_asked_for
from geminga_broker.admin.parameters import ServicesArg, listener_of
from geminga_broker.ownership.errors import ListenerMissing
from geminga_server.authorization import Action
from geminga_server.rest.access import on_topic
from geminga_server.rest.answers import Json, text
from geminga_server.rest.errors import RestError, ServedElsewhere
from geminga_server.rest.parameters import TopicArg

router = APIRouter(prefix="/lookup/v2/topic/{domain:domain}/{tenant}/{namespace}/{topic}")


@router.get("", dependencies=[on_topic(Action.LOOKUP)])
async def look_up(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """The addresses of the owner. Where there is none yet, a redirect to the broker to ask."""
    # Clients name a listener in either way; else it is the one that they have connected to.
    named = request.query_params.get("listenerName") or request.headers.get("X-Pulsar-ListenerName")
    # Acquires the bundle where it has no owner and is placed here, as a lookup by the binary
    # protocol.
    owner = await owner_asked_for(request, services, topic)
    if owner.is_redirect:
        raise ServedElsewhere(elsewhere(request, owner))
    try:
        # After the redirect: the next broker chooses the listener of the owner that it finds.
        owner = owner.at_listener(named or listener_of(request))
    # Upstream answers 500 for a listener that the owner does not advertise.
    except ListenerMissing as error:
        raise RestError(500, str(error)) from None
    # All names that upstream has for them: some client needs each.
    return Json(
        {
            "brokerUrl": owner.broker_url,
            "brokerUrlTls": owner.broker_url_tls,
            "httpUrl": owner.http_url,
            "httpUrlTls": owner.http_url_tls,
            "nativeUrl": owner.broker_url,
            "brokerUrlSsl": owner.broker_url_tls,
        }
    )


@router.get("/bundle", dependencies=[on_topic(Action.LOOKUP)])
async def get_bundle(topic: TopicArg, services: ServicesArg) -> Response:
    """The bundle that the topic falls into, ``0x…_0x…``."""
    return text((await services.ownership.rings.bundle_of(topic)).name)
