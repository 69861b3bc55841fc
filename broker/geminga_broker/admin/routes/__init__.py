"""One router per resource: of the ``cluster``, of a ``namespace``, of a ``topic``.

Paths, answers and texts are Pulsar's. A handler's docstring is its description on the API page.
Each route names the right it takes as a dependency; ``app`` lists the routers.
"""
