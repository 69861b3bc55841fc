"""The proxy: the gateway for clients that cannot reach the brokers of a cluster.

In reading order:

``connection``        reads a client's first frames. A client that names no broker asks for topics;
                      a client that names one (``proxy_to_broker_url``) is joined to it
``lookups``           asks a broker what such a client asks
``broker_handshake``  is the broker's side of a joined connection until the broker has answered
``splice``            then carries bytes both ways without looking at them
``addresses``         the addresses that brokers have, and those that clients may be joined to. Pure
``brokers``           keeps track of the brokers, from ZooKeeper or from a list of URLs
``web``               forwards REST
``proxy``             puts it together; ``part`` makes a process of it, ``workers`` several

A proxy keeps no state: clients may use any of several. It must not know what a message is, or what
a topic holds, and never connects a client to an address that is not a broker's.
"""
