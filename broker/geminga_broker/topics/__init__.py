"""Topics: producers in, subscriptions out, and the log in between.

In reading order:

``topic``              opens and closes a topic's log and parts, and passes events on to the parts
``part``               what a part is: one feature of a topic, and what it may ask of its topic
``parts``              the list of parts: a new feature is a module and a line there
``producers/``         producers, and the path of their messages to the log
``subscriptions/``     the subscriptions of a topic
``backlog``, ``topic_compaction``, ``topic_replication``   further parts
``topic_schemas``      which schemas a topic's clients may use
``decisions/``         verdicts on consumers, publish rates and repeats; pure
``directory``          the topics that this broker serves, loaded on demand
``maintenance``        the periodic work on all of them

A topic is open at one broker only. A broker that loses a topic's log to another (fencing) refuses
all its clients, who look the topic up again. A feature that a topic does not use costs it neither
memory nor time: a broker may hold 100,000 topics.

Parts know their topic only as ``OwningTopic``, and each other only through it. The room knows
neither sessions nor REST, which stand on it.
"""
