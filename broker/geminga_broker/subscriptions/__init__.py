"""Subscriptions: which messages their consumers are sent, and what they have acknowledged.

In reading order:

``subscription``                 one subscription of a persistent topic; it connects the parts below
``non_persistent_subscription``  one of a topic without a log, for the consumers connected now
``membership``                   the consumers, their type, and the dispatcher that serves them
``consumer``                     one consumer: its permits, and the messages it holds
``dispatch/``                    dispatchers read the log and send entries to consumers
``distribution/``                which consumer gets which entry; pure
``cursor_moves/``                acknowledgements, seeks, skipped and expired messages
``decisions/``                   further decisions and values; pure
``redelivery_count_store``       redelivery counts, kept with the cursor

An entry is sent again until it is acknowledged, and not sent any more once its acknowledgement is
durable. Exclusive and Failover keep the order of the log, Key_Shared that of each key.

The room stands on the managed ledger, compaction and delayed messages. It does not know topics
(``SubscriptionOwner`` is what it asks of one), connections (``ClientSession`` takes the frames) or
policies in ZooKeeper, and it has no task of its own: background work runs in the managed ledger.
"""
