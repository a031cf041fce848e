"""Random programs as users write them, run eagerly and hybridized with every engine: nothing may differ.

A program is Python text. `session` writes it from a seed: Block classes (`classes`, whose lines are tried one by one,
`writing`) made of layers (`layers`), of what stands between them (`operators`), and of loops and branches (`bodies`);
their `inputs`; and what is done with a net of them (`parts`, `files`). `run` runs a text, eagerly or with an engine,
and keeps all that it shows; `compare` holds two runs against each other and tries to prove of a difference that
rounding is its reason; `shrink` makes a program that differs small.

    python -m tests.random_programs 1234 torch         one program, what differs, the smallest program that does
    python -m tests.random_programs 0-9999 numpy       many; a line for each that differs
    make test-programs PROGRAMS=10000                  on all engines in turn

To add a construct, add a row: a layer to `layers.LAYERS`, an expression or statement to a table of `operators`, a loop
to `bodies`, a part of a session to `parts`. Rows need no shapes: a line that does not run where it would stand is not
written.
"""
