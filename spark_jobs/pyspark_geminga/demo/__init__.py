"""A tour that runs by itself: ``python -m pyspark_geminga.demo``, or ``make spark-demo``.

``events`` publishes a data set that is on every machine with Python, its source code; ``pipeline``
starts a cluster and streams the topic into Parquet, ``questions`` asks what is in it, ``charts``
and ``report`` draw the answers into one HTML file.
"""
