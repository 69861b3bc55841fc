"""A tour that runs by itself: ``python -m pyspark_geminga.demo``, or ``make spark-demo``.

``events`` publishes a data set that is on every machine with Python, its source code; ``__main__``
starts a cluster, streams the topic into Parquet and asks questions of it; ``charts`` and ``report``
draw the answers into one HTML file.
"""
