"""Puts together what a worker runs instances with: packages, environments, processes or threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from random import Random

import geminga
from geminga_functions.instance.worker_link import serve
from geminga_functions.names import InstanceName
from geminga_functions.packages.cache import PackageCache
from geminga_functions.packages.environments import Environments
from geminga_functions.packages.store import PackageStore
from geminga_functions.runtime.config import RuntimeConfig
from geminga_functions.runtime.instances import Instances
from geminga_functions.runtime.output import OutputFile
from geminga_functions.runtime.process import ProcessRunner, end_orphans, without_settings
from geminga_functions.runtime.runner import WorkerIdentity
from geminga_functions.runtime.thread import ThreadRunner
from geminga_runtime.clock import Clock
from geminga_runtime.service import Service
from geminga_server.directories import LOCK_NAME, DirectoryLock
from geminga_server.http.rest_calls import RestCalls

log = logging.getLogger(__name__)


class Runtime(Service):
    """The packages and instances of one worker.

    ``packages`` stores uploaded packages in topics of ``namespace``. ``environment`` has the
    worker's environment variables, which instances and pip inherit without the worker's own
    settings. Opening raises ``DirectoryInUse`` and ``DirectoryUnusable``.
    """

    def __init__(
        self,
        identity: WorkerIdentity,
        config: RuntimeConfig,
        client: geminga.Client,
        calls: RestCalls,
        *,
        namespace: str,
        environment: Mapping[str, str],
        clock: Clock,
        random: Random,
    ) -> None:
        super().__init__()
        self._config = config
        self._clock = clock
        directory = config.directory.resolve()
        # Without settings, which may be secrets: pip runs code of packages that come as source.
        # The folders below the one of the settings, all of them this worker's alone by its lock:
        #
        #   environments/  virtual environments, kept for the next function that requires the same
        #   packages/      unpacked packages, removed when the worker opens
        #   instances/     working directories of instances, with the copies of their state
        #   states/        copies of the states that REST reads
        environments = Environments(
            directory / "environments", without_settings(environment), config.environment_timeout_s
        )
        self.packages = PackageStore(
            client, calls, identity.web_url, namespace, config.package_bytes_max
        )
        self._cache = PackageCache(directory / "packages", self.packages.read, environments)
        # One way for all instances of a worker: its settings choose.
        self._runner = (
            ThreadRunner(serve)
            if config.function_runtime == "thread"
            else ProcessRunner(environment, self._output_of)
        )
        self.instances = Instances(
            identity, config, self._runner.start, self._cache.use, clock, random
        )

    async def _open(self, stack: AsyncExitStack) -> None:
        # In a thread: it reads through /proc, and may wait for the lock.
        lock = await asyncio.to_thread(self._take_directory)
        stack.callback(lock.close)
        if isinstance(self._runner, ProcessRunner):
            # Instances hold the lock, too: see ``end_orphans``.
            self._runner.inherited = (lock.descriptor,)
        # Opened last, instances are closed first: until they have ended they need their packages,
        # and the runner, which waits for their processes.
        for service in (self._cache, self._runner, self.instances):
            await stack.enter_async_context(service)

    def _take_directory(self) -> DirectoryLock:
        directory = self._config.directory.resolve()
        # Orphans hold the lock open: they end before it is taken.
        if count := end_orphans(directory / LOCK_NAME):
            log.warning("instances of an earlier worker are killed", extra={"processes": count})
        return DirectoryLock(directory, self._clock)

    def _output_of(self, name: InstanceName) -> OutputFile:
        config, function = self._config, name.function
        folder = config.log_directory / "functions" / function.tenant / function.namespace
        return OutputFile(
            folder / function.name / f"{function.name}-{name.instance}.log",
            self._clock,
            file_bytes_max=config.log_file_bytes_max,
            bytes_per_s_max=config.output_bytes_per_s_max,
            tail_bytes=config.output_tail_bytes,
        )
