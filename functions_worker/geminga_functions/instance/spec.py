"""The description of the instance to run: ``InstanceSpec``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from geminga import Tls
from geminga_functions.names import FunctionName, InstanceName
from geminga_protocol.functions.functions_pb2 import FunctionDetails

# The schemes of service URLs that ask for TLS.
SECURED = ("pulsar+ssl://", "https://")


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """One instance to run: instance ``number`` of the function that ``details`` describe."""

    details: FunctionDetails
    # From 0 up to the parallelism of the function.
    number: int
    # The version of the function's metadata, which grows with each update.
    version: int
    worker_id: str
    cluster: str
    # Of the brokers: their binary protocol, and REST.
    service_url: str
    web_url: str
    # The file of the function (``.py``, ``.zip``, ``.whl``), already on this disk; None for a
    # function that is built in.
    package: Path | None
    # Folders that come first on the path of modules: the unpacked package.
    import_paths: tuple[Path, ...]
    # Used by this instance alone as long as it runs. The next run on the same worker finds there
    # what this one has left.
    state_directory: Path
    # The namespace of the workers' own topics, those of state among them.
    functions_namespace: str = "public/functions"
    # How many messages asynchronous code processes at a time.
    async_messages_max: int = 100
    # The class that provides secrets, and JSON to initialize it with; empty: the secrets stand in
    # the metadata in plain text.
    secrets_provider: str = ""
    secrets_config: str = ""
    # How connections to brokers are secured, where the service URL asks for it.
    tls: Tls = field(default_factory=Tls)

    @property
    def client_tls(self) -> Tls | None:
        """The TLS settings of a client; None where the service URL asks for no TLS."""
        return self.tls if self.service_url.startswith(SECURED) else None

    @property
    def name(self) -> InstanceName:
        """The name of the instance."""
        details = self.details
        function = FunctionName(details.tenant, details.namespace, details.name)
        return InstanceName(function, self.number)
