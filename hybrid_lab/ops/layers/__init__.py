"""Operators of neural networks: convolution, pooling, normalization, softmax, attention, losses."""
