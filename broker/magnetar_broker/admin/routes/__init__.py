"""One router per resource. What a route is called and answers is Pulsar's; the texts too.

Topics are addressed as ``{domain:domain}/{tenant}/{namespace}/{topic}``; the convertor that this
package registers admits ``persistent`` and ``non-persistent`` as the domain, so that one table of
routes serves both.
"""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor


class Domain(Convertor[str]):
    """The first part of a topic's path: what kind of topic."""

    regex = "persistent|non-persistent"

    def convert(self, value: str) -> str:
        """Take the part as it is."""
        return value

    def to_string(self, value: str) -> str:
        """Give it as it is."""
        return value


register_url_convertor("domain", Domain())
