"""The errors of functions workers.

::

    GemingaError
    ├── InvalidName             the name of a function or an instance is malformed
    ├── InvalidDefinition       the config of a function, source or sink is invalid
    ├── NotLeader               this worker is not the leader, or not any more
    ├── NoLease                 this worker has no lease: no instance may run on it
    ├── ClusterUnknown          no broker says which workers there are
    ├── FunctionNotLoaded       the user's code cannot be loaded
    ├── InstanceFailed          an instance cannot continue
    ├── StateDamaged            a lane of state has lost records, or has none of the known format
    ├── LocalCopyFailed         the copy of a state on the worker's disk cannot be used
    ├── StateChanged            a writer that should have ended has changed the state
    ├── StateInDoubt            it is unknown whether a change of the state is stored
    ├── StateTooLarge           a commit is larger than a message may be
    └── PackageError            a package cannot be used
        ├── PackageNotFound     no package is stored under this path
        ├── PackageTooLarge     the package is larger than packages may be
        ├── PackageDamaged      the stored package is not what was uploaded
        ├── PackageRefused      the file is not a package that this worker can run
        └── EnvironmentNotBuilt what the package requires cannot be installed
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from geminga_runtime.errors import GemingaError


# What users did wrong: no attempt with the same words succeeds, and ``retry`` stays false.
class InvalidName(GemingaError):
    """The name of a function or an instance is malformed."""

    code: ClassVar[str] = "InvalidName"

    def __init__(self, text: str, form: str) -> None:
        super().__init__(f"{text!r} is no name of the form {form}")
        self.text = text


class InvalidDefinition(GemingaError):
    """The config of a function, source or sink is invalid.

    The text says why; it is upstream's text if upstream refuses the config, too.
    """

    code: ClassVar[str] = "InvalidDefinition"


class PackageError(GemingaError):
    """A package cannot be used."""

    code: ClassVar[str] = "PackageError"


class PackageNotFound(PackageError):
    """No package is stored under this path."""

    def __init__(self, path: str) -> None:
        super().__init__(f"no package is stored under {path}")
        self.path = path


class PackageTooLarge(PackageError):
    """A package is larger than packages may be."""

    def __init__(self, path: str, size_bytes: int, bytes_max: int) -> None:
        super().__init__(
            f"the package {path} has at least {size_bytes} bytes, and packages may have "
            f"{bytes_max} at most (setting package_bytes_max)"
        )
        self.path = path
        self.size_bytes = size_bytes
        self.bytes_max = bytes_max


class PackageDamaged(PackageError):
    """The stored package is not what was uploaded.

    Reading it again may help: while a package is being replaced, it is incomplete.
    """

    # For other kinds a worker holds the function's author to blame (``Keeper``).
    retry: ClassVar[bool] = True

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"the package {path} cannot be used: {reason}")
        self.path = path


class PackageRefused(PackageError):
    """The file is not a package that this worker can run. The text is for the function's author."""


class EnvironmentNotBuilt(PackageError):
    """What a package requires cannot be installed. ``output`` is the end of pip's output."""

    def __init__(self, reason: str, output: str) -> None:
        super().__init__(f"{reason}\n{output}".rstrip())
        self.reason = reason
        self.output = output


# What passes by itself, while the cluster of workers or its brokers change.
class NotLeader(GemingaError):
    """This worker is not the leader, or not any more: another one is, or will be soon."""

    code: ClassVar[str] = "ServiceNotReady"
    # Another worker is elected within seconds, and every worker knows how to find it.
    retry: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__("this worker does not lead; ask the leader")


class NoLease(GemingaError):
    """This worker has no lease: no instance may run on it at present."""

    code: ClassVar[str] = "ServiceNotReady"
    # The next heartbeat that is stored begins a new session.
    retry: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__("no broker stores the heartbeats of this worker, so nothing runs on it")


class ClusterUnknown(GemingaError):
    """No broker says at present which workers there are."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True

    def __init__(self, reason: str) -> None:
        super().__init__(f"the workers of this cluster are not known: {reason}")


# What ends an instance. Its worker starts it again in any case, after a delay that grows.
class FunctionNotLoaded(GemingaError):
    """The user's code cannot be loaded.

    The text is for the function's author. If the code raised an error, it is the ``__cause__``.
    """

    code: ClassVar[str] = "FunctionNotLoaded"


class InstanceFailed(GemingaError):
    """An instance cannot continue, and ends; its worker starts it again.

    ``is_user_error`` says that the user's code is to blame.
    """

    code: ClassVar[str] = "InstanceFailed"

    def __init__(self, reason: str, *, is_user_error: bool = False) -> None:
        super().__init__(reason)
        self.is_user_error = is_user_error


class StateDamaged(GemingaError):
    """A lane of state has lost records, or has a record that is not of the known format.

    The function ends: it must not run with a state that is incomplete.
    """

    code: ClassVar[str] = "StateDamaged"

    def __init__(self, lane: str, key: str, reason: str) -> None:
        super().__init__(f"the state in lane {lane!r} cannot be read at {key!r}: {reason}")


class LocalCopyFailed(GemingaError):
    """The copy of a state on the worker's disk can be neither read nor written.

    Nothing is lost: the copy is made anew from the topics of the state.
    """

    code: ClassVar[str] = "LocalCopyFailed"
    # The next run finds no copy: ``LocalCopy.close`` has removed a damaged one.
    retry: ClassVar[bool] = True

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(f"the local copy of the state in {directory} failed: {reason}")


class StateTooLarge(GemingaError):
    """A commit of state is larger than a message may be."""

    code: ClassVar[str] = "StateTooLarge"

    def __init__(self, size: int, bytes_max: int) -> None:
        super().__init__(
            f"changes of state since the last commit take {size} bytes; {bytes_max} are allowed"
        )


class StateChanged(GemingaError):
    """An instance that should have ended has changed the state, which must be read anew."""

    code: ClassVar[str] = "StateChanged"
    # The writer before is fenced by now: the next run reads what it has stored.
    retry: ClassVar[bool] = True

    def __init__(self, topic: str) -> None:
        super().__init__(f"an earlier instance has changed the state meanwhile: {topic}")


class StateInDoubt(GemingaError):
    """Storing a change of the state was cancelled: it is unknown whether the change is stored.

    The state must be read anew.
    """

    code: ClassVar[str] = "StateInDoubt"
    # Reading the lane tells which of the two it is.
    retry: ClassVar[bool] = True

    def __init__(self, topic: str) -> None:
        super().__init__(f"an earlier change of the state may be stored or not: {topic}")
