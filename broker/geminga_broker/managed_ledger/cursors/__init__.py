"""Durable cursors: ``Cursor`` writes acknowledgements behind, ``CursorStore`` knows where to.

``DurableFuture`` turns the callback of a cursor's write into something to await.
"""
