"""The index: in which block of which entry log each entry stands, and how far checkpoints came.

``index`` is what the rest of the bookie asks and changes. It keeps its pairs in a ``SortedStore``:
``rocks_store`` on a disk, ``memory_store`` in tests and simulations. ``formats.index_v2`` draws the
pairs.
"""
