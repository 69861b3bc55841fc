"""What a worker and an instance in a process of its own tell each other: msgpack in frames.

Worker to instance: ``Start`` first of all, then ``Lease`` every so often, ``StatusRequest``,
``Stop``. Instance to worker: ``Started`` or ``Failed``, ``StatusAnswer``, ``Stopped``, ``Expired``.
Either side takes the end of the channel as the end of the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga_runtime.control_codec import MessageCodec


@dataclass(frozen=True, slots=True)
class Start:
    """Worker to instance, first of all: an ``InstanceSpec``, ``details`` as a FunctionDetails."""

    details: bytes
    number: int
    version: int
    worker_id: str
    cluster: str
    service_url: str
    web_url: str
    package: str
    import_paths: str
    state_directory: str
    lease_until_s: float
    functions_namespace: str = "public/functions"
    async_messages_max: int = 100
    secrets_provider: str = ""
    secrets_config: str = ""
    tls_trust_file: str = ""
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    tls_checks_hostname: bool = True


@dataclass(frozen=True, slots=True)
class Lease:
    """Worker to instance: it may run until ``until_s`` of the machine's monotonic clock. Without
    another lease by then it ends at once: from then on it may run elsewhere."""

    until_s: float


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Worker to instance: how is it?"""

    request_id: int


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """Instance to worker: ``status`` is JSON, the fields of ``InstanceStatus``."""

    request_id: int
    status: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Worker to instance: finish the messages that are begun within ``deadline_s``, then end."""

    deadline_s: float


@dataclass(frozen=True, slots=True)
class Started:
    """Instance to worker: the user's code is loaded, and messages are processed from now on."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Instance to worker, last of all: it cannot go on. ``trace`` is the traceback that helps the
    author; ``is_user_error`` says whose fault it is."""

    trace: str
    is_user_error: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """Instance to worker, last of all: what was begun is acknowledged, and everything closed."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Instance to worker, last of all: its lease ended, and it with it. No failure of the function:
    the worker starts it again once there is a lease."""


# Details with a long user config, and statuses with tracebacks, take more than other messages; a
# channel leaves no more than this unread.
INSTANCE_MESSAGE_BYTES_MAX = 256 * 1024

INSTANCE_CHANNEL = MessageCodec(
    [Start, Lease, StatusRequest, StatusAnswer, Stop, Started, Failed, Stopped, Expired],
    message_bytes_max=INSTANCE_MESSAGE_BYTES_MAX,
)
