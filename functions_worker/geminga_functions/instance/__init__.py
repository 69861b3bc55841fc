"""What runs for one instance of a function, source or sink: in a thread of its worker, or in a
process of its own. ``spec`` says what it is told, ``messages`` what it and its worker tell each
other meanwhile.
"""
