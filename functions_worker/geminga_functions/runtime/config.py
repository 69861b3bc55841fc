"""How a worker runs instances: which settings there are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt

from geminga_server.config import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """How instances are run; the limits of one instance come from its function's resources."""

    function_runtime: Literal["process", "thread"] = "process"
    """Where an instance runs: in a process of its own, or in a thread of the worker, which is for
    functions that are trusted: a thread can neither be limited nor ended against its will."""
    directory: Annotated[Path, Upstream("downloadDirectory")] = Path("functions")
    """Where packages, the environments made for them, and the folders of instances lie, with copies
    of their state. It belongs to one worker, and all of it can be made anew."""
    package_bytes_max: Annotated[int, Ge(1024)] = 2 * 1024 * 1024 * 1024
    """The largest package that is taken. One with wheels for machine learning has some hundred
    MB."""
    log_directory: Annotated[Path, Upstream("logDirectory")] = Path("logs")
    """Where the output of instances goes: `functions/TENANT/NAMESPACE/NAME/NAME-INSTANCE.log`."""
    log_file_bytes_max: Annotated[int, Ge(64 * 1024)] = 10 * 1024 * 1024
    """A longer output file is put aside as `.old`, in the place of the one before."""
    output_bytes_per_s_max: Annotated[int, Ge(1024)] = 8 * 1024 * 1024
    """An instance that writes more to its standard output waits."""
    start_timeout_s: Annotated[float, Gt(0)] = 60.0
    """How long an instance may take to load the function; it is then ended and started anew."""
    stop_timeout_s: Annotated[float, Gt(0)] = 5.0
    """How long an instance may take to finish the messages that are begun; it is then killed."""
    restart_first_s: Annotated[float, Gt(0)] = 1.0
    """How long an instance that failed waits before it is started again; twice as long after each
    further failure."""
    restart_limit_s: Annotated[float, Gt(0)] = 60.0
    """How long it waits at most."""
    starts_at_once_max: Annotated[int, Ge(1)] = 4
    """How many instances load their function at the same time: each takes a processor meanwhile."""
    environment_timeout_s: Annotated[float, Gt(0)] = 300.0
    """How long pip may take to install what a package requires."""
    async_messages_max: Annotated[int, Ge(1), Upstream("maxPendingAsyncRequests")] = 100
    """How many messages one instance processes at a time, where its function is `async def`."""
    secrets_provider_class_name: str = "secretsprovider.ClearTextSecretsProvider"
    """What gives functions their secrets: `secretsprovider.ClearTextSecretsProvider` what stands in
    their configuration, `secretsprovider.EnvironmentBasedSecretsProvider` the environment variable
    of that name; or a class of your own, in the environment of the function."""
    secrets_provider_config: str = "{}"
    """JSON that the secrets provider is initialized with."""
    output_tail_bytes: Annotated[int, Ge(0)] = 4 * 1024
    """How much of what an instance wrote last is told where it ended without saying why."""
