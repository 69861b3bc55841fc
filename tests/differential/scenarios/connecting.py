"""How a connection begins: CONNECT and what may not come before it."""

from __future__ import annotations

from tests.differential.scenario import Wanted, scenario
from tests.differential.world import World

from geminga_protocol.pulsar import api_pb2 as api


@scenario()
async def connect_as_a_current_client(world: World) -> None:
    client = await world.silent_client()
    flags = api.FeatureFlags(
        supports_auth_refresh=True,
        supports_broker_entry_metadata=True,
        supports_partial_producer=True,
        supports_topic_watchers=True,
    )
    await client.connect(feature_flags=flags)


@scenario()
async def connect_without_feature_flags(world: World) -> None:
    client = await world.silent_client()
    await client.connect()


@scenario()
async def connect_with_old_and_future_protocols(world: World) -> None:
    for version in (0, 1, 6, 12, 19, 99):
        client = await world.silent_client(f"v{version}")
        await client.connect(protocol_version=version)


@scenario()
async def connect_twice(world: World) -> None:
    client = await world.client()
    await client.connect()
    await client.silence()


@scenario()
async def connect_with_authentication_that_is_not_asked_for(world: World) -> None:
    client = await world.silent_client()
    await client.connect(auth_method_name="token", auth_data=b"not-a-token")
    await client.lookup()


@scenario()
async def connect_as_a_proxy_that_wants_another_broker(world: World) -> None:
    client = await world.silent_client()
    await client.connect(
        proxy_version="4.0.6",
        proxy_to_broker_url="elsewhere.example:6650",
        original_principal="ann",
        original_auth_method="token",
        original_auth_data="not-a-token",
    )
    await client.lookup()


@scenario()
async def a_command_before_connect(world: World) -> None:
    client = await world.silent_client()
    client.post(api.CommandLookupTopic(topic=world.topic("t"), request_id=1))
    await client.take(1)


@scenario()
async def garbage_instead_of_a_frame(world: World) -> None:
    client = await world.client()
    client.write(b"GET / HTTP/1.1\r\n\r\n")
    await client.take(1)


@scenario()
async def a_frame_that_is_too_large(world: World) -> None:
    client = await world.client()
    client.write((200 * 1024 * 1024).to_bytes(4, "big"))
    await client.take(1)


@scenario(
    wanted=[
        Wanted(
            ["a", "< end of connection"],
            [
                "a",
                "< ERROR",
                {
                    "error": "NotAllowedError",
                    "message": "success is what brokers say, not clients",
                    "request_id": "none",
                },
            ],
            "a command that is known and not served is refused, and ends no connection",
        )
    ]
)
async def a_command_that_brokers_send(world: World) -> None:
    client = await world.client()
    client.post(api.CommandSuccess(request_id=7))
    await client.silence()
    await client.ping()
