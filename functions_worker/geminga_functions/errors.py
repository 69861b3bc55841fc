"""What can go wrong in a functions worker.

::

    GemingaError
    ├── InvalidName             a name of a function or of an instance has not the form of one
    ├── InvalidDefinition       a function, source or sink cannot be as its config says
    ├── NotLeader               this worker does not lead, or not any more
    ├── NoLease                 no instance may run on this worker at present
    ├── ClusterUnknown          which workers there are cannot be found out
    ├── FunctionNotLoaded       the user's code cannot be loaded
    ├── InstanceFailed          an instance cannot go on
    ├── StateDamaged            what a lane of state holds is no record of state
    ├── LocalCopyFailed         the copy of a state on the worker's disk cannot be used
    ├── StateChanged            a state was changed meanwhile by a writer that should have ended
    ├── StateInDoubt            nobody knows whether a change of a state is stored
    ├── StateTooLarge           what is to be stored together is more than a broker takes at once
    └── PackageError            a package cannot be used
        ├── PackageNotFound     no package is stored under this path
        ├── PackageTooLarge     it is larger than packages may be
        ├── PackageDamaged      what is stored is not what was uploaded
        ├── PackageRefused      its file is none that functions can be made of
        └── EnvironmentNotBuilt what it requires cannot be installed
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from geminga_runtime.errors import GemingaError


class InvalidName(GemingaError):
    """A name of a function or of an instance has another form than it must have."""

    code: ClassVar[str] = "InvalidName"

    def __init__(self, text: str, form: str) -> None:
        super().__init__(f"{text!r} is no name of the form {form}")
        self.text = text


class InvalidDefinition(GemingaError):
    """A function, source or sink cannot be as its config says. ``str`` says why, in upstream's
    words where upstream refuses it too."""

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
    """What is stored of a package is not what was uploaded: reading it again may help, since a
    package is not whole while it is being replaced."""

    retry: ClassVar[bool] = True

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"the package {path} cannot be used: {reason}")
        self.path = path


class PackageRefused(PackageError):
    """The file of a package is none that functions can be made of. ``str`` says why, and is meant
    for the author of the function."""


class EnvironmentNotBuilt(PackageError):
    """What a package requires cannot be installed. ``output`` is the end of what pip wrote."""

    def __init__(self, reason: str, output: str) -> None:
        super().__init__(f"{reason}\n{output}".rstrip())
        self.reason = reason
        self.output = output


class NotLeader(GemingaError):
    """This worker does not lead, or not any more: another one does, or is about to."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__("this worker does not lead; ask the leader")


class NoLease(GemingaError):
    """No instance may run on this worker at present."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__("no broker stores the heartbeats of this worker, so nothing runs on it")


class ClusterUnknown(GemingaError):
    """Which workers there are cannot be found out now: no broker says so."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True

    def __init__(self, reason: str) -> None:
        super().__init__(f"the workers of this cluster are not known: {reason}")


class FunctionNotLoaded(GemingaError):
    """The user's code cannot be loaded. ``str`` says why, and is meant for the function's author;
    the ``__cause__`` is what the code raised, if it raised something."""

    code: ClassVar[str] = "FunctionNotLoaded"


class InstanceFailed(GemingaError):
    """An instance cannot go on, and ends; its worker starts it again. ``is_user_error`` says that
    the user's code is to blame."""

    code: ClassVar[str] = "InstanceFailed"

    def __init__(self, reason: str, *, is_user_error: bool = False) -> None:
        super().__init__(reason)
        self.is_user_error = is_user_error


class StateDamaged(GemingaError):
    """What a lane of state holds is no record of state: this function does not go on with a state
    that would lack something."""

    code: ClassVar[str] = "StateDamaged"

    def __init__(self, lane: str, key: str, reason: str) -> None:
        super().__init__(f"the state in lane {lane!r} cannot be read at {key!r}: {reason}")


class LocalCopyFailed(GemingaError):
    """The copy of a state on the worker's disk can neither be read nor written. Nothing is lost: it
    is made anew from the topics of the state."""

    code: ClassVar[str] = "LocalCopyFailed"
    retry: ClassVar[bool] = True

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(f"the local copy of the state in {directory} failed: {reason}")


class StateTooLarge(GemingaError):
    """What is to be stored together is more than a broker takes in one message."""

    code: ClassVar[str] = "StateTooLarge"

    def __init__(self, size: int, bytes_max: int) -> None:
        super().__init__(
            f"changes of state since the last commit take {size} bytes; {bytes_max} are allowed"
        )


class StateChanged(GemingaError):
    """A state was changed meanwhile by an instance that should have ended: to be read anew."""

    code: ClassVar[str] = "StateChanged"
    retry: ClassVar[bool] = True

    def __init__(self, topic: str) -> None:
        super().__init__(f"an earlier instance has changed the state meanwhile: {topic}")


class StateInDoubt(GemingaError):
    """Whoever stored a change of a state has given up before it was known to be stored: the state
    is to be read anew."""

    code: ClassVar[str] = "StateInDoubt"
    retry: ClassVar[bool] = True

    def __init__(self, topic: str) -> None:
        super().__init__(f"an earlier change of the state may be stored or not: {topic}")
