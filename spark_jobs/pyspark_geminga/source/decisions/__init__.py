"""What the Spark source decides, without Spark, brokers or a clock.

``options`` says what a query asks for, ``filters`` which parts of it need not be read, ``offsets``
how a place in the topics is written down. ``admission`` decides how much a batch takes, ``splits``
into which tasks a range is cut.
"""
