"""What an instance is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from geminga import Tls
from geminga_functions.names import FunctionName, InstanceName
from geminga_protocol.functions.functions_pb2 import FunctionDetails

SECURED = ("pulsar+ssl://", "https://")


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """One instance to run: instance ``number`` of the function that ``details`` describe.

    - ``version``: the version of the function's metadata; each update makes a higher one.
    - ``package``: the file of the function (``.py``, ``.zip``, ``.whl``), already on this disk;
      None for what is built in.
    - ``import_paths``: folders that stand first on the path of modules, unpacked from the package.
    - ``state_directory``: a folder that belongs to this instance alone, as long as it runs. What
      it has of an earlier run is there again, on the same worker.
    - ``async_messages_max``: messages that asynchronous code processes at a time.
    - ``secrets_provider``: the class that gives secrets, empty for what the metadata say;
      ``secrets_config`` is JSON for it.
    - ``functions_namespace``: where the topics of the workers are, those of state among them.
    - ``tls``: how connections to brokers are secured, where the URL asks for it.
    """

    details: FunctionDetails
    number: int
    version: int
    worker_id: str
    cluster: str
    service_url: str
    web_url: str
    package: Path | None
    import_paths: tuple[Path, ...]
    state_directory: Path
    functions_namespace: str = "public/functions"
    async_messages_max: int = 100
    secrets_provider: str = ""
    secrets_config: str = ""
    tls: Tls = field(default_factory=Tls)

    @property
    def client_tls(self) -> Tls | None:
        """What a client is told; None where the URL asks for no TLS."""
        return self.tls if self.service_url.startswith(SECURED) else None

    @property
    def name(self) -> InstanceName:
        """The name of the instance."""
        details = self.details
        function = FunctionName(details.tenant, details.namespace, details.name)
        return InstanceName(function, self.number)
