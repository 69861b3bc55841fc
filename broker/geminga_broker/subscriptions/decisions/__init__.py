"""Decisions and values of subscriptions that need no log and no consumer. Pure.

Which expired entries may go, how often a damaged entry is retried, how often an entry was given
back, and how a consumer wants keys shared. ``distribution``, the other pure folder, decides which
consumer gets an entry.
"""
