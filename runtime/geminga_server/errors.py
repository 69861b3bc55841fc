"""What can go wrong in the machinery that server parts share.

::

    GemingaError
    ├── SettingsError             a setting nobody can work with; says where it stands
    ├── ControlError              supervisor and part misunderstood each other
    ├── NotAuthorized             this principal may not do that
    └── ServerStartError          this process cannot run here: no uvloop, a port that is taken
"""

from __future__ import annotations

from typing import ClassVar

from geminga_runtime.errors import GemingaError


class SettingsError(GemingaError):
    """A setting nobody can work with. The message names every bad one, and where it was read."""

    code: ClassVar[str] = "InvalidSettings"


class ControlError(GemingaError):
    """The supervisor and a part misunderstood each other; the session between them ends."""

    code: ClassVar[str] = "ControlError"


class ServerStartError(GemingaError):
    """This process cannot run here; the message says what would make it run."""

    code: ClassVar[str] = "ServerStartError"


class NotAuthorized(GemingaError):
    """This principal may not do that to this resource."""

    code: ClassVar[str] = "AuthorizationError"

    def __init__(self, role: str, action: str, resource: str) -> None:
        super().__init__(f"{role or 'an anonymous client'} may not {action} on {resource}")
        self.role = role
        self.action = action
        self.resource = resource
