"""The settings by which a worker runs instances.

The docstring below a setting is its description in documents and in ``--help``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt

from geminga_server.config import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """How a worker runs instances; the memory limit of one is in its function's resources."""

    function_runtime: Literal["process", "thread"] = "process"
    """Where an instance runs: in a process of its own, or in a thread of the worker. Threads are
    for trusted functions only, since they can neither be limited nor ended by force."""
    directory: Annotated[Path, Upstream("downloadDirectory")] = Path("functions")
    """The folder of packages, of their environments, and of instances with copies of their state.
    It belongs to one worker. Nothing is lost if it is deleted while the worker does not run."""
    package_bytes_max: Annotated[int, Ge(1024)] = 2 * 1024 * 1024 * 1024
    """The size of the largest package that is accepted. One with wheels for machine learning has
    some hundred MB."""
    log_directory: Annotated[Path, Upstream("logDirectory")] = Path("logs")
    """The folder for the output of instances, with the files
    `functions/TENANT/NAMESPACE/NAME/NAME-INSTANCE.log`."""
    log_file_bytes_max: Annotated[int, Ge(64 * 1024)] = 10 * 1024 * 1024
    """A longer output file is renamed to `.old`, in place of the one renamed before."""
    output_bytes_per_s_max: Annotated[int, Ge(1024)] = 8 * 1024 * 1024
    """An instance that writes more bytes per second to its standard output is slowed down."""
    start_timeout_s: Annotated[float, Gt(0)] = 60.0
    """How many seconds an instance may take to load its function before it is killed and started
    again."""
    stop_timeout_s: Annotated[float, Gt(0)] = 5.0
    """How many seconds an instance may take to finish its messages in progress before it is
    killed."""
    restart_first_s: Annotated[float, Gt(0)] = 1.0
    """How many seconds after a failure an instance is started again; twice as many after each
    further failure."""
    restart_limit_s: Annotated[float, Gt(0)] = 60.0
    """The longest delay before an instance is started again, in seconds."""
    starts_at_once_max: Annotated[int, Ge(1)] = 4
    """How many instances may load their function at the same time; each takes a processor."""
    environment_timeout_s: Annotated[float, Gt(0)] = 300.0
    """How many seconds pip may take to install what a package requires."""
    async_messages_max: Annotated[int, Ge(1), Upstream("maxPendingAsyncRequests")] = 100
    """How many messages one instance processes at a time, if its function is `async def`."""
    secrets_provider_class_name: str = "secretsprovider.ClearTextSecretsProvider"
    """The class that provides the secrets of functions: with
    `secretsprovider.ClearTextSecretsProvider` they are in the config of the function, with
    `secretsprovider.EnvironmentBasedSecretsProvider` they are environment variables of the same
    name; or a class of your own, in the environment of the function."""
    secrets_provider_config: str = "{}"
    """JSON that the secrets provider is initialized with."""
    output_tail_bytes: Annotated[int, Ge(0)] = 4 * 1024
    """How many bytes of its last output are part of the report on an instance that ended without
    an error of its own."""
