"""Bundles and which broker shall own them, as decisions on values. Pure.

``bundles`` cuts a namespace's hash ring, ``split`` chooses where a bundle is cut, ``placement``
chooses the broker for a bundle that no broker owns, ``load_report`` says when the figures that the
leader places by are worth writing again.
"""
