"""What functions, sources and sinks are told by: configs, as people write them in JSON, and the
details that workers keep. Pure: names, defaults and refusals are those of upstream's
``FunctionConfigUtils``, ``SourceConfigUtils`` and ``SinkConfigUtils``.
"""
