"""Settings of processes: config classes that declare them, and where their values come from.

A part declares one frozen dataclass on top of ``PartConfig``, made of groups that are declared with
their subject. ``config.loading`` fills it from a file, the environment and options, and names every
wrong value; it is not imported here, since ``--help`` does not need it. Code that needs settings of
a group gets the whole group.
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
