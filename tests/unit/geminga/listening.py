"""A ``FakeBroker`` that listens on a real port of this machine, in plain or with TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.unit.geminga.fake_broker import FakeBroker, Session
from tests.unit.geminga.fake_network import FakeNetwork

from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar.api_pb2 import BaseCommand


@asynccontextmanager
async def listening_broker(
    context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncGenerator[FakeBroker]:
    """A broker that owns every topic, at the ``url`` that it says."""
    broker = FakeBroker(FakeNetwork(), host)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Session(broker), host, 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    broker.url = f"pulsar://{place}" if context is None else f"pulsar+ssl://{place}"

    def look_up(session: Session, command: BaseCommand, _: bytes) -> None:
        plain, secured = (broker.url, None) if context is None else (None, broker.url)
        session.write(
            answers.encode_lookup(
                command.lookupTopic.request_id, broker_url=plain, broker_url_tls=secured
            )
        )

    broker.on(BaseCommand.LOOKUP, look_up)
    try:
        yield broker
    finally:
        server.close()
        broker.drop_connections()
