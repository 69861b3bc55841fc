"""Writing ledgers: entries to an ensemble, and other bookies in the place of failed ones.

``writer`` is what users hold, ``pipeline`` the engine under it and under recovery. A bookie that
fails is replaced by ``ensemble_change``. ``listener`` is what a writer reports to; ``explicit_lac``
tells bookies how far a ledger is confirmed while nothing is added.
"""
