"""The JSON documents that the REST side answers, as plain values. Pure.

Names, types, order and defaults of the members are those that Apache Pulsar 4.0.6 prints, recorded
in ``tests/golden/admin``. What fills them from live topics is in ``admin.topics``.
"""
