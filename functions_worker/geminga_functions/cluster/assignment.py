"""One record of the topic of assignments: which worker runs an instance, with which config.

The payload is upstream's ``Assignment``. A property of the message names the session of the worker
that the assignment is for: a worker whose lease has ended begins a new session, and runs nothing
that was assigned to an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga import Message
from geminga_functions.names import InstanceName
from geminga_protocol.functions.functions_pb2 import STOPPED, Assignment, FunctionMetaData

SESSION_PROPERTY = "session"


@dataclass(frozen=True, slots=True)
class Assigned:
    """An instance that a worker runs as long as the worker is in the named session."""

    instance: InstanceName
    worker: str
    # A random name, see ``Worker``: two periods of one worker never have the same.
    session: str
    # The function's metadata, with the state of this instance alone: the leader marks an instance
    # as stopped there before it moves or removes the instance.
    metadata: FunctionMetaData
    # (ledger id, entry id) of the record in the log. A worker that has read up to it knows of this
    # assignment; (-1, -1) before it is published.
    position: tuple[int, int] = (-1, -1)

    @property
    def is_stopped(self) -> bool:
        """Whether the worker must not run the instance at present."""
        return self.metadata.instanceStates.get(self.instance.instance) == STOPPED

    def stopped(self) -> Assigned:
        """A copy in which the instance is stopped."""
        # A copy: the message of the log is shared by all that read it, and compared with new ones.
        metadata = FunctionMetaData()
        metadata.CopyFrom(self.metadata)
        metadata.instanceStates[self.instance.instance] = STOPPED
        # Without a position: it is that of the record which is about to be published.
        return Assigned(self.instance, self.worker, self.session, metadata)

    def encode(self) -> bytes:
        """The payload of the message."""
        record = Assignment(workerId=self.worker)
        record.instance.functionMetaData.CopyFrom(self.metadata)
        record.instance.instanceId = self.instance.instance
        return record.SerializeToString()

    @classmethod
    def decode(cls, instance: InstanceName, message: Message[bytes]) -> Assigned:
        """The assignment in a message. Raises ``google.protobuf.message.DecodeError``."""
        record = Assignment.FromString(message.data)
        return cls(
            instance,
            record.workerId,
            # Upstream's assignments name none.
            message.properties.get(SESSION_PROPERTY, ""),
            record.instance.functionMetaData,
            message.id.position,
        )
