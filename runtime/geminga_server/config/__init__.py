"""What a process is told: config classes that declare settings, and where their values come from.

A part declares one frozen dataclass on top of ``PartConfig``, made of groups that live with their
subject; ``config.loading`` fills it from a file, the environment and options, and names every value
that is wrong (apart from this, since ``--help`` needs none of it). What needs a group is handed the
whole of it.
"""

from __future__ import annotations

from geminga_server.config.declaration import (
    INLINE,
    INTERNAL,
    Setting,
    Upstream,
    bare_type,
    list_of_words,
    settings_of,
)
from geminga_server.config.part import ConnectionConfig, LogLevel, PartConfig, Port, zookeeper_hosts

__all__ = [
    "INLINE",
    "INTERNAL",
    "ConnectionConfig",
    "LogLevel",
    "PartConfig",
    "Port",
    "Setting",
    "Upstream",
    "bare_type",
    "list_of_words",
    "settings_of",
    "zookeeper_hosts",
]
