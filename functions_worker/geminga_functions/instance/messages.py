"""The messages between a worker and its instance: msgpack in frames (``control_codec``).

The worker sends ``Start`` first, then ``Lease`` with each new lease, ``StatusRequest`` and
``Stop``. The instance sends ``Started``, ``StatusAnswer``, and at its end one of ``Failed``,
``Stopped`` and ``Expired``. Either side takes the end of the channel for the end of the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga_runtime.control_codec import MessageCodec

# worker                                instance
#   | Start ----------------------------> |  loads the code
#   | Lease (every third of a lease) ---> |
#   | <-------------------------- Started |  consumes from now on
#   | StatusRequest --------------------> |
#   | <--------------------- StatusAnswer |
#   | Stop -----------------------------> |  finishes the messages in progress
#   | <-- Stopped, or Failed, or Expired  |  then its end of the channel closes
#
# The environment of a function may bring another version of this package than the worker's:
# ``MessageCodec`` gives fields that did not come their defaults, and drops those it does not know.


@dataclass(frozen=True, slots=True)
class Start:
    """Worker to instance, first of all: the fields of an ``InstanceSpec``, and the first lease."""

    # An encoded FunctionDetails.
    details: bytes
    number: int
    version: int
    worker_id: str
    cluster: str
    service_url: str
    web_url: str
    # Paths; empty for a function that is built in.
    package: str
    # Paths with colons between them.
    import_paths: str
    state_directory: str
    # As in ``Lease``.
    lease_until_s: float
    functions_namespace: str = "public/functions"
    async_messages_max: int = 100
    secrets_provider: str = ""
    secrets_config: str = ""
    # Of ``geminga.Tls``, with empty texts for what is not set.
    tls_trust_file: str = ""
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    tls_checks_hostname: bool = True


@dataclass(frozen=True, slots=True)
class Lease:
    """Worker to instance: it may run until ``until_s`` of the machine's monotonic clock.

    Without another lease by then the instance ends at once: from then on it may run elsewhere.
    """

    until_s: float


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Worker to instance: send a ``StatusAnswer`` with this number."""

    request_id: int


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """Instance to worker: an ``InstanceStatus`` as JSON, empty while the code is being loaded."""

    request_id: int
    status: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Worker to instance: finish the messages in progress in ``deadline_s`` seconds, then end."""

    deadline_s: float


@dataclass(frozen=True, slots=True)
class Started:
    """Instance to worker: the user's code is loaded, and messages are processed from now on."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Instance to worker, last of all: an error has ended it."""

    # The traceback, or what else helps the author of the function.
    trace: str
    # Whether the function is to blame, not the system.
    is_user_error: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """Instance to worker, last of all: it has finished its messages and closed everything."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Instance to worker, last of all: its lease has ended.

    This is no failure of the function. The worker starts the instance again once there is a lease.
    """


# More than other channels allow: ``Start`` may have a long user config, and ``StatusAnswer`` many
# tracebacks.
INSTANCE_MESSAGE_BYTES_MAX = 256 * 1024

INSTANCE_CHANNEL = MessageCodec(
    [Start, Lease, StatusRequest, StatusAnswer, Stop, Started, Failed, Stopped, Expired],
    message_bytes_max=INSTANCE_MESSAGE_BYTES_MAX,
)
