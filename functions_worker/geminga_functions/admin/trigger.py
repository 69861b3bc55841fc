"""``POST .../trigger``: sends a message to a function, and answers with its result."""

from __future__ import annotations

import asyncio
import base64
import binascii

from fastapi import APIRouter, Request
from starlette.responses import Response

import geminga
from geminga_functions.admin.components import CHANGES, ONE, FacadeArg, FoundArg, KindArg
from geminga_functions.admin.forms import parts_of
from geminga_functions.instance.settlement import INPUT_MESSAGE_ID
from geminga_protocol.functions.functions_pb2 import FunctionMetaData
from geminga_server.rest.answers import no_content
from geminga_server.rest.errors import RestError

# The results of a function that takes longer must be consumed from its output topic.
RESULT_TIMEOUT_S = 20.0

router = APIRouter()


@router.post(ONE + "/trigger", dependencies=CHANGES)
async def trigger(request: Request, facade: FacadeArg, kind: KindArg, found: FoundArg) -> Response:
    """Publish ``data``, or the content of ``dataStream``, to ``topic``; answer with the result.

    ``topic`` may be missing if the function has one input. Raises ``RestError`` 400 and 408.
    """
    data: bytes | None = None
    topic = ""
    async for part in parts_of(request.headers.get("content-type", ""), request.stream()):
        if part.name in ("data", "dataStream"):
            data = await part.read()
        elif part.name == "topic":
            topic = (await part.read()).decode("utf-8", "replace").strip()
    # Only now: the whole body has been read, and the connection can be used for another request.
    if kind.path != "functions":
        raise RestError(400, f"A {kind.word.lower()} cannot be triggered")
    if data is None:
        raise RestError(400, "Trigger Data is not provided")
    topic = _input_of(found, topic)
    output = found.functionDetails.sink.topic
    client = facade.worker.client
    try:
        async with asyncio.timeout(RESULT_TIMEOUT_S):
            # Without an output topic there is no result to wait for.
            if not output:
                async with client.producer(topic, batching=None) as producer:
                    await producer.send(data)
                return no_content()
            return await _result_of(client, topic, output, data)
    except TimeoutError:
        raise RestError(408, "Request Timeout") from None


def _input_of(found: FunctionMetaData, topic: str) -> str:
    """The input to publish to. Raises ``RestError`` 400 if ``topic`` does not name one."""
    inputs = [
        name
        for name, spec in found.functionDetails.source.inputSpecs.items()
        if not spec.isRegexPattern
    ]
    # Patterns are left out above: there is no telling which of their topics is meant.
    if not topic and len(inputs) == 1:
        return inputs[0]
    if not topic:
        raise RestError(400, "Function in trigger function has several inputs: say which topic")
    if topic not in inputs:
        raise RestError(400, f"Function in trigger function has unidentified topic {topic}")
    return topic


async def _result_of(client: geminga.Client, topic: str, output: str, data: bytes) -> Response:
    # The reader is opened first, or it might begin behind the result.
    async with (
        client.reader(output, geminga.LATEST) as results,
        client.producer(topic, batching=None) as producer,
    ):
        # The topic may get results of other messages at the same time. The instance puts the id of
        # the message into its result.
        sent = await producer.send(data)
        # Results come in the order of the output topic, in which those of earlier messages may come
        # first.
        async for result in results:
            if _is_of(result, sent):
                return Response(result.data, media_type="application/json")
    # The reader was closed: no result will come.
    raise TimeoutError


def _is_of(result: geminga.Message[bytes], sent: geminga.MessageId) -> bool:
    """Whether a result names the message ``sent`` as its input."""
    # Instances put it into each result; another producer of the topic does not.
    text = result.properties.get(INPUT_MESSAGE_ID, "")
    try:
        return geminga.MessageId.from_bytes(base64.urlsafe_b64decode(text)) == sent
    except (ValueError, binascii.Error, geminga.ClientError):
        return False
