"""Everything worth knowing about the Triton engine on one GPU, in stages of a few minutes: scripts/gpu_day.py.

A stage is a module with a list of items and a function that runs one of them. Items run in worker processes
(pool.py, worker.py), and the result of each is written to the stage's file at once (results.py).
"""
