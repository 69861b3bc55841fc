"""The policies of single topics, stored in the system topic ``__change_events`` of each namespace.

In reading order:

- ``event_schema`` is the Avro schema of the events, byte for byte upstream's.
- ``events`` encodes and decodes them; both modules are pure.
- ``event_log`` follows the topic of one namespace, and keeps the newest event of each key.
- ``store`` has such a log for each namespace in use here; it answers what a topic's policies are,
  and writes changes.

Other brokers of the cluster, Apache's too, read and write the same topics: so they are read and
written over connections, as by any client, whichever broker serves them. A change is visible on all
brokers some milliseconds after it was stored. What policies mean for a topic is decided in
``geminga_broker.policies``; nothing here looks at their values.
"""
