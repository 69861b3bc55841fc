"""Decides what happens to the parts of a cluster next: start, release, end, kill. Pure.

``orders``  what a part needs, the phases of its life, and the orders there are
``fleet``   facts go in, orders come out
"""
