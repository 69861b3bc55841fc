"""The policies of single topics, as each namespace's system topic ``__change_events`` says them.

``event_schema`` and ``events``, pure, are how they stand there; ``event_log`` follows the topic of
one namespace; ``store`` has a log for each namespace that has such a topic and is in use here, and
writes. Other brokers of the cluster, Apache's too, read and write the same topics. What policies
mean is ``geminga_broker.policies``'s business.
"""
