"""Whether a graph is stale: what the code reads and changes besides its arguments, compared with the trace."""
