"""Stats of live topics, in the shapes of ``admin.documents``.

It reads the plain attributes in which topics, subscriptions, producers and consumers count.
"""
