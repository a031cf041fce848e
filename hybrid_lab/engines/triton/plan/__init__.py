"""Plan: which operators share a kernel, and what becomes of graphs before that."""
