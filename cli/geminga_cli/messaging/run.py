"""Runs a command with a client: the event loop, signals and exit codes."""

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

    SIGINT and SIGTERM cancel ``work``, so that what it opened is closed in order: a consumer sends
    its last acknowledgements. After SIGINT, ``KeyboardInterrupt`` is raised.
    """

    async def with_client() -> None:
        task = asyncio.current_task()
        assert task is not None
        # The runner itself does so for SIGINT.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        # Leaving the block closes every producer and consumer that ``work`` has left open, also
        # when ``work`` was cancelled.
        async with connect(given.url, **connect_arguments(given)) as client:
            await work(client)

    try:
        import uvloop  # noqa: PLC0415 - the bare client library comes without it
    except ImportError:
        loop_factory = None
    else:
        loop_factory = uvloop.new_event_loop
    # The order of the handlers: what ended the work, then what the user did wrong, then what the
    # cluster refused.
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(with_client())
    # Of SIGTERM: nothing else cancels the main task.
    except asyncio.CancelledError:
        return EXIT_TERMINATED
    # It was asked for by the reader, so it is a success: ``geminga read ... | head`` ends with 0.
    except BrokenPipeError:  # the program that read our output has gone
        drop_output()
    except (InvalidUse, InvalidServiceUrl, InvalidTopicName, MissingExtra) as error:
        print(f"geminga: {error}", file=sys.stderr)
        return EXIT_MISUSED
    except GemingaError as error:
        print(f"geminga: {error}", file=sys.stderr)
        return EXIT_REFUSED
    return 0
