"""One router per resource. What a route is called and answers is Pulsar's; the texts too.

Topics are addressed as ``{domain:domain}/{tenant}/{namespace}/{topic}``; the convertors that this
package registers admit only certain words, so that one table of routes serves ``persistent`` and
``non-persistent``, and another ``functions``, ``sources`` and ``sinks``.
"""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor


class _Word(Convertor[str]):
    """A part of a path that is one of a few words; taken as it is."""

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class _Domain(_Word):
    regex = "persistent|non-persistent"


class _WorkerKind(_Word):
    regex = "functions|sources|sinks"


register_url_convertor("domain", _Domain())
register_url_convertor("worker_kind", _WorkerKind())
