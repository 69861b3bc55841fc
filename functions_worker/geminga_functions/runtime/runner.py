"""What a way of running instances is told, and what it tells: an ``Order`` and an ``Ending``."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from geminga import Tls
from geminga_functions.instance.messages import Start
from geminga_functions.names import InstanceName
from geminga_functions.packages.cache import Prepared
from geminga_functions.runtime.config import RuntimeConfig
from geminga_protocol.functions.functions_pb2 import FunctionMetaData


@dataclass(frozen=True, slots=True)
class Ending:
    """How an instance ended."""

    # Empty if the instance was asked to end, and did.
    trace: str = ""
    # Whether the function is to blame, not the worker.
    is_user_error: bool = False
    # Whether it ended with its lease, which is no failure of the function.
    is_lease_over: bool = False


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """The worker and its cluster, as instances see them in ``Start``."""

    # The same for all instances of a worker, as long as it runs.
    worker_id: str
    cluster: str
    service_url: str
    web_url: str
    functions_namespace: str = "public/functions"
    tls: Tls = field(default_factory=Tls)


@dataclass(frozen=True, slots=True)
class Order:
    """An instance to start."""

    name: InstanceName
    # The first message to the instance; the fields below concern its process alone.
    start: Start
    # The interpreter of the function's environment.
    python: Path
    # What the function may allocate; 0: as much as there is.
    memory_bytes: int


def order_of(
    name: InstanceName,
    wanted: FunctionMetaData,
    prepared: Prepared,
    identity: WorkerIdentity,
    config: RuntimeConfig,
    *,
    state_directory: Path,
    lease_until_s: float,
) -> Order:
    """The order to start this version of an instance from a package that is prepared.

    ``lease_until_s`` is the end of the lease by the monotonic clock of the machine. Pure.
    """
    details, tls = wanted.functionDetails, identity.tls
    start = Start(
        details=details.SerializeToString(),
        number=name.instance,
        version=wanted.version,
        worker_id=identity.worker_id,
        cluster=identity.cluster,
        service_url=identity.service_url,
        web_url=identity.web_url,
        package="" if prepared.package is None else str(prepared.package),
        import_paths=":".join(map(str, prepared.import_paths)),
        state_directory=str(state_directory),
        lease_until_s=lease_until_s,
        functions_namespace=identity.functions_namespace,
        async_messages_max=config.async_messages_max,
        secrets_provider=config.secrets_provider_class_name,
        secrets_config=config.secrets_provider_config,
        # The channel has no way to say that a path is not set, other than an empty text.
        tls_trust_file=os.fspath(tls.trust_file or ""),
        tls_certificate_file=os.fspath(tls.certificate_file or ""),
        tls_key_file=os.fspath(tls.key_file or ""),
        tls_checks_hostname=tls.checks_hostname,
    )
    return Order(name, start, prepared.python, details.resources.ram)
