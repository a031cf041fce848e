"""Runs HybridBlocks as cached graphs: traces their code, compiles the graphs, and calls what was compiled."""
