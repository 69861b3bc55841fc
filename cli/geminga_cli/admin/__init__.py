"""``geminga admin``: administers brokers by REST, with the words and options of ``pulsar-admin``.

``operation``           what a command is: its word, arguments, request, and how the answer is shown
``groups``              the commands, a module for each group
``namespace_policies``  the policies of namespaces: a row makes three commands
``components``          what functions, sources and sinks have in common
``local_functions``     functions that run on this machine: ``localrun`` and ``dev``
``values``              readers of values: times, sizes, names, message ids
``options``             the broker to ask, and the credentials
``service``             requests over HTTP
``errors``              what can go wrong

A command is declared, not programmed, where one request does it. Brokers check what is allowed:
here only the command line is checked.
"""
