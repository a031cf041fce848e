"""Build: binaries of kernels, for this machine's GPU or another."""
