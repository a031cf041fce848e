"""The models that are alive in the kernel: top-level Blocks of the user's namespace, held by weak references."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from hybrid_lab.diagnostics.finding import Finding
from hybrid_lab.diagnostics.words import count, visible
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.loss import Loss
from hybrid_lab.insight.states import blocks_below, class_name
from hybrid_lab.lab import files
from hybrid_lab.lab.autosaves import autosave_data
from hybrid_lab.lab.diagnostics import LintKey, failures, kinds_of
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.groups import Group, held_blocks
from hybrid_lab.lab.messages.findings import Diagnostic
from hybrid_lab.lab.messages.models import Model, Saving
from hybrid_lab.lab.rows import Rows
from hybrid_lab.lab.unbound import Unbound
from hybrid_lab.lab.undo import Undo

IN_A_FUNCTION = "in a function"
_OF_OTHERS = "its Blocks have variables of their own"


@dataclass(frozen=True)
class Facts:
    """Of all Blocks of a model. left_out : see `Saving`; kinds : their classes; failures : findings of failed traces"""

    shown: ModelFacts
    left_out: str
    kinds: list[type]
    failures: list[Finding]


_UNDO_SAVES = 5
"""Saves of one model that can be undone."""


class LiveModel:
    """One model.

    id : stable while the kernel lives; name : the variable's name, else the Block's; rows : of its tree
    held : what holds it where that is no variable of its own, in words
    shown : a view of it is open; file : the archive that it was last saved to or loaded from
    is_in_use : tells whether a Block belongs to any model of the notebook
    undos : what can be undone, the latest last; findings : as last sent; lint, lint_key : the linter's, and of what
    """

    def __init__(self, identity: str, block: Block, name: str, is_in_use: Callable[[Block], bool] = lambda block: True):
        self.id = identity
        self.is_in_use = is_in_use
        self.reference = weakref.ref(block)
        self.name = name
        self.rows = Rows()
        self.facts: Facts
        self.held = ""
        self._shown_name = ""
        self._changes: Hashable = None
        self.shown = False
        self.undos: list[Undo] = []
        self.findings: list[Diagnostic] = []
        self.lint: list[Finding] = []
        self.lint_key: LintKey | None = None
        self.file: Path | None = None

    @property
    def block(self) -> Block:
        """The model. Raises RequestError `unknown-model` if it was deleted."""
        block = self.reference()
        if block is None:
            raise RequestError(
                "unknown-model", f"the model {self.name!r} is gone: its variable was deleted or assigned anew"
            )
        return block

    @property
    def is_unbound(self) -> bool:
        """Whether no public variable holds the model, not even in a list."""
        return self.held == IN_A_FUNCTION

    @property
    def revision(self) -> int:
        """Grows when tree, graphs or findings change."""
        return self.rows.revision

    def look(self, block: Block) -> None:
        """Bring rows and facts up to date, where something that the lab shows of any Block changed."""
        changes = access.looks_count()
        if (self.name, changes) == (self._shown_name, self._changes):
            return
        revision = self.rows.revision
        self.rows.look(block)
        if self.name != self._shown_name:
            self.rows.mark([""])
        self._shown_name, self._changes = self.name, changes
        if self.rows.revision != revision:
            self.facts = _facts(self.rows, self.name)

    @property
    def undo(self) -> Undo | None:
        """What can be undone next."""
        return self.undos[-1] if self.undos else None

    def can_undo(self, step: Undo) -> None:
        """Keep what undoes the latest action: of the reloads the last one, whose values take memory, and some saves."""
        others = [each for each in self.undos if each.kind != step.kind or step.kind == "save"]
        saves = [each for each in others if each.kind == "save"]
        if step.kind == "save" and len(saves) >= _UNDO_SAVES:
            others.remove(saves[0])
        self.undos = [*others, step]

    @property
    def proposed_file(self) -> str:
        """The archive name that Save proposes: of the last save or load, where the kernel is still in that folder."""
        own = files.name_for(self.name)
        if self.file is None:
            return own
        try:
            name = files.shown(self.file)
        except OSError:  # the kernel's folder is gone
            return own
        return own if os.path.isabs(name) else name


class Registry:
    """Finds models in a namespace and keeps their ids stable. Any thread may ask.

    kernel : the id of the kernel, which is a part of every model's: no other kernel has a model of the same id
    """

    def __init__(self, namespace: Callable[[], dict[str, object]], kernel: str = ""):
        self._namespace, self._kernel = namespace, kernel
        self._entries: dict[str, LiveModel] = {}
        self._groups: dict[str, Group] = {}
        self._unbound = Unbound()
        self._bound: dict[int, weakref.ref[Block]] = {}  # what was bound to a variable at some time
        self._numbers = itertools.count(1)
        self.lock = threading.RLock()

    def refresh(self, look: bool = True) -> list[LiveModel]:
        """The current models, in the order in which they appeared; known Blocks keep their ids.

        look : bring their revisions up to date
        """
        with self.lock:
            tops, held = self._tops(), {}
            for key, (name, top, words) in self._without_variable(tops).items():
                tops[key], held[key] = (name, top), words
            entries: dict[str, LiveModel] = {}
            known: set[int] = set()
            for entry in self._entries.values():
                block = entry.reference()
                if block is not None and (id(block) in tops or entry.shown):
                    known.add(id(block))
                    entries[entry.id] = entry
                    entry.name = tops.get(id(block), (entry.name, block))[0]
            for key, (name, top) in tops.items():
                if key not in known:
                    entry_of_new = LiveModel(self._new_id(), top, name, self.is_bound)
                    entries[entry_of_new.id] = entry_of_new
            self._entries = entries
            for entry in entries.values():
                entry.held = held.get(id(entry.reference()), "")
            for entry in entries.values() if look else ():
                if (block := entry.reference()) is not None:
                    entry.look(block)
            return list(entries.values())

    def _new_id(self) -> str:
        number = f"m{next(self._numbers)}"
        return f"{number}.{self._kernel}" if self._kernel else number

    def _tops(self) -> dict[int, tuple[str, Block]]:
        """id -> (variable, Block) of what is bound to a public variable and is no child of another such Block."""
        named: dict[int, tuple[str, Block]] = {}
        for name, item in list(self._namespace().items()):
            # type(), not isinstance: a lazy proxy in a variable may do anything when it is asked for its class.
            if issubclass(type(item), Block) and not name.startswith("_"):
                assert isinstance(item, Block)
                named.setdefault(id(item), (name, item))
        inner = {key for key, (_, block) in named.items() if _is_below(block, named)}
        # Blocks in a circle have no top: the first one is taken.
        tops = {key: pair for key, pair in named.items() if key not in inner}
        return tops or dict(itertools.islice(named.items(), 1))

    def _without_variable(self, named: Mapping[int, tuple[str, Block]]) -> dict[int, tuple[str, Block, str]]:
        """id -> (name, Block, what holds it) of models without a variable of their own: those in lists, dicts and
        objects, and those in functions.
        """
        for key, (_, block) in named.items():
            if key not in self._bound:
                self._bound[key] = weakref.ref(block, lambda _, key=key: self._bound.pop(key, None))  # type: ignore[misc]
        found = self._in_containers(named)
        inside = {id(block) for group in self._groups.values() for block in access.children(group).values()}
        tops = {**named, **found}
        listed = inside | {*tops} | {*self._bound}
        for block in self._unbound.blocks(
            id(self._namespace()), lambda block: id(block) in listed or _is_below(block, tops)
        ):
            found[id(block)] = block.name, block, IN_A_FUNCTION
        return found

    def _in_containers(self, named: Mapping[int, tuple[str, Block]]) -> dict[int, tuple[str, Block, str]]:
        """id -> (name, Block, what holds it) of the models in lists, dicts and objects."""
        found: dict[int, tuple[str, Block, str]] = {}
        groups: dict[str, Group] = {}
        for name, item in list(self._namespace().items()):
            kind, members = held_blocks(name, item)
            new = [pair for pair in members.items() if id(pair[1]) not in named]
            if len(members) == 1 and new:
                key, block = new[0]
                found.setdefault(id(block), (f"{name}.{key}", block, f"in the {kind} {name}"))
            elif len(members) > 1:
                group = self._groups.get(name)
                if group is None or not group.is_of(kind):
                    group = Group(name, kind)
                groups[name] = group
                group.hold(members)
                group.follow()
                words = "" if new else _OF_OTHERS
                found[id(group)] = name, group, words
        self._groups = groups
        return found

    def show(self, block: Block, name: str | None = None) -> LiveModel:
        """The entry of a Block that a view shows, whether it is bound to a variable or not."""
        with self.lock:
            entry = next((entry for entry in self.refresh() if entry.reference() is block), None)
            if entry is None:
                entry = LiveModel(self._new_id(), block, name or block.name, self.is_bound)
                self._entries[entry.id] = entry
                entry.look(block)
            entry.shown = True
            return entry

    def is_bound(self, block: Block) -> bool:
        """Whether a variable of the user holds this Block or one that it is part of, maybe in a list or the like."""
        named = self._tops()
        tops = [top for _, top in named.values()] + [top for _, top, _ in self._in_containers(named).values()]
        return any(inner_block is block for top in tops for _, inner_block in blocks_below(top))

    def get(self, identity: str) -> LiveModel:
        """The entry with this id. Raises RequestError `unknown-model`."""
        entry = next((entry for entry in self.refresh() if entry.id == identity), None)
        if entry is None:
            raise RequestError(
                "unknown-model", f"there is no model {identity!r} in this kernel", "Refresh the list of models."
            )
        return entry


of_notebook: Registry | None = None
"""The one of the notebook that this process runs, once there is one."""


def _is_below(block: Block, named: Mapping[int, object]) -> bool:
    """Whether a Block is part of one of these (by id), which may be itself where Blocks form a circle."""
    pending, seen = [block], set()
    while pending:
        child = pending.pop()
        for parent in access.parents(child):
            if id(parent) in named:
                return True
            if id(parent) not in seen:
                seen.add(id(parent))
                pending.append(parent)
    return False


class ModelFacts(TypedDict):
    """What the protocol's Model says of all Blocks of a model together."""

    hybridized: bool
    blocks: int
    graphs: int
    parameters: int | None
    engine: str
    summary: str


def model_data(entry: LiveModel, findings: int) -> Model:
    """The protocol's Model."""
    net = entry.block
    return {
        "id": entry.id,
        "name": entry.name,
        "block": visible(net.name),
        "class": visible(class_name(net)),
        "hybrid": isinstance(net, HybridBlock),
        "findings": findings,
        "file": entry.proposed_file,
        "undo": "" if entry.undo is None else entry.undo.token,
        "undoes": "" if entry.undo is None else entry.undo.what,
        "revision": entry.revision,
        "held": entry.held,
        **entry.facts.shown,
    }


def _facts(rows: Rows, name: str) -> Facts:
    blocks = rows.blocks()
    hybrid = [block for _, block in blocks if isinstance(block, HybridBlock)]
    caches = list(map(access.graphs, hybrid))
    graphs = sum([row.graphs for row in rows if row.before is None])
    compiled = [tuple(cache.compilations) for cache in caches if cache.compiled.used and cache.compilations]
    last = compiled[-1][-1] if compiled else None
    summary = ""
    if last is not None:
        operators = sum(len(compilations[0].neutral.graph.operators) for compilations in compiled)
        seconds = sum(item.seconds for compilations in compiled for item in compilations)
        summary = f"{count(len(compiled), 'graph')}, {count(operators, 'operator')}, "
        summary += f"{last.where}, compiled in {seconds:.1f} s"
    left_out = "" if graphs or any(cache.calls for cache in caches) else "no graph yet"
    return Facts(
        {
            "hybridized": any(map(access.is_active, hybrid)),
            "blocks": len(blocks),
            "graphs": graphs,
            "parameters": rows.elements,
            "engine": last.runs_on if last is not None else "",
            "summary": summary,
        },
        "a loss function" if isinstance(blocks[0][1], Loss) else left_out,
        kinds_of(blocks),
        failures(blocks, name) if any(cache.failure is not None for cache in caches) else [],
    )


def saving_data(entry: LiveModel) -> Saving:
    """The protocol's Saving: whether "Save every model" leaves a model out unless asked, and its autosave."""
    held = entry.held if entry.held in (IN_A_FUNCTION, _OF_OTHERS) else ""
    return {"left_out": entry.facts.left_out or held, "autosave": autosave_data(entry.block)}
