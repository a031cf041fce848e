"""NumPy kernels and parts of Triton kernels that records share."""
