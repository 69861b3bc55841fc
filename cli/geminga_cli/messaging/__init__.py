"""The commands that send and receive messages: ``produce``, ``consume``, ``read`` and ``perf``.

``options``    their options, under the names of ``pulsar-client`` and ``pulsar-perf``
``access``     how a client connects and authenticates
``files``      files that the command line names: messages and keys
``run``        runs a command with a client: event loop, signals, exit codes
``produce``    ``geminga produce``
``consume``    ``geminga consume`` and ``geminga read``
``loads``      ``geminga perf``

They need the bare client library, and may import nothing of the servers. Only ``options`` is loaded
before the command line was understood: the others load the client and its event loop.
"""
