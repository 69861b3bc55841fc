"""Runs a command with a client: the event loop, signals, and the exit codes."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

from geminga import Client, GemingaError, InvalidServiceUrl, InvalidTopicName, MissingExtra, connect
from geminga_cli.admin.errors import InvalidUse
from geminga_cli.messaging.access import connect_arguments
from geminga_cli.output import drop_output

EXIT_REFUSED, EXIT_MISUSED = 1, 2
EXIT_TERMINATED = 128 + signal.SIGTERM


def run_with_client(given: argparse.Namespace, work: Callable[[Client], Awaitable[None]]) -> int:
    """Do ``work`` with a client of the brokers that are ``given``; returns the exit code.

    SIGINT and SIGTERM cancel ``work``, so that what it opened is closed in order: a consumer tells
    the broker what was acknowledged. ``KeyboardInterrupt`` then goes on to the caller.
    """
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_work(given, work))
    except asyncio.CancelledError:
        return EXIT_TERMINATED
    except BrokenPipeError:  # the program that read our output has seen enough
        drop_output()
    except (InvalidUse, InvalidServiceUrl, InvalidTopicName, MissingExtra) as error:
        print(f"geminga: {error}", file=sys.stderr)
        return EXIT_MISUSED
    except GemingaError as error:
        print(f"geminga: {error}", file=sys.stderr)
        return EXIT_REFUSED
    return 0


async def _work(given: argparse.Namespace, work: Callable[[Client], Awaitable[None]]) -> None:
    task = asyncio.current_task()
    assert task is not None
    # SIGINT is the runner's own.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with connect(given.url, **connect_arguments(given)) as client:
        await work(client)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Makes uvloop's event loops where it is installed; the bare client comes without it."""
    try:
        import uvloop  # noqa: PLC0415 - may be absent
    except ImportError:
        return None
    return uvloop.new_event_loop  # type: ignore[no-any-return,unused-ignore]
