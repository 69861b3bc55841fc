"""Definitions of functions, sources and sinks: *configs* and *details*. Pure.

A config is JSON, as users and the REST interface have it; details (``FunctionDetails``, a protobuf
message) are what workers store. ``functions``, ``sources`` and ``sinks`` turn one into the other;
``members`` has what they share. ``decorated`` reads what a function says of itself in its source.
Names, defaults and error texts are those of upstream's ``FunctionConfigUtils``,
``SourceConfigUtils`` and ``SinkConfigUtils``.
"""
