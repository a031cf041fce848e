"""The models that are alive in the kernel: top-level Blocks of the user's namespace, held by weak references."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypedDict

from hybrid_lab.diagnostics.finding import Finding
from hybrid_lab.diagnostics.words import count, visible
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.loss import Loss
from hybrid_lab.insight.states import blocks_below, class_name
from hybrid_lab.lab.autosaves import autosave_data
from hybrid_lab.lab.diagnostics import failures, kinds_of
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages import Model, Saving
from hybrid_lab.lab.tree import elements


@dataclass(frozen=True)
class Facts:
    """Of all Blocks of a model. left_out : see `Saving`; kinds : their classes; failures : findings of failed traces"""

    shown: ModelFacts
    left_out: str
    kinds: list[type]
    failures: list[Finding]


class LiveModel:
    """One model.

    id : stable while the kernel lives; name : the variable's name, else the Block's; revision : grows when tree, graphs
    or findings change; shown : a view of it is open; file : the archive that it was last saved to or loaded from
    undo, undo_token : of the last reload; lint, lint_key : findings and what they were made from (see diagnostics)
    looked_at : the name and `looks_count` at which the fingerprint was taken
    """

    def __init__(self, identity: str, block: Block, name: str):
        self.id = identity
        self.reference = weakref.ref(block)
        self.name = name
        self.revision = 0
        self.fingerprint: object = None
        self.looked_at: Hashable = None
        self._facts: tuple[int, Facts] | None = None
        self._forms: tuple[Hashable, ParameterForms] | None = None
        self._blocks: tuple[int, list[tuple[str, weakref.ref[Block]]]] = -1, []
        self.shown = False
        self.undo_token = ""
        self.undo: Callable[[], str] | None = None
        self.lint: list[Finding] = []
        self.lint_key: Hashable = None
        self.file = ""

    @property
    def block(self) -> Block:
        """The model. Raises RequestError `unknown-model` if it was deleted."""
        block = self.reference()
        if block is None:
            raise RequestError(
                "unknown-model", f"the model {self.name!r} is gone: its variable was deleted or assigned anew"
            )
        return block

    def blocks(self) -> list[tuple[str, Block]]:
        """`blocks_below` the model, which is walked through only when its structure changed."""
        net = self.block
        version, known = access.structure_version(net), self._blocks
        if known[0] != version:
            known = self._blocks = version, [(path, weakref.ref(block)) for path, block in blocks_below(net)]
        return [(path, block) for path, reference in known[1] if (block := reference()) is not None]

    @property
    def facts(self) -> Facts:
        """What is known of all Blocks of the model together, found again only when the revision has grown."""
        known = self._facts
        if known is None or known[0] != self.revision:
            blocks = self.blocks()
            known = self._facts = self.revision, _facts(blocks, self.name, self.forms(blocks).elements)
        return known[1]

    def forms(self, blocks: list[tuple[str, Block]]) -> ParameterForms:
        """Of the parameters of `blocks()`."""
        key, known = (access.structure_version(self.block), access.looks_count()[1]), self._forms
        if known is None or known[0] != key:
            known = self._forms = key, ParameterForms(blocks)
        return known[1]

    @property
    def proposed_file(self) -> str:
        """The archive name that Save proposes."""
        return self.file or f"{self.name}.hlab"


class Registry:
    """Finds models in a namespace and keeps their ids stable. Any thread may ask."""

    def __init__(self, namespace: Callable[[], dict[str, object]]):
        self._namespace = namespace
        self._entries: dict[str, LiveModel] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()

    def refresh(self, look: bool = True) -> list[LiveModel]:
        """The current models, in the order in which they appeared; known Blocks keep their ids.

        look : bring their revisions up to date
        """
        with self._lock:
            tops = self._tops()
            entries: dict[str, LiveModel] = {}
            known: set[int] = set()
            for entry in self._entries.values():
                block = entry.reference()
                if block is not None and (id(block) in tops or entry.shown):
                    known.add(id(block))
                    entries[entry.id] = entry
                    self._update(entry, block, tops.get(id(block), (entry.name, block))[0], look)
            for key, (name, block) in tops.items():
                if key not in known:
                    entry_of_new = LiveModel(f"m{next(self._numbers)}", block, name)
                    entries[entry_of_new.id] = entry_of_new
                    self._update(entry_of_new, block, name, look)
            self._entries = entries
            return list(entries.values())

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

    def _update(self, entry: LiveModel, block: Block, name: str, look: bool = True) -> None:
        """Note the name; with `look`, raise the revision if the model's fingerprint or name changed."""
        looked_at = name, access.looks_count()
        if look and looked_at != entry.looked_at:
            blocks = entry.blocks()
            state = name, fingerprint(blocks, entry.forms(blocks))
            if state != entry.fingerprint:
                entry.fingerprint, entry.revision = state, entry.revision + 1
            entry.looked_at = looked_at
        entry.name = name

    def show(self, block: Block, name: str | None = None) -> LiveModel:
        """The entry of a Block that a view shows, whether it is bound to a variable or not."""
        with self._lock:
            entry = next((entry for entry in self.refresh() if entry.reference() is block), None)
            if entry is None:
                entry = LiveModel(f"m{next(self._numbers)}", block, name or block.name)
                self._entries[entry.id] = entry
                self._update(entry, block, entry.name)
            entry.shown = True
            return entry

    def is_bound(self, block: Block) -> bool:
        """Whether a variable of the user holds this Block, or one that it is part of."""
        return any(inner_block is block for _, top in self._tops().values() for _, inner_block in blocks_below(top))

    def get(self, identity: str) -> LiveModel:
        """The entry with this id. Raises RequestError `unknown-model`."""
        entry = next((entry for entry in self.refresh() if entry.id == identity), None)
        if entry is None:
            raise RequestError(
                "unknown-model", f"there is no model {identity!r} in this kernel", "Refresh the list of models."
            )
        return entry


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


class ParameterForms:
    """The form of all parameters of a model, found again only when a parameter or the structure changed.

    types : `access.parameter_types`; elements : their number, shared parameters once; None while a shape is unknown
    """

    def __init__(self, blocks: list[tuple[str, Block]]):
        parameters = [item for _, block in blocks for item in tuple(access.own_parameters(block).values())]
        self.types = access.parameter_types(parameters)
        self.elements = elements(dict(zip(map(id, parameters), self.types[0])).values())


def fingerprint(blocks: list[tuple[str, Block]], forms: ParameterForms | None = None) -> object:
    """What changes with the tree, the graphs or the states of a model's Blocks; weights do not count.

    forms : of their parameters, where they are known
    It is made of lists of what is there anyway, since it is made after many cells beside models of thousands of Blocks.
    """
    found = [block for _, block in blocks]
    hybrid = [block for block in found if isinstance(block, HybridBlock)]
    return (
        access.structure_version(found[0]),
        list(map(access.last_outputs, found)),
        list(map(access.is_active, hybrid)),
        [cache.version for cache in map(access.graphs, hybrid)],
        (forms or ParameterForms(blocks)).types,
    )


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
        "undo": entry.undo_token,
        "revision": entry.revision,
        **entry.facts.shown,
    }


def _facts(blocks: list[tuple[str, Block]], name: str, parameters: int | None) -> Facts:
    hybrid = [block for _, block in blocks if isinstance(block, HybridBlock)]
    caches = list(map(access.graphs, hybrid))
    used = [cache for cache in caches if cache.version]
    compiled = [item for cache in used if cache.compilations for item in tuple(cache.compilations)]
    graphs = sum([cache.count for cache in used])
    summary = ""
    if compiled:
        first = [cache.compilations[0].neutral.graph for cache in used if cache.compilations]
        operators = sum(len(graph.operators) for graph in first)
        seconds = sum(item.seconds for item in compiled)
        summary = f"{count(len(first), 'graph')}, {count(operators, 'operator')}, "
        summary += f"{compiled[-1].where}, compiled in {seconds:.1f} s"
    left_out = "" if graphs or any(cache.called is not None for cache in caches) else "no graph yet"
    return Facts(
        {
            "hybridized": any(map(access.is_active, hybrid)),
            "blocks": len(blocks),
            "graphs": graphs,
            "parameters": parameters,
            "engine": compiled[-1].runs_on if compiled else "",
            "summary": summary,
        },
        "a loss function" if isinstance(blocks[0][1], Loss) else left_out,
        kinds_of(blocks),
        failures(blocks, name) if any(cache.failure is not None for cache in used) else [],
    )


def saving_data(entry: LiveModel) -> Saving:
    """The protocol's Saving: whether "Save every model" leaves a model out unless asked, and its autosave."""
    return {"left_out": entry.facts.left_out, "autosave": autosave_data(entry.block)}
