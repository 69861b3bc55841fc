"""``/metrics``: what the broker counts, as Prometheus text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response, StreamingResponse

from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.services import Services
from geminga_server.authorization import Action
from geminga_server.metrics import CONTENT_TYPE
from geminga_server.rest.access import on_server

router = APIRouter()

# Smaller pieces are sent together, as each is a write to the socket.
PIECE_BYTES_MIN = 64 * 1024


@router.get("/metrics", dependencies=[on_server(Action.READ)])
async def redirect_to_metrics() -> Response:
    """Redirect to where upstream serves them; scrapers follow."""
    return RedirectResponse("/metrics/", status_code=302)


@router.get("/metrics/", dependencies=[on_server(Action.READ)])
async def get_metrics(services: ServicesArg) -> Response:
    """All families: the broker's, then those of the process and of other packages."""
    return StreamingResponse(_text(services), media_type=CONTENT_TYPE)


async def _text(services: Services) -> AsyncIterator[bytes]:
    gathered, size = [], 0
    # All figures are read by this call (``BrokerMetrics.snapshot``): pieces that are rendered later
    # are of the same moment.
    for piece in services.metrics_text():
        gathered.append(piece)
        size += len(piece)
        if size >= PIECE_BYTES_MIN:
            yield "".join(gathered).encode()
            gathered, size = [], 0
            # Rendering thousands of topics takes long: the messages of others come in between.
            await asyncio.sleep(0)
    yield "".join(gathered).encode()
    # Last, and apart: these are rendered by prometheus_client.
    yield services.part_metrics.text()
