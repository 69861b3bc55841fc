"""What a channel holds until the broker has answered, or until it is sent; decided without IO.

``acks`` collects acknowledgements into few commands, ``sends`` keeps the payloads that have no
receipt yet, in the order in which the broker must confirm them.
"""
