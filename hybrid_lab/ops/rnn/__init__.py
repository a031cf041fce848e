"""Recurrent layers: MXNet's fused RNN, its gradient, and the loops of one layer."""
