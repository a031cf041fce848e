"""Kernels of one purpose: attention and its gradients, recurrent layers, sums by row number."""
