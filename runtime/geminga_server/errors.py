"""What can go wrong in the machinery that server parts share.

::

    GemingaError
    ├── ConfigError               a wrong setting; says where it was read
    ├── ControlError              supervisor and part misunderstood each other
    ├── DirectoryUnusable         a path is no directory, or not to be written to
    ├── DirectoryInUse            another process works on the same data
    ├── NotAuthorized             this principal may not do that
    ├── ServerStartError          this process cannot run here: no uvloop, a port that is taken
    └── ServerUnreachable         another server did not answer a request
        └── ServerSilent          it accepted the request, and sent nothing for too long
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from geminga_runtime.errors import GemingaError


class ConfigError(GemingaError):
    """Wrong settings. The message names every one of them, and where it was read."""

    code: ClassVar[str] = "InvalidSettings"


class ControlError(GemingaError):
    """The supervisor and a part misunderstood each other; the session between them ends."""

    code: ClassVar[str] = "ControlError"


class ServerStartError(GemingaError):
    """This process cannot run here; the message says what would make it run."""

    code: ClassVar[str] = "ServerStartError"


class DirectoryUnusable(GemingaError):
    """A path that the settings name is no directory that this process can write to."""

    code: ClassVar[str] = "DirectoryUnusable"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"the directory {path} cannot be used: {why}. Name a directory to which this user may "
            "write; where it does not exist, it is made."
        )
        self.path = path


class DirectoryInUse(GemingaError):
    """Another process works on the same data; two would corrupt it. ``pid`` is its id if known."""

    code: ClassVar[str] = "DirectoryInUse"

    def __init__(self, path: Path, pid: int | None) -> None:
        owner = f"process {pid}" if pid else "another process"
        super().__init__(
            f"the data in {path} is in use by {owner}: stop it, or choose another --data-dir"
        )
        self.path = path
        self.pid = pid


class NotAuthorized(GemingaError):
    """This principal may not do that to this resource."""

    code: ClassVar[str] = "AuthorizationError"

    def __init__(self, role: str, action: str, resource: str) -> None:
        super().__init__(f"{role or 'an anonymous client'} may not {action} on {resource}")
        self.role = role
        self.action = action
        self.resource = resource


class ServerUnreachable(GemingaError):
    """Another server did not answer a request, which it may or may not have carried out. Without
    ``is_connected`` it has received nothing of it: the request may be sent to another server."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True

    def __init__(self, message: str, *, is_connected: bool = True) -> None:
        super().__init__(message)
        self.is_connected = is_connected


class ServerSilent(ServerUnreachable):
    """Another server accepted a request and sent nothing for too long."""

    def __init__(self, url: str, timeout_s: float) -> None:
        super().__init__(f"{url} was silent for {timeout_s:g} s")
