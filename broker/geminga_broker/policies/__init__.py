"""What holds for topics: values by subject, the rules that check them, and who says what.

A subject (``publishing``, ``expiry``, …) is one module: its config, which is the broker's word; its
values, which topics are handed; how the three levels are resolved to these; and what values may be
set. ``effective`` puts the subjects together. ``resolver`` asks for a namespace's policies and
remembers what they mean, ``follower`` brings changes to the topics in use; all others are pure.
Nothing here knows topics, subscriptions or REST.
"""
