"""The policies of topics: values by subject, the rules that check them, and who decides. Pure.

A subject (``publish``, ``expiry``, ...) is one module. It has the subject's config, which is the
broker's level; the values that topics are handed; how the three levels are resolved to these; and
the check of values that are set over REST. In reading order:

- ``levels``: a policy is set for a topic, for its namespace or for the broker, and the nearest
  level counts.
- one module per subject, of which ``backlog`` is a good first one.
- ``effective`` puts the subjects together: what holds for one topic.
- ``resolver`` gives each topic its effective policies, and remembers them.

Nothing here knows topics, subscriptions or REST, reads a clock, or starts a task. What notices
changes and applies them is ``geminga_broker.policy_follower``; policies of single topics are stored
by ``geminga_broker.topic_policies``.
"""
