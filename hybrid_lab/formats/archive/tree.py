"""tree.json: every Block of a model with its class, children, parameters and flags, as plain data."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import io
import json
import textwrap
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hybrid_lab.diagnostics import ArchiveError, HybridLabError, SettingError
from hybrid_lab.gluon import access
from hybrid_lab.initializer import Uniform, create
from hybrid_lab.insight.states import class_name
from hybrid_lab.ops.framework.dtypes import DTYPES

from .. import schema
from . import layout

if TYPE_CHECKING:
    from hybrid_lab.gluon import Block, Parameter

DEPTH_LIMIT = 200


@dataclass
class ParameterRecord:
    """One Parameter, once, however many blocks share it.

    shape : None inside for unknown sizes, or None if not even their number is known
    state : "deferred": initialize() was called, and the shape is open
    init : MXNet's text for its initializer, or None
    pending : of a deferred one, the text of the initializer that initialize() was given, None for the default
    id : path of its first place, "features.0.weight"; also its tensor's name
    """

    name: str
    shape: tuple[schema.Size | None, ...] | None
    dtype: str
    state: Literal["initialized", "deferred", "uninitialized"]
    grad_req: Literal["write", "add", "null"]
    lr_mult: float | int = 1.0
    wd_mult: float | int = 1.0
    init: str | None = None
    constant: bool = False
    differentiable: bool = True
    pending: str | None = None
    id: str = ""


@dataclass
class BlockRecord:
    """One Block, once, however many parents share it.

    path : of its first place; "" is the root
    children : (attribute name, block id) in order; parameters : attribute name -> parameter id;
    loose : the same for parameters in block.params that are no attribute, by name without prefix
    layer : name of the registered layer and `config` its constructor's arguments, or None
    forward : digest of a plain Block's forward, which an archive does not hold; None if it has no source
    graphs : names of its graph members
    attributes : members of the Python object that are data, by name, as `values` writes them
    """

    id: int
    path: str
    class_: str
    prefix: str
    kind: Literal["plain", "hybrid", "symbol"]
    children: list[tuple[str, int]]
    parameters: dict[str, str] = field(default_factory=dict)
    loose: dict[str, str] = field(default_factory=dict)
    layer: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    forward: str | None = None
    hybridized: bool = False
    flags: dict[str, Any] = field(default_factory=dict)
    graphs: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """`config` for a comparison: with the defaults of the arguments that were not given."""
        from hybrid_lab.gluon.nn import registry

        return registry.settings(self.layer, self.config)


@dataclass
class Tree:
    """blocks : by id, the root first; parameters : by id; live_... : the objects behind them, while saving.

    partial : whether the model may have further Blocks and parameters, because each file holds one graph only
    """

    blocks: list[BlockRecord]
    parameters: dict[str, ParameterRecord]
    partial: bool = False
    live_blocks: list[Block] = field(default_factory=list)
    live_parameters: dict[str, Parameter] = field(default_factory=dict)

    def places(self, start: int = 0) -> Iterator[tuple[str, BlockRecord]]:
        """(path, block) of every place below `start`, parents first; a shared block comes once per place."""
        return layout.places(
            self.blocks[start], lambda block: [(name, self.blocks[child]) for name, child in block.children]
        )

    def at(self, path: str) -> BlockRecord | None:
        """The block at a path, or None."""
        return next((block for place, block in self.places() if place == path), None)


# -- from a live model -------------------------------------------------------------------------------------------------


def describe_tree(root: Block) -> Tree:
    """The tree of a live model. Works with parameters that have no values or shapes yet."""
    tree = Tree([], {})
    ids: dict[int, int] = {}
    owned: dict[int, str] = {}
    stack: list[tuple[Block, str, BlockRecord | None, str]] = [(root, "", None, "")]
    while stack:
        block, path, parent, name = stack.pop()
        number = ids.get(id(block))
        if number is None:
            number = ids[id(block)] = len(tree.blocks)
            record = _describe_block(block, number, path)
            tree.blocks.append(record)
            tree.live_blocks.append(block)
            _describe_parameters(block, record, tree, owned)
            children = reversed(access.children(block).items())
            stack += [(child, layout.join(path, key), record, key) for key, child in children]
        if parent is not None:
            parent.children.append((name, number))
    return tree


def _describe_block(block: Block, number: int, path: str) -> BlockRecord:
    from hybrid_lab.gluon import HybridBlock
    from hybrid_lab.gluon.nn import registry

    kind: Any = "symbol" if access.is_its_graph(block) else "hybrid" if isinstance(block, HybridBlock) else "plain"
    name = class_name(block)
    record = BlockRecord(number, path, name, block.prefix, kind, [])
    config = registry.config(block)
    own_code = not access.settings(block).keys().isdisjoint(("forward", "hybrid_forward"))
    if config is not None and registry.classes().get(name) is type(block) and _is_data(config) and not own_code:
        record.layer, record.config = name, config
    if kind == "plain" and (record.layer is None or not type(block).__module__.startswith("hybrid_lab.")):
        record.forward = getattr(block, "archived_forward", None) or forward_digest(type(block))
    if isinstance(block, HybridBlock):
        record.hybridized = bool(access.is_active(block))
        record.flags = {str(key): value for key, value in access.flags(block).items() if _is_data(value)}
    return record


def _describe_parameters(block: Block, record: BlockRecord, tree: Tree, owned: dict[int, str]) -> None:
    attributes = {id(parameter): name for name, parameter in access.own_parameters(block).items()}
    for name, parameter in access.own_parameters(block).items():
        record.parameters[name] = _parameter_id(parameter, layout.join(record.path, name), tree, owned)
    for name, parameter in block.params.items():
        if id(parameter) not in attributes:
            short = name.removeprefix(block.params.prefix)
            record.loose[short] = _parameter_id(parameter, layout.join(record.path, short), tree, owned)


def _parameter_id(parameter: Parameter, wanted: str, tree: Tree, owned: dict[int, str]) -> str:
    found = owned.get(id(parameter))
    if found is not None:
        return found
    unique, count = wanted, 1
    while unique in tree.parameters:
        count += 1
        unique = f"{wanted}~{count}"
    owned[id(parameter)] = unique
    tree.parameters[unique] = _describe_parameter(parameter, unique)
    tree.live_parameters[unique] = parameter
    return unique


def _describe_parameter(parameter: Parameter, identity: str) -> ParameterRecord:
    from hybrid_lab.gluon import Constant

    if parameter.shape_is_known:
        # The shape was completed since initialize(); the values follow from that.
        access.finish_deferred_init(parameter)
    state: Any = (
        "initialized"
        if access.arrays(parameter) is not None
        else "deferred"
        if access.deferred_init(parameter)
        else "uninitialized"
    )
    deferred = access.deferred_init(parameter)
    pending = None if deferred is None else _as_text(deferred.default_init)
    grad_req: Any = parameter.grad_req
    return ParameterRecord(
        parameter.name,
        parameter.partial_shape,
        np.dtype(parameter.dtype).name,
        state,
        grad_req,
        float(parameter.lr_mult),
        float(parameter.wd_mult),
        _as_text(parameter.init),
        isinstance(parameter, Constant),
        parameter.differentiable,
        None if pending == Uniform().dumps() else pending,
        identity,
    )


def _as_text(init: object) -> str | None:
    """MXNet's text for an initializer; None if it has none."""
    return init if isinstance(init, str) else dumps() if callable(dumps := getattr(init, "dumps", None)) else None


def initializer_of(record: ParameterRecord, path: str | None) -> object:
    """The initializer of a deferred Parameter of a file, if the Parameter has none of its own.

    Raises ArchiveError for a text that describes none.
    """
    try:
        return None if record.pending is None else create(record.pending)
    except (ValueError, TypeError) as error:
        message = f"damaged archive: parameter {record.id[:80]!r}: {str(error)[:200]}"
        raise ArchiveError(message, path=path, member=layout.TREE) from None


# -- renamed classes ---------------------------------------------------------------------------------------------------


def rename_classes(tree: Tree, classes: Mapping[str, type | str] | None) -> dict[str, type]:
    """Give Blocks whose class has another name now the new name, in the tree; returns the new classes by name.

    classes : name in the file -> the class, or its name
    Raises SettingError for anything but a dict of names and classes, HybridLabError for a name that the file does not
    have.
    """
    if classes is None:
        return {}
    names = new_names(classes)
    known = {record.class_ for record in tree.blocks}
    for old in names:
        if old not in known:
            near = difflib.get_close_matches(old, known, n=1)
            hint = f"; it has {near[0]}" if near else f"; it has {layout.shorten(sorted(known))}"
            raise HybridLabError(f"classes= names {old!r}, and the file has no Block of that class{hint}")
    for record in tree.blocks:
        new = names.get(record.class_)
        record.class_ = record.class_ if new is None else new
        record.layer = record.layer if new is None or record.layer is None else new
    return {value.__name__: value for value in classes.values() if isinstance(value, type)}


def new_names(classes: Mapping[str, type | str]) -> dict[str, str]:
    """Old name -> new name of classes. Raises SettingError for anything but a dict of classes and names."""
    from hybrid_lab.gluon import Block

    if not isinstance(classes, Mapping) or not all(isinstance(name, str) for name in classes):
        raise SettingError(f"classes= takes a dict of names and classes, {{'Old': New}}, not {classes!r:.60}")
    names = {}
    for old, new in classes.items():
        if not isinstance(new, str) and not (isinstance(new, type) and issubclass(new, Block)):
            raise SettingError(f"classes= takes a class of Blocks or its name for {old!r}, not {new!r:.60}")
        names[old] = new if isinstance(new, str) else new.__name__
    return names


_LAYOUT_TOKENS = {tokenize.INDENT: "\1", tokenize.DEDENT: "\2", tokenize.NEWLINE: "\3"}
_NO_TOKENS = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING}


def forward_digest(cls: type) -> str | None:
    """SHA-256 of a class's forward, blind to comments and spacing; None if there is no source."""
    try:
        source = textwrap.dedent(inspect.getsource(cls.forward))  # type: ignore[attr-defined]
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):
        return None
    # Without the blanks inside: Python 3.12 cuts f-strings into several tokens.
    parts = [_LAYOUT_TOKENS.get(t.type) or "".join(t.string.split()) for t in tokens if t.type not in _NO_TOKENS]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def _is_data(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


# -- as JSON -----------------------------------------------------------------------------------------------------------


def to_json(tree: Tree) -> dict[str, Any]:
    """The tree as JSON data; fields at their defaults are left out."""
    parameters = {key: schema.write(record) for key, record in tree.parameters.items()}
    for members in parameters.values():
        del members["id"]
    return {"blocks": [schema.write(block) for block in tree.blocks], "parameters": parameters}


def from_json(data: object, path: str | None = None) -> Tree:
    """The tree in parsed JSON, checked: ids, references, no cycle. Raises ArchiveError. Unknown fields are ignored."""
    what = "the tree"
    try:
        top = schema.read(_Objects, data)
        tree = Tree([], {})
        for key, value in top.parameters.items():
            what = f"parameter {key[:80]!r}"
            record = tree.parameters[key] = schema.read(ParameterRecord, value)
            record.id = key
            _check_parameter(record)
        for index, value in enumerate(top.blocks):
            what = f"block {index}"
            tree.blocks.append(schema.read(BlockRecord, value))
            _check_block(index, tree.blocks[-1], tree.parameters)
        what = "the tree"
        _check_shape(tree)
    except ValueError as error:
        raise ArchiveError(f"damaged archive: {what} {error}", path=path, member=layout.TREE) from None
    return tree


@dataclass
class _Objects:
    """The JSON of a tree, of which each part is checked by itself."""

    blocks: list[Any]
    parameters: dict[str, Any]


def _check_shape(tree: Tree) -> None:
    """No cycles, no endless sharing, every block under the root, paths as the children say. Raises ValueError."""
    if not tree.blocks:
        raise ValueError("has no blocks")
    for block in tree.blocks:
        for _, child in block.children:
            if not 0 <= child < len(tree.blocks):
                raise ValueError(f"names the block {child}, which does not exist")
    depth: dict[int, int] = {}
    places = 0
    stack: list[tuple[int, str, frozenset[int]]] = [(0, "", frozenset())]
    while stack:
        number, path, above = stack.pop()
        places += 1
        if number in above or len(above) > DEPTH_LIMIT:
            raise ValueError(f"nests the block {number} in itself" if number in above else "is nested too deeply")
        if places > 16 * len(tree.blocks) + 1000:
            raise ValueError("shares blocks too often")
        if number not in depth:
            depth[number] = len(above)
            if tree.blocks[number].path != path:
                raise ValueError(
                    f"gives block {number} the path {tree.blocks[number].path[:80]!r}, must be {path[:80]!r}"
                )
        inner = above | {number}
        children = tree.blocks[number].children
        stack += [(child, layout.join(path, name), inner) for name, child in reversed(children)]
    if len(depth) != len(tree.blocks):
        raise ValueError(f"has {len(tree.blocks) - len(depth)} blocks outside of the root")


def _check_block(index: int, block: BlockRecord, parameters: dict[str, ParameterRecord]) -> None:
    if block.id != index:
        raise ValueError("is not in its place")
    if len({name for name, _ in block.children}) != len(block.children):
        raise ValueError("has two children with the same name")
    for reference in (*block.parameters.values(), *block.loose.values()):
        if reference not in parameters:
            raise ValueError(f"names the parameter {reference[:60]!r}, which does not exist")


def _check_parameter(record: ParameterRecord) -> None:
    if record.dtype not in DTYPES:
        raise ValueError(f"has dtype={record.dtype[:60]!r}")
    if record.state == "deferred" and record.shape is not None and None not in record.shape:
        raise ValueError("waits for its shape, which is known")
