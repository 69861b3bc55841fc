"""The schema registry: which schemas topics have, and which schemas may follow them.

In reading order:

``registry``      registers, finds, compares and deletes the versions of a topic's schema
``rules/``        what a definition means, and whether it may follow others; pure
``storage``       versions in ledgers, which a node in ZooKeeper names, as upstream's brokers do
``counts``        what the metrics show of all this
``errors``        why a schema is refused
``avro_binary``   values in Avro's binary form, for the broker's own messages

Versions never change once they are stored, and any broker may store the next one. The work on a
definition, which comes from a client, is bounded in time, size and depth.

The room knows neither topics nor REST; ``topics.topic_schemas`` calls it for clients.
"""
