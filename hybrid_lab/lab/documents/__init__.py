"""Model files as documents in JupyterLab, read without a kernel."""
