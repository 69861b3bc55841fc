"""URLs of several servers in one setting, as upstream writes them."""

from __future__ import annotations

from geminga_server.errors import ConfigError


def urls_in(url: str) -> tuple[str, ...]:
    """The URLs in a setting: ``scheme://a`` and ``scheme://b`` for ``scheme://a,b``, none for an
    empty string. Raises ``ConfigError``."""
    if not url:
        return ()
    scheme, separator, hosts = url.partition("://")
    if not separator or not all(host.strip(" /") for host in hosts.split(",")):
        raise ConfigError(f"{url!r} is not of the form SCHEME://HOST:PORT,HOST:PORT")
    return tuple(f"{scheme}://{host.strip().rstrip('/')}" for host in hosts.split(","))
