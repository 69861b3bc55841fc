"""The official Python client in tests: it logs nothing, and is closed in any case."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pulsar

OPERATION_TIMEOUT_S = 60
# For sends that a busy machine or a restart delays.
SEND_TIMEOUT_MS = 120_000


@contextmanager
def client_of(service_url: str, **options: Any) -> Generator[Any]:
    """A client of the cluster at ``service_url``.

    It logs nothing: it would report every lost connection, and errors are raised anyway. (All
    clients of a process share one logger.)
    """
    client = pulsar.Client(
        service_url,
        operation_timeout_seconds=OPERATION_TIMEOUT_S,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
        **options,
    )
    try:
        yield client
    finally:
        client.close()
