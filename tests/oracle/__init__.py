"""Random calls beside the real MXNet 1.9.1: operators, layers, losses, optimizers, metrics, mx.np functions.

A case is a small description that can be written as JSON: a kind, the text of a call, and how its arrays are made. It
follows from a seed. `operators`, `gluon_cases` and `numpy_cases` write cases; `execute` runs one in a package with
MXNet's interface, which is MXNet or Hybrid Lab; `worker` does so in MXNet's own Python, and `oracle` holds that
process. `compare` runs a case eagerly and hybridized and compares both with MXNet's answer; `rules` lists the
differences that are explained, each with a condition that the comparison checks; `shrink` makes a case small.

    make test-oracle CASES=20000            many, with a table at the end
    python -m tests.oracle 0-19999          the same
    python -m tests.oracle 1234             one: both answers, the smallest case that differs, a script

It needs the environment of `make oracle`, and so is no part of `make test`.
"""
