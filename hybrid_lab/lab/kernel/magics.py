"""The magics: %hybrid_save and _load, of one model or _all, _diff, _explain, _profile, _compare, and %%hybrid_lint."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from hybrid_lab.lab.places import running_cell

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from hybrid_lab.formats.archive import LoadReport, ModelDifference
    from hybrid_lab.gluon.block import Block
    from hybrid_lab.insight import Comparison, Explanation, Profile
    from hybrid_lab.lab.kernel.hooks import Lab
    from hybrid_lab.lab.models.registry import LiveModel
    from hybrid_lab.lab.saving.all_models import EveryReport

_SAVE = "%hybrid_save net [path]"
_LOAD = "%hybrid_load net [path] [--graphs code|file]"
_SAVE_ALL = "%hybrid_save_all [folder]"
_LOAD_ALL = "%hybrid_load_all [folder] [--graphs code|file]"
_EXPLAIN = "%hybrid_explain net [x ...]"
_PROFILE = "%hybrid_profile net x [x ...] [--train]"
_DIFF = "%hybrid_diff net [path]"
_COMPARE = "%hybrid_compare net x [x ...] [--train]"
_LINT = "%%hybrid_lint [mxnet]"
_CONTEXT = 200
"""The number of earlier cells whose definitions %%hybrid_lint knows."""


class CellFailed(Exception):  # noqa: N818 - it stands for the error that was shown already
    """The cell that a magic ran raised; its error is shown above."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


@magics_class
class HybridMagics(Magics):
    """Registered by the hooks."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell, lab: Lab):
        super().__init__(shell)
        self._lab = lab

    @line_magic
    def hybrid_save(self, line: str) -> str:
        """`%hybrid_save net [path]`: save the tree, every graph and all parameters of a model; gives the path.

        An existing file is replaced if it is an archive, and kept among the earlier saves that the panel lists. The
        panel's Undo brings it back.
        """
        from hybrid_lab.formats.archive import layout, ledger, why_no_archive
        from hybrid_lab.lab.saving import one_save
        from hybrid_lab.lab.saving.undo import undo_of_save

        name, rest = _words(line, _SAVE)
        if len(rest) > 1:
            raise UsageError(f"one path at most: {_SAVE}")
        net = self._block(name, _SAVE)
        with _as_usage():
            path = layout.archive_path(rest[0] if rest else f"{name}.hlab", name)
            reason = why_no_archive(path) if os.path.lexists(path) else None
            if reason is not None:
                raise UsageError(f"{path} exists and is not an intact archive ({reason}); choose another name")
            file, entry = Path(os.path.abspath(path)), self._entry(net)
            was_own = ledger.version(file) in ("", ledger.noted(net, file))
            kept = one_save.write(net, file)
            if entry is not None:
                entry.can_undo(undo_of_save(entry, net, file, kept, was_own, entry.file))
            return os.fspath(file)

    @line_magic
    def hybrid_save_all(self, line: str) -> EveryReport:
        """`%hybrid_save_all [folder]`: save every model of the notebook, each to an archive of its own; gives a report.

        The files that are replaced are kept among the earlier saves that the panel lists.
        """
        from hybrid_lab.lab.saving.all_models import save_all

        rest = _split(line, _SAVE_ALL)
        if len(rest) > 1 or rest[:1] and rest[0].startswith("-"):
            raise UsageError(f"one folder at most: {_SAVE_ALL}")
        with _as_usage():
            return save_all(rest[0] if rest else None)

    @line_magic
    def hybrid_load_all(self, line: str) -> EveryReport:
        """`%hybrid_load_all [folder] [--graphs code|file]`: load every model's archive into it; gives a report."""
        from hybrid_lab.lab.saving.all_models import reload_all

        rest, graphs = _graphs_choice(_split(line.replace("--graphs=", "--graphs "), _LOAD_ALL), _LOAD_ALL)
        if len(rest) > 1 or any(word.startswith("-") for word in rest):
            raise UsageError(f"{rest[-1]!r} is not understood: {_LOAD_ALL}")
        with _as_usage():
            return reload_all(rest[0] if rest else None, graphs=graphs)

    @line_magic
    def hybrid_diff(self, line: str) -> ModelDifference:
        """`%hybrid_diff net [path]`: what differs between the archive of a model and the model now."""
        from hybrid_lab.formats.archive import diff

        name, rest = _words(line, _DIFF)
        if len(rest) > 1:
            raise UsageError(f"one path at most: {_DIFF}")
        net = self._block(name, _DIFF)
        with _as_usage():
            return diff(rest[0] if rest else f"{name}.hlab", net)

    @line_magic
    def hybrid_load(self, line: str) -> LoadReport:
        """`%hybrid_load net [path] [--graphs code|file]`: load what %hybrid_save wrote into a model; gives the report.

        --graphs file lets the file's graphs win over the code. The panel's Undo takes the load back.
        """
        from hybrid_lab.formats.archive import load_cached_graphs
        from hybrid_lab.lab.saving.snapshot import Snapshot
        from hybrid_lab.lab.saving.undo import undo_of_reload

        name, rest = _words(line.replace("--graphs=", "--graphs "), _LOAD)
        rest, graphs = _graphs_choice(rest, _LOAD)
        if len(rest) > 1 or any(word.startswith("-") for word in rest):
            raise UsageError(f"{rest[-1]!r} is not understood: {_LOAD}")
        net = self._block(name, _LOAD)
        with _as_usage():
            entry = self._entry(net)
            snapshot = None if entry is None else Snapshot(net)
            report = load_cached_graphs(net, rest[0] if rest else f"{name}.hlab", graphs=graphs)
        if entry is not None and snapshot is not None:
            snapshot.reloaded()
            entry.can_undo(undo_of_reload(entry, net, Path(os.path.abspath(report.path)), snapshot, entry.file))
        self._lab.push()
        return report

    @line_magic
    def hybrid_explain(self, line: str) -> Explanation:
        """`%hybrid_explain net [x ...]`: what hybridization made of a model; with inputs it is called on them first."""
        from hybrid_lab.insight import explain

        name, rest = _words(line, _EXPLAIN)
        net = self._block(name, _EXPLAIN)
        inputs = [self._value(word, _EXPLAIN) for word in rest]
        with _as_usage():
            return explain(net, *inputs)

    @line_magic
    def hybrid_profile(self, line: str) -> Profile:
        """`%hybrid_profile net x [x ...] [--train]`: time every step of a hybrid call beside eager.

        --train measures a recorded call in training mode and its backward.
        """
        from hybrid_lab.insight import profile

        net, inputs, train = self._net_and_inputs(line, _PROFILE)
        with _as_usage():
            return profile(net, *inputs, train=train)

    @line_magic
    def hybrid_compare(self, line: str) -> Comparison:
        """`%hybrid_compare net x [x ...] [--train]`: eager and hybrid side by side; names the first node that differs.

        --train compares training mode and its gradients only; else prediction is compared too.
        """
        from hybrid_lab.insight import compare

        net, inputs, train = self._net_and_inputs(line, _COMPARE)
        with _as_usage():
            return compare(net, *inputs, train=True if train else None)

    @cell_magic
    def hybrid_lint(self, line: str, cell: str) -> None:
        """`%%hybrid_lint [mxnet]`: print the findings of the cell, then run it. `mxnet` adds portability notes.

        Line numbers count from the start of the whole cell, this magic's own line included.
        """
        from hybrid_lab.lint import check
        from hybrid_lab.lint.report import with_calls

        target = line.strip() or None
        if target not in (None, "mxnet"):
            raise UsageError(f"{target!r} is not understood: {_LINT}")
        text = "#\n" * self._lines_above(cell) + cell
        history = [item for item in self.shell.user_ns.get("In", []) if item and "hybrid_lint" not in item]
        context = list(dict.fromkeys(history))[-_CONTEXT:]
        findings = check(text, target=target, context=context, file=f"cell {running_cell(self.shell)}")
        print("\n".join(line for finding in findings for line in with_calls(finding)) or "no findings")
        # With the same lines, so that errors name them too; a second cell magic must stay on top.
        with _numbered(self.shell):
            ran = self.shell.run_cell(cell if cell.lstrip().startswith("%%") else text)
        if not ran.success:
            raise CellFailed("%%hybrid_lint ran the cell; its error is above")

    def _lines_above(self, cell: str) -> int:
        """The number of lines of the whole cell above the magic's body."""
        raw = getattr(self.shell.history_manager, "input_hist_raw", None)
        whole = raw[-1].rstrip() if raw else ""
        return whole[: -len(cell.rstrip())].count("\n") if whole.endswith(cell.rstrip()) and cell.strip() else 1

    def _net_and_inputs(self, line: str, usage: str) -> tuple[Block, list[object], bool]:
        """A model, what to call it on, and whether --train was given."""
        name, rest = _words(line, usage)
        train = "--train" in rest
        rest = [word for word in rest if word != "--train"]
        unknown = next((word for word in rest if word.startswith("-")), None)
        if unknown:
            raise UsageError(f"{unknown!r} is not understood: {usage}")
        if not rest:
            raise UsageError(f"give inputs to call {name} on: {usage}")
        return self._block(name, usage), [self._value(word, usage) for word in rest], train

    def _block(self, name: str, usage: str) -> Block:
        from hybrid_lab.gluon.block import Block

        block = self._value(name, usage)
        if not isinstance(block, Block):
            raise UsageError(f"{name} is a {type(block).__name__}, not a Block: {usage}")
        return block

    def _entry(self, net: Block) -> LiveModel | None:
        """The model in the panel; None for a part of one, and for what the panel does not list."""
        entries = self._lab.session.registry.refresh(look=False)
        return next((entry for entry in entries if entry.reference() is net), None)

    def _value(self, name: str, usage: str) -> object:
        """The value of a variable, or of an attribute of one: `net`, `net.features`."""
        first, *rest = name.split(".")
        if first not in self.shell.user_ns:
            raise UsageError(f"there is no variable {first}: {usage}")
        value: object = self.shell.user_ns[first]
        for attribute in rest:
            try:
                value = getattr(value, attribute)
            except AttributeError as error:
                raise UsageError(f"{error}: {usage}") from None
        return value


def _words(line: str, usage: str) -> tuple[str, list[str]]:
    """The first word, which names the model, and the others."""
    words = _split(line, usage)
    if not words:
        raise UsageError(f"name a model: {usage}")
    return words[0], words[1:]


def _split(line: str, usage: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{error}: {usage}") from None


def _graphs_choice(words: list[str], usage: str) -> tuple[list[str], str]:
    """The words without `--graphs` and what it chooses."""
    if "--graphs" not in words:
        return words, "code"
    place = words.index("--graphs")
    graphs = words[place + 1] if place + 1 < len(words) else ""
    if graphs not in ("code", "file"):
        raise UsageError(f"--graphs takes code or file: {usage}")
    return words[:place] + words[place + 2 :], graphs


@contextlib.contextmanager
def _numbered(shell: InteractiveShell) -> Iterator[None]:
    """Name code that is run now after the running cell: IPython 9 would name it after the next one."""
    number = running_cell(shell)
    compiler: Any = shell.compile
    cache = compiler.cache

    def named(transformed_code: str, number_: int = 0, raw_code: str | None = None) -> str:
        name: str = cache(transformed_code, number, raw_code=raw_code)
        return name

    compiler.cache = named
    try:
        yield
    finally:
        del compiler.cache


@contextlib.contextmanager
def _as_usage() -> Iterator[None]:
    """Show this package's own errors and OSErrors as usage errors, without a traceback."""
    from hybrid_lab.diagnostics.errors import HybridLabError

    try:
        yield
    except (HybridLabError, OSError) as error:
        raise UsageError(str(error)) from error
