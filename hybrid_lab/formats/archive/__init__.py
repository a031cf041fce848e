"""The .hlab archive: a model with every HybridBlock graph, its weights and its training state in one file."""
