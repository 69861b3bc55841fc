"""A REST application: routers on the raw path, a check of rights for each route, Pulsar's errors.

Making one takes a few milliseconds; its OpenAPI document is made at the first request for
``/openapi.json``.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException

from geminga_runtime.errors import GemingaError
from geminga_server.rest.access import Access
from geminga_server.rest.answers import AnswerError
from geminga_server.rest.raw_path import RawPath


def make_app(
    routers: Sequence[APIRouter], *, version: str, access: Access, answer_error: AnswerError
) -> FastAPI:
    """An ASGI application that serves ``routers``, in their order, as ``version``.

    Its ``state`` has them under ``routers``. Callers add to it the objects that handlers work on.
    """
    # The way of a request; an exception on it goes to ``answer_error``:
    #
    #     RawPath --> router --> the route's Question --> its other dependencies --> handler
    #
    # So rights are checked before a body is read.
    app = FastAPI(
        title="Geminga",
        version=version,
        # The framework's pages load their program from the internet (see ``api_page``).
        docs_url=None,
        redoc_url=None,
        # ``RawPath`` takes a slash at the end away: a redirect would cost a request.
        redirect_slashes=False,
    )
    app.state.access = access
    app.state.routers = routers
    for router in routers:
        app.include_router(router)
    # The framework looks for the most derived class: the last one takes all others. Starlette
    # raises what only ``Exception`` covers again once it is answered: so uvicorn logs it.
    for kind in (GemingaError, HTTPException, Exception):
        app.add_exception_handler(kind, answer_error)
    # Around all of it: the router, and what it reports, see the raw path alone.
    app.add_middleware(RawPath)
    return app
