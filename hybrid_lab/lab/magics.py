"""The magics: %hybrid_save, %hybrid_load, %hybrid_explain and %%hybrid_lint."""

from __future__ import annotations

import shlex
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from hybrid_lab.gluon.block import Block


@magics_class
class HybridMagics(Magics):
    """Registered by the hooks."""

    def __init__(self, shell: Any, lab: Any):
        super().__init__(shell)
        self._lab = lab

    def _block(self, line: str, usage: str) -> tuple[Block, list[str]]:
        words = shlex.split(line)
        if not words:
            raise UsageError(f"name a model: {usage}")
        block = self.shell.user_ns.get(words[0])
        if not isinstance(block, Block):
            raise UsageError(f"{words[0]} is not a Block in this notebook; usage: {usage}")
        return block, words[1:]

    @line_magic
    def hybrid_save(self, line: str) -> Any:
        """`%hybrid_save net [path]`: save the tree, every graph and all parameters of a model."""
        from hybrid_lab.formats.archive import save_cached_graphs

        net, rest = self._block(line, "%hybrid_save net [path]")
        return save_cached_graphs(net, rest[0] if rest else f"{shlex.split(line)[0]}.hlab")

    @line_magic
    def hybrid_load(self, line: str) -> Any:
        """`%hybrid_load net [path] [--graphs file]`: load what %hybrid_save wrote into a model."""
        from hybrid_lab.formats.archive import load_cached_graphs

        net, rest = self._block(line, "%hybrid_load net [path] [--graphs code|file]")
        graphs = "code"
        if "--graphs" in rest:
            place = rest.index("--graphs")
            graphs = rest[place + 1] if place + 1 < len(rest) else ""
            del rest[place : place + 2]
        if graphs not in ("code", "file"):
            raise UsageError("--graphs takes code or file")
        report = load_cached_graphs(net, rest[0] if rest else f"{shlex.split(line)[0]}.hlab", graphs=graphs)
        self._lab.push()
        return report

    @line_magic
    def hybrid_explain(self, line: str) -> Any:
        """`%hybrid_explain net [x]`: what hybridization made of a model; with an input it is called on it first."""
        from hybrid_lab.insight import explain

        net, rest = self._block(line, "%hybrid_explain net [x]")
        missing = [name for name in rest if name not in self.shell.user_ns]
        if missing:
            raise UsageError(f"there is no variable {missing[0]}")
        return explain(net, *(self.shell.user_ns[name] for name in rest))

    @cell_magic
    def hybrid_lint(self, line: str, cell: str) -> None:
        """`%%hybrid_lint [mxnet]`: print the findings of the cell, then run it. `mxnet` adds portability notes."""
        from hybrid_lab.lint import check

        history = [text for text in self.shell.user_ns.get("In", []) if text and not text.startswith("%%")]
        findings = check(cell, target=line.strip() or None, context=history, file=f"cell {self.shell.execution_count}")
        print("\n".join(map(str, findings)) if findings else "no findings")
        self.shell.run_cell(cell)
