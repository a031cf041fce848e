"""The models that are alive in the kernel: top-level Blocks of the user's namespace, held by weak references."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from hybrid_lab.diagnostics.finding import Finding
from hybrid_lab.diagnostics.formatting import count, visible
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.loss import Loss
from hybrid_lab.hybridize.block_notes import subjects
from hybrid_lab.insight.states import block_state, blocks_below, class_name
from hybrid_lab.lab.diagnostics import LintKey, failures, kinds_of
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages.findings import Diagnostic
from hybrid_lab.lab.messages.models import FailedBlock, Model, Saving
from hybrid_lab.lab.models import block_names
from hybrid_lab.lab.models.groups import BlockGroup
from hybrid_lab.lab.models.naming import Container, VariableNames, also, names_in
from hybrid_lab.lab.models.revisions import looks_count
from hybrid_lab.lab.models.rows import Rows
from hybrid_lab.lab.models.unbound import Unbound
from hybrid_lab.lab.saving import file_names
from hybrid_lab.lab.saving.autosaves import autosave_data
from hybrid_lab.lab.saving.undo import Undo

IN_A_FUNCTION = "in a function"
IN_A_VIEW = "in a view"
_OF_OTHERS = "its Blocks have variables of their own"


@dataclass(frozen=True)
class NamespaceModel:
    """A model of the namespace. name, held, also, saved_with : see LiveModel"""

    name: str
    block: Block
    held: str = ""
    also: str = ""
    saved_with: str = ""


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
    held : its holder in words, if it has no variable of its own; also : its other names, in words
    saved_with : the other model with which its Blocks are saved, in words, or ""
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
        self.held = self.also = self.saved_with = ""
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
    def left_out(self) -> str:
        """Why "Save every model" leaves it out unless asked, "" if it does not."""
        held = self.held if self.held in (IN_A_FUNCTION, _OF_OTHERS) else ""
        return self.facts.left_out or held or self.saved_with

    @property
    def is_saved_elsewhere(self) -> bool:
        """Whether every Block of it is a part of other models that are listed."""
        return self.held == _OF_OTHERS or self.saved_with != ""

    @property
    def revision(self) -> int:
        """Grows when tree, graphs or findings change."""
        return self.rows.revision

    def look(self, block: Block) -> None:
        """Bring rows and facts up to date, if something that the lab shows of any Block changed."""
        changes = looks_count()
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
        """The archive name that Save proposes: of the last save or load, if the kernel is still in that folder."""
        own = file_names.name_for(self.name)
        if self.file is None:
            return own
        try:
            name = file_names.shown(self.file)
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
        self._groups: dict[str, BlockGroup] = {}
        self._unbound = Unbound()
        self._bound: dict[int, weakref.ref[Block]] = {}  # what was bound to a variable at some time
        self._numbers = itertools.count(1)
        self.lock = threading.RLock()

    def refresh(self, look: bool = True) -> list[LiveModel]:
        """The current models, in the order in which they appeared; known Blocks keep their ids.

        look : bring their revisions up to date
        """
        with self.lock:
            found = self._found()
            names = {each.name for each in found.values()}
            entries: dict[str, LiveModel] = {}
            known: set[int] = set()
            for entry in self._entries.values():
                block = entry.reference()
                if block is None or not (id(block) in found or entry.shown):
                    continue
                known.add(id(block))
                entries[entry.id] = entry
                if id(block) not in found:
                    # Its variable may hold another model by now, whose file is not this one's.
                    anew = f"{entry.name} is another model now" if entry.name in names else ""
                    found[id(block)] = NamespaceModel(entry.name, block, IN_A_VIEW, saved_with=anew)
            for key, each in found.items():
                if key not in known:
                    new = LiveModel(self._new_id(), each.block, each.name, self.is_bound)
                    entries[new.id] = new
            self._entries = entries
            for entry in entries.values():
                each = found[id(entry.reference())]
                entry.name, entry.held, entry.also, entry.saved_with = each.name, each.held, each.also, each.saved_with
            for entry in entries.values() if look else ():
                if (block := entry.reference()) is not None:
                    entry.look(block)
            return list(entries.values())

    def _new_id(self) -> str:
        number = f"m{next(self._numbers)}"
        return f"{number}.{self._kernel}" if self._kernel else number

    def _found(self) -> dict[int, NamespaceModel]:
        """The found models by id of the Block: models that variables hold, and models in functions."""
        names = names_in(self._namespace(), _is_below)
        for key, (_, block) in (names.models | names.leftovers).items():
            if key not in self._bound:
                self._bound[key] = weakref.ref(block, lambda _, key=key: self._bound.pop(key, None))  # type: ignore[misc]
        found = self._held(names)
        inside = {id(block) for group in self._groups.values() for block in access.children(group).values()}
        tops = {key: each.block for key, each in found.items()}
        listed = inside | {*tops} | {*self._bound}
        unbound = self._unbound.blocks(
            id(self._namespace()), lambda block: id(block) in listed or _is_below(block, tops)
        )
        hidden = block_names.in_attributes([(each.name, each.block) for each in found.values()]) if unbound else {}
        for block in unbound:
            held = hidden.get(id(block))
            found[id(block)] = (
                NamespaceModel(block.name, block, IN_A_FUNCTION)
                if held is None
                else NamespaceModel(held.code, block, f"in the {held.kind} {held.holder}")
            )
        return found

    def _held(self, names: VariableNames) -> dict[int, NamespaceModel]:
        """What is known of the models that variables hold, maybe in lists, dicts and objects; each is saved once."""
        found = {key: NamespaceModel(own[0], block, also=also(own[1:])) for key, (own, block) in names.models.items()}
        groups: dict[str, BlockGroup] = {}
        for container in names.containers:
            name, blocks = container.name, container.blocks
            new = [block for block in blocks if id(block) not in names.models]
            left = {
                variable: container.code(block)
                for block in blocks
                for variable in names.leftovers.get(id(block), ([], block))[0]
            }
            if len(blocks) == 1:
                (block,) = blocks
                own, *others = (each.code(block) for each in (container, *container.others))
                if id(block) not in found:
                    held = f"in the {container.kind} {name}"
                    found[id(block)] = NamespaceModel(own, block, held, also([*left, *others]))
                elif id(block) in names.models:
                    every = [*names.models[id(block)][0][1:], own, *others]
                    found[id(block)] = replace(found[id(block)], also=also(every))
                continue
            group = self._groups.get(name)
            if group is None or not group.is_of(container.kind):
                group = BlockGroup(name, container.kind)
            groups[name] = group
            group.hold(container.members)
            group.follow()
            words = [also(each.name for each in container.others)]
            words += [f"{variable} is {code}" for variable, code in left.items()]
            words += _shared_with(container, names.containers) if new else []
            found[id(group)] = NamespaceModel(name, group, "" if new else _OF_OTHERS, ", ".join(filter(None, words)))
        self._groups = groups
        _save_once(found, names, {name: id(group) for name, group in groups.items()})
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
        """Whether a variable of the user holds this Block or a Block around it, maybe in a list or another
        container.
        """
        held = [*self._held(names_in(self._namespace(), _is_below)).values()]
        if any(inner is block for each in held for _, inner in blocks_below(each.block)):
            return True
        hidden = block_names.in_attributes([(each.name, each.block) for each in held])
        return any(inner is block for each in hidden.values() for _, inner in blocks_below(each.block))

    def called(self, block: Block, path: str = "") -> str:
        """The code that gives a Block in the notebook, `net.head[2]`, or the Block at a path below it; "" if no
        variable leads to it. A Block of several models is called by its place in the model that a message is about.
        """
        names = names_in(self._namespace(), _is_below)
        tops = {key: (own[0], top) for key, (own, top) in names.models.items()}
        for container in names.containers:
            for member in container.blocks:
                tops.setdefault(id(member), (container.code(member), member))
        name = block.name if isinstance(block, BlockGroup) else _code_of(block, tops)
        if not name:
            hidden = block_names.in_attributes([*tops.values()])
            name = _code_of(block, {key: (found.code, found.block) for key, found in hidden.items()})
        return block_names.below(block, name, path) if name else ""

    def known(self, identity: object) -> Block | None:
        """The model with this id at the last look; None if there is none."""
        entry = self._entries.get(identity) if isinstance(identity, str) else None
        return None if entry is None else entry.reference()

    def get(self, identity: str) -> LiveModel:
        """The entry with this id. Raises RequestError `unknown-model`."""
        entry = next((entry for entry in self.refresh() if entry.id == identity), None)
        if entry is None:
            raise RequestError(
                "unknown-model", f"there is no model {identity!r} in this kernel", "Refresh the list of models."
            )
        return entry


def _code_of(block: Block, tops: Mapping[int, tuple[str, Block]]) -> str:
    """The code that gives a Block; "" if none of the tops leads to it. tops : id -> (code, Block)"""
    for subject in subjects():
        keys, _ = _way_up(block, lambda around, subject=subject: around is subject)  # type: ignore[misc]
        if keys is not None:
            above, top = _way_up(subject, lambda around: id(around) in tops)
            if above is not None:
                return block_names.along(top, tops[id(top)][0], [*above, *keys])
    keys, top = _way_up(block, lambda around: id(around) in tops)
    return "" if keys is None else block_names.along(top, tops[id(top)][0], keys)


def _way_up(block: Block, is_top: Callable[[Block], bool]) -> tuple[list[str] | None, Block]:
    """The keys from the nearest Block around this one, or itself, that is wanted, and that Block; None without one.

    The way leads upwards: models may have many Blocks, and a Block has few around it.
    """
    waiting: list[tuple[Block, list[str]]] = [(block, [])]
    seen = {id(block)}
    for around, keys in waiting:
        if is_top(around):
            return keys, around
        for parent in access.parents(around):
            if id(parent) not in seen:
                seen.add(id(parent))
                key = next((key for key, child in access.children(parent).items() if child is around), None)
                if key is not None:
                    waiting.append((parent, [key, *keys]))
    return None, block


def _shared_with(container: Container, others: list[Container]) -> list[str]:
    """For each other list that holds some of the same Blocks, words that name these Blocks and the list. The files of
    both lists contain them, and a save to one file does not change the other.
    """
    own = {*map(id, container.blocks)}
    words = []
    for other in others:
        more = {*map(id, other.blocks)}
        if len(other.members) > 1 and own & more and not own <= more and not more <= own:
            shared = [container.code(block) for block in container.blocks if id(block) in more]
            rest = f" and {len(shared) - 3} more" if len(shared) > 3 else ""
            words.append(f"shares {', '.join(shared[:3])}{rest} with {other.name}")
    return words


def _save_once(found: dict[int, NamespaceModel], names: VariableNames, groups: Mapping[str, int]) -> None:
    """For variables and lists whose Blocks are parts of a saved list, note the list with which they are saved.

    groups : name -> key in `found` of the lists, dicts and objects
    """
    saved = [each for each in names.containers if each.name in groups and not found[groups[each.name]].held]
    for container in names.containers:
        for other in saved:
            own, more = ({*map(id, each.blocks)} for each in (container, other))
            if container.name in groups and own < more:
                key = groups[container.name]
                found[key] = replace(found[key], saved_with=f"its Blocks are saved with {other.name}")
    for key, (own_names, block) in names.models.items():
        for other in saved:
            if other.holds(block):
                words = also([*own_names[1:], other.code(block)])
                found[key] = replace(found[key], also=words, saved_with=f"saved with {other.name}")


of_notebook: Registry | None = None
"""The one of the notebook that this process runs, once there is one."""


def set_of_notebook(registry: Registry | None) -> None:
    """Make it the one of the notebook that this process runs."""
    global of_notebook
    of_notebook = registry


def _is_below(block: Block, named: Mapping[int, object]) -> bool:
    """Whether a Block is part of a Block in `named` (by id); in a circle of Blocks, this may be the Block itself."""
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
    failed: FailedBlock | None


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
        "also": entry.also,
        **entry.facts.shown,
    }


def _facts(rows: Rows, name: str) -> Facts:
    blocks = rows.blocks()
    hybrid = [block for _, block in blocks if isinstance(block, HybridBlock)]
    caches = list(map(access.calls, hybrid))
    graphs = sum([row.graphs for row in rows if row.before is None])
    compiled = [tuple(cache.compilations) for cache in caches if cache.compiled.used and cache.compilations]
    last = compiled[-1][-1] if compiled else None
    summary = ""
    if last is not None:
        operators = sum(len(compilations[0].neutral.graph.operators) for compilations in compiled)
        seconds = sum(item.seconds for compilations in compiled for item in compilations)
        summary = f"{count(len(compiled), 'graph')}, {count(operators, 'operator')}, "
        summary += f"{last.where}, compiled in {seconds:.1f} s"
    left_out = "" if graphs or any(cache.graphs.calls for cache in caches) else "no graph yet"
    return Facts(
        {
            "hybridized": any(map(access.is_active, hybrid)),
            "blocks": sum([not access.is_group(block) for _, block in blocks]),
            "graphs": graphs,
            "parameters": rows.elements,
            "engine": last.runs_on if last is not None else "",
            "summary": summary,
            "failed": _failed(blocks, name),
        },
        "a loss function" if isinstance(blocks[0][1], Loss) else left_out,
        kinds_of(blocks),
        failures(blocks, name) if any(cache.failures.last is not None for cache in caches) else [],
    )


def _failed(blocks: list[tuple[str, Block]], name: str) -> FailedBlock | None:
    """The first Block whose own code failed, else the first that failed; None if none did."""
    states = [
        (path, state)
        for path, block in blocks
        if isinstance(block, HybridBlock)
        and access.calls(block).failures.last is not None
        and (state := block_state(block)).state == "failed"
    ]
    own = [pair for pair in states if not pair[1].failed_in] or states
    if not own:
        return None
    path, state = own[0]
    code = block_names.below(blocks[0][1], name, path)
    return {"path": path, "why": visible(state.why), "count": len(own), "code": visible(code)}


def saving_data(entry: LiveModel) -> Saving:
    """The protocol's Saving: whether "Save every model" leaves a model out unless asked, and its autosave."""
    return {"left_out": entry.left_out, "autosave": autosave_data(entry.block)}
