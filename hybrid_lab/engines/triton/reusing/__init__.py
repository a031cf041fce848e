"""Reusing: what fusing and writing found out about a graph, for its next batch and for the next process."""
