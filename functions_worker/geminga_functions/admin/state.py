"""``.../state``: reads and changes the state of a function. Changes go to REST's own lane."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_functions.admin.components import CHANGES, ONE, READS, FacadeArg, FoundArg, NameArg
from geminga_functions.admin.forms import parts_of
from geminga_functions.state.changes import Changes
from geminga_server.rest.answers import Json, no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import path_value

# A key may contain slashes: upstream's tools send it unescaped.
KEY = ONE + "/state/{key:path}"
# Of upstream's ``FunctionState``: a Java long.
INT64 = 1 << 63

router = APIRouter()


@router.get(KEY, dependencies=READS)
async def get_state(
    request: Request, facade: FacadeArg, name: NameArg, found: FoundArg
) -> Response:
    """The value of a key, or its counter. Raises ``RestError`` 404 if there is neither."""
    del found  # it is only an argument because FastAPI checks by it that the function exists
    key = path_value(request, "key")
    async with facade.worker.states.use(name) as state:
        # All three without a wait in between: they are of one moment.
        value, version, number = state.get(key), state.version(key), state.sum_of(key)
        # A key may have both; then the value is shown.
        if value is None and number is None:
            raise RestError(404, f"key '{key}' doesn't exist.")
        answer: dict[str, Any] = {"key": key}
        if value is None:
            answer |= {"numberValue": number, "version": 0}
        else:
            try:
                answer |= {"stringValue": value.decode(), "version": version}
            except UnicodeDecodeError:
                # JSON has no bytes. Text is shown as text, whichever way it was put.
                encoded = base64.b64encode(value).decode()
                answer |= {"byteValue": encoded, "version": version}
        return Json(answer)


@router.post(KEY, dependencies=CHANGES)
async def put_state(
    request: Request, facade: FacadeArg, name: NameArg, found: FoundArg
) -> Response:
    """Set the value of a key. Raises ``RestError`` 400, ``StateTooLarge``."""
    del found
    key = path_value(request, "key")
    given: Any = None
    content_type = request.headers.get("content-type", "")
    async for part in parts_of(content_type, request.stream()):
        if part.name == "state":
            try:
                given = json.loads(await part.read())
            except ValueError as error:
                raise RestError(400, f"The state is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise RestError(400, "The form should have a part 'state', a JSON object")
    # It may be missing: the path names the key in any case.
    if given.get("key") not in (None, key):
        raise RestError(400, "The key in the path is another one than that of the state")
    async with facade.worker.states.use(name) as state:
        # On top of the state as it was refreshed for this request.
        changes = Changes(state)
        _set(changes, key, given)
        state.apply(changes)
        # The answer comes once the change is stored; instances see it a moment later.
        await state.commit()
    return no_content()


def _set(changes: Changes, key: str, given: dict[str, Any]) -> None:
    match given:
        case {"numberValue": int(number)} if -INT64 <= number < INT64:
            # Lanes have no record that sets a counter: the difference is added. What instances add
            # at the same moment comes on top: a counter that is set while it is in use may have
            # another value right after.
            changes.increment(key, number - (changes.sum_of(key) or 0))
        case {"stringValue": str(text)} if text:
            changes.put(key, text.encode())
        case {"byteValue": str(text)}:
            try:
                changes.put(key, base64.b64decode(text, validate=True))
            except binascii.Error:
                raise RestError(400, "byteValue should be Base64") from None
        case _:
            raise RestError(400, "The state should have a stringValue, byteValue or numberValue")
