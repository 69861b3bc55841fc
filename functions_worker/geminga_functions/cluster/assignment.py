"""One line of the topic of assignments: which worker runs an instance, and what of it it runs.

The payload is upstream's ``Assignment``. A property of the message names the session of the worker
for which it holds: a worker whose lease has ended begins a new session, and runs nothing that was
assigned to an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga_functions.names import InstanceName
from geminga_protocol.functions.functions_pb2 import STOPPED, Assignment, FunctionMetaData

SESSION_PROPERTY = "session"


@dataclass(frozen=True, slots=True)
class Assigned:
    """``instance`` is to run on ``worker``, as long as that is in ``session``, as ``metadata`` say.

    ``position`` is where the log has it: ``(ledger, entry)``. Whether the instance runs or is
    stopped stands in the metadata, which are those of this instance: the leader stops an instance
    so before it moves or removes it.
    """

    instance: InstanceName
    worker: str
    session: str
    metadata: FunctionMetaData
    position: tuple[int, int] = (-1, -1)

    @property
    def is_stopped(self) -> bool:
        """Whether the worker is not to run it at present."""
        return self.metadata.instanceStates.get(self.instance.instance) == STOPPED

    def stopped(self) -> Assigned:
        """The same, stopped."""
        metadata = FunctionMetaData()
        metadata.CopyFrom(self.metadata)
        metadata.instanceStates[self.instance.instance] = STOPPED
        return Assigned(self.instance, self.worker, self.session, metadata)

    def encode(self) -> bytes:
        """The payload of the message."""
        record = Assignment(workerId=self.worker)
        record.instance.functionMetaData.CopyFrom(self.metadata)
        record.instance.instanceId = self.instance.instance
        return record.SerializeToString()

    @classmethod
    def decode(
        cls, instance: InstanceName, payload: bytes, session: str, position: tuple[int, int]
    ) -> Assigned:
        """Raises ``google.protobuf.message.DecodeError``."""
        record = Assignment.FromString(payload)
        return cls(instance, record.workerId, session, record.instance.functionMetaData, position)
