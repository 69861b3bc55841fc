"""``pulsar.functions``: the modules of the classes that ``pulsar`` exports."""
