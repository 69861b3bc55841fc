"""A demo that needs no input: ``python -m pyspark_geminga.demo``, or ``make spark-demo``.

``events`` publishes a data set that is on every machine with Python, the source files of its
libraries; ``pipeline`` starts a cluster and streams the topic into Parquet; ``questions`` queries
the files; ``charts`` and ``report`` draw the answers into one HTML file.
"""
