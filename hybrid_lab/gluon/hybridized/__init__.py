"""What runs hybridized Blocks: traces, cached graphs, and the programs that are compiled from them."""
