"""What runs the instances that a worker is assigned: in processes of their own, or in threads.

``instances`` keeps what runs equal to what is assigned; ``process`` and ``thread`` are the two ways
in which an instance runs; ``reports`` is what REST is told about instances.
"""
