"""MXNet's older interfaces: Symbols bound to arrays, modules, symbolic cells, its profiler and helpers, `import mxnet`.

Users have them without the name of this folder, as `mx.mod` and `hybrid_lab.module`; see `hybrid_lab.aliases`.
"""
