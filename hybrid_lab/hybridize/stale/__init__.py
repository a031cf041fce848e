"""Whether a graph is stale: the values that the code reads and changes besides its arguments, compared with the
trace.
"""
