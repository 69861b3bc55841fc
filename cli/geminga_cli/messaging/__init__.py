"""The commands that send and receive messages: ``produce``, ``consume`` and ``read``.

They need the bare client library and nothing of the servers. What only running a command needs
(the client, its event loop) is imported once the command line was understood.
"""
