"""The policies of a namespace as commands: a row each makes ``get-X``, ``set-X`` and ``remove-X``.

``policy``   what a row says, and which commands it makes
``storage``  what is kept, for how long, and which topics live
``traffic``  how producers publish and consumers receive, and which schemas they may use
"""
