"""Opening an archive without the model's code: a tree of Blocks that run the saved graphs."""

from __future__ import annotations

import os
from os import PathLike
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from hybrid_lab.diagnostics import ArchiveError, HybridLabError, LoadMismatchError
from hybrid_lab.diagnostics.formatting import first_line
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.gluon import access, budget
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.files.registering import load_layers
from hybrid_lab.gluon.files.saved import note_file
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.nn import registry
from hybrid_lab.gluon.parameter import Constant, Parameter
from hybrid_lab.gluon.symbol_block import SymbolBlock
from hybrid_lab.insight.states import class_name
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ops.framework.dtypes import name_of
from hybrid_lab.ops.framework.operator import find
from hybrid_lab.system.logger import logger
from hybrid_lab.system.memory import without_collecting
from hybrid_lab.system.progress import shows_work

from ..singa import is_singa
from . import attributes, calls, layout, ledger
from .archive import Archive
from .folder import Folder, folder_at
from .tree import BlockRecord, ParameterRecord, Tree, initializer_of, rename_classes
from .values import Decoder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hybrid_lab.ndarray.context import Context

_PLAIN = (bool, int, float, str, type(None))
_FLAG_TYPES: dict[str, Any] = {
    "engine": (str, type(None)),
    "device": type(None),
    "static_alloc": bool,
    "static_shape": bool,
    "strict": bool,
    "tf32": bool,
    "products": (str, type(None)),
}


_FAILURES = (
    *(HybridLabError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError),
    *(MemoryError, RecursionError),
)
"""What constructors raise for arguments that they do not take."""


class MissingCodeError(HybridLabError, NotImplementedError):
    """A Block from an archive was called that holds no graph: its code is needed."""


class ArchivedBlock(SymbolBlock):
    """A HybridBlock from an archive: it runs the saved graphs of a class whose code is not needed.

    Children are attributes and stand in `_children`, as in the model that was saved.
    """

    archived_class: str

    def __init__(self, prefix: str, class_name: str) -> None:
        HybridBlock.__init__(self, prefix=prefix)
        object.__setattr__(self, "archived_class", class_name)

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Add a child. Once the graphs are in place they hold the children's computations, so none can be replaced."""
        if access.graphs(self).pinned:
            raise HybridLabError(
                f"{self.name} runs the saved graph of {self.archived_class}, which a new child would not change; "
                "build a new Block from its children instead"
            )
        super().register_child(block, name)

    def __repr__(self) -> str:
        return _shown(self, class_name(self))


class BlockStub(Block):
    """A Block from an archive that cannot run without its class; its children and parameters are there and work.

    A plain Block's forward is Python code, which an archive does not hold.
    """

    archived_class: str
    _reason: str

    def __init__(self, prefix: str, class_name: str, reason: str, forward: str | None = None) -> None:
        super().__init__(prefix=prefix)
        object.__setattr__(self, "archived_class", class_name)
        object.__setattr__(self, "archived_forward", forward)
        object.__setattr__(self, "_reason", reason)

    def forward(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises MissingCodeError."""
        children = layout.shorten([f".{name}" for name in access.children(self)]) or "none"
        raise MissingCodeError(
            f"{self.name}: the class {self.archived_class} is missing. {self._reason} "
            f"Define it and use net.load(path), or call its children: {children}"
        )

    def __repr__(self) -> str:
        return _shown(self, f"{self.archived_class} [code missing]")


def _shown(block: Block, title: str) -> str:
    inner = [f"  ({name}): " + repr(child).replace("\n", "\n  ") for name, child in access.children(block).items()]
    return "\n".join([f"{title}(", *inner, ")"]) if inner else f"{title}()"


class HybridStub(BlockStub, HybridBlock):
    """The same for a HybridBlock that was never called, so that hybrid parents can hold it."""


@shows_work("loading")
def load(
    path: str | PathLike[str],
    ctx: Context | Sequence[Context] | None = None,
    with_aux: bool = False,
    classes: Mapping[str, type | str] | None = None,
) -> Any:
    """The model in an archive, without its code.

    Registered gluon.nn layers are made again; other HybridBlocks run their saved graphs, eagerly and hybridized, train,
    and take other batch sizes; plain Blocks are stubs that name the missing class, with working children. Attributes of
    Blocks that were saved, `net.step`, are there again.

    path : an archive; or a folder of MXNet's files, as `save_cached_graphs(format="mxnet")` writes it: each Block with
        files is a SymbolBlock at its place in the tree, those above them are stubs
    ctx : where the parameters go, the CPU by default
    with_aux : return (model, the values that were saved as `aux=`)
    classes : name in the file -> the class, or the name of a registered one, {"OldNet": Net}: for renamed classes and
        for classes that are not registered. A Block whose arguments the file lacks is made if its constructor needs
        none
    Raises ArchiveError for a damaged file, HybridLabError for a class in `classes` that the file does not have.
    """
    check_switches("gluon.load", with_aux=with_aux)
    with without_collecting():
        folder = folder_at(path)
        archive = Archive(layout.existing_path(path)) if folder is None else Folder(folder)
        loaded = _build(archive, ctx, with_aux, classes)
        if folder is None:
            ledger.note(loaded[0] if with_aux else loaded, layout.existing_path(path))
        return loaded


def _build(
    archive: Archive | Folder,
    ctx: Context | Sequence[Context] | None,
    with_aux: bool,
    classes: Mapping[str, type | str] | None,
) -> Any:
    """The archive's model. A function of its own, so that the collector does not go through the objects freed here."""
    differences = archive.example_differences()
    if differences:
        raise LoadMismatchError(
            "the archive's graphs do not reproduce the outputs of its own examples", differences, path=archive.path
        )
    builder = _Builder(archive, ctx, rename_classes(archive.tree, classes))
    root = builder.build_root()
    builder.pin()
    builder.give_calls()
    builder.give_attributes()
    if isinstance(archive, Archive) and archive.path is not None:
        note_file(root, os.path.abspath(archive.path), "loaded")
    return (root, archive.aux(builder.blocks, builder.parameters)) if with_aux else root


def structure(path: str | PathLike[str]) -> Block:
    """The model in an archive as `load` makes it, but with parameters that have shapes and no values: to be looked at.

    Reads neither weights nor examples and computes nothing. Raises ArchiveError for a damaged file.
    """
    with without_collecting():
        builder = _Builder(Archive(path, values=False), None)
        root = builder.build_root()
        builder.pin()
        builder.give_calls()
        return root


def archive_arguments(path: str | PathLike[str], class_name: str) -> tuple[dict[str, Any], int]:
    """The constructor's arguments of an archive's outermost Block without its children, and no SINGA states; and how
    many Blocks and parameters it may make with them.

    Raises HybridLabError if the Block is of another class than `class_name`, ArchiveError for a damaged file.
    """
    file = layout.existing_path(path)
    if is_singa(file):
        return {}, 0
    tree = Archive(file, values=False).tree
    record = tree.blocks[0]
    if record.class_ != class_name:
        raise HybridLabError(f"{file} holds a {record.class_}, not a {class_name}")
    return {name: value for name, value in record.config.items() if registry.child_name(value) is None}, _most(tree)


def _most(tree: Tree) -> int:
    """How many Blocks and parameters the constructors of a tree may make: some are made that others replace."""
    return 4 * (len(tree.blocks) + len(tree.parameters)) + 1000


class _Builder:
    """Makes each block and each parameter once. classes : the classes of the user's code that may be constructed, by
    name
    """

    def __init__(
        self,
        archive: Archive | Folder,
        ctx: Context | Sequence[Context] | None,
        classes: Mapping[str, type] | None = None,
    ) -> None:
        self.archive, self.ctx, self.classes = archive, ctx, classes or {}
        self.blocks: dict[int, Block] = {}
        self.parameters: dict[str, Parameter] = {}
        self._waiting: set[int] = set()
        """The ids of blocks that wait for a child which is an argument of their constructor."""

    def build_root(self) -> Block:
        """The outermost block. Raises ArchiveError if a layer's arguments ask for more than the tree lists."""
        try:
            with budget.at_most(_most(self.archive.tree)):
                return self.build(0)
        except budget.TooManyError as error:
            raise ArchiveError(f"damaged archive: {error}", path=self.archive.path, member=layout.TREE) from None

    def build(self, number: int, existing: Block | None = None) -> Block:
        """The block of this id. existing : the block that a registered parent made itself in its place."""
        if number in self.blocks:
            return self.blocks[number]
        record = self.archive.tree.blocks[number]
        block = existing if existing is not None and _fits(existing, record) else self._make(record)
        self.blocks[number] = block
        for name, key in record.parameters.items():
            self._place(block, name, key)
        for key in record.loose.values():
            block.params.add(self._parameter(key))
        for name, child in record.children:
            before = access.children(block).get(name)
            made = self.build(child, before)
            if made is not before:
                self._attach(block, name, made)
        if isinstance(block, HybridBlock) and record.hybridized:
            self._hybridize(block, record)
        return block

    def _make(self, record: BlockRecord) -> Block:
        if record.layer is not None and record.layer not in registry.classes():
            load_layers()
        known = self.classes.get(record.class_)
        if known is not None or (record.layer is not None and record.layer in registry.classes()):
            try:
                _check_function(record.config)
                arguments = self._arguments(record)
                if arguments is not None:
                    return registry.build(known or str(record.layer), arguments, record.prefix)
            except budget.TooManyError:
                raise
            except _FAILURES as error:
                logger.warning(
                    f"{record.path or record.class_}: {record.class_} could not be constructed again: {error}"
                )
        if record.graphs:
            return ArchivedBlock(record.prefix, record.class_ or "SymbolBlock")
        if record.kind == "plain":
            reason = "It is a plain Block, and its forward is Python code, which an archive does not hold."
            return BlockStub(record.prefix, record.class_ or "Block", reason, record.forward)
        reason = (
            "The archive holds no graph of it: it was not called before the model was saved, or its code could not be "
            "traced, as a warning said then."
        )
        return HybridStub(record.prefix, record.class_ or "HybridBlock", reason)

    def _arguments(self, record: BlockRecord) -> dict[str, Any] | None:
        """The constructor's arguments, with the children that are among them; None if one has no code of its own.

        Raises HybridLabError if the Block has no child of that name, or if the child contains the Block.
        """
        arguments = dict(record.config)
        for argument, value in record.config.items():
            if (name := registry.child_name(value)) is None:
                continue
            number = dict(record.children).get(name)
            if number is None or record.id in self._waiting:
                raise HybridLabError(f"the argument {argument} is no child of it")
            self._waiting.add(record.id)
            try:
                child = arguments[argument] = self.build(number)
            finally:
                self._waiting.discard(record.id)
            if isinstance(child, (ArchivedBlock, BlockStub, HybridStub)):
                return None
        return arguments

    def _attach(self, block: Block, name: str, child: Block) -> None:
        """As a child and as an attribute, if the name can be one and means nothing else."""
        block.register_child(child, name)
        if name.isidentifier() and not hasattr(type(block), name):
            object.__setattr__(block, name, child)

    def _hybridize(self, block: HybridBlock, record: BlockRecord) -> None:
        access.set_active(block, True)
        flags = {key: value for key, value in record.flags.items() if isinstance(value, _FLAG_TYPES.get(key, _PLAIN))}
        engine = flags.get("engine")
        if engine is not None:
            from hybrid_lab import engines

            try:
                engines.get(engine)
            except HybridLabError as error:
                logger.warning(f"{block.name}: {first_line(error)}; another engine is used")
                flags["engine"] = None
        access.set_flags(block, flags)

    def pin(self) -> None:
        """Give each HybridBlock the file's graphs; they win over the code of registered layers too."""
        for number, block in self.blocks.items():
            members = self.archive.tree.blocks[number].graphs
            if members and isinstance(block, HybridBlock):
                for member in members:
                    for key in self.archive.graphs[member].parameters:
                        self._parameter(key)
                saved = [self.archive.graphs[member] for member in members]
                access.calls(block).pin([graph.attach(self.parameters, block.name) for graph in saved])

    def give_calls(self) -> None:
        """Give each plain Block the record of its last call."""
        if self.archive.calls is not None:
            calls.give(self.archive.calls, self.blocks)

    def give_attributes(self) -> None:
        """Give each Block the attributes that were saved."""
        decoder = Decoder(self.archive.attribute_tensors, self.blocks, self.parameters)
        for number, block in self.blocks.items():
            attributes.give(block, attributes.decoded(self.archive.tree.blocks[number], decoder, self.archive.path))

    # -- parameters ------------------------------------------------------------------------------------------------

    def _parameter(self, key: str, own: Parameter | None = None) -> Parameter:
        """The parameter of this id. own : the parameter that the layer's constructor made in its place"""
        found = self.parameters.get(key)
        if found is None:
            found = self.parameters[key] = self._make_parameter(self.archive.tree.parameters[key], own)
        return found

    def _make_parameter(self, record: ParameterRecord, own: Parameter | None) -> Parameter:
        array = self.archive.weights.get(record.id)
        values = None if array is None else NDArray.wrap(array)
        if own is not None and _is_as_saved(own, record):
            made = own
        elif record.constant and array is not None:
            made = Constant(record.name, np.array(array))
        else:
            made = Parameter(
                record.name,
                grad_req=record.grad_req,
                shape=record.shape,
                dtype=record.dtype,
                lr_mult=record.lr_mult,
                wd_mult=record.wd_mult,
                init=record.init,
                allow_deferred_init=True,
                differentiable=record.differentiable,
            )
        made.from_file = True
        if values is not None:
            access.load_values(made, values, self.ctx)
        elif record.state == "deferred":
            made.initialize(ctx=self.ctx, default_init=initializer_of(record, self.archive.path))
        return made

    def _place(self, block: Block, name: str, key: str) -> None:
        """Put a parameter into the block, replacing the parameter that the constructor made."""
        own = access.own_parameters(block).get(name)
        parameter = self._parameter(key, own)
        if own is not None:
            block.params.remove(own.name)
        block.params.add(parameter)  # at the end: all parameters are in the order of the file
        if parameter is own:
            return
        access.own_parameters(block)[name] = parameter
        if own is not None or (name.isidentifier() and not hasattr(type(block), name)):
            object.__setattr__(block, name, parameter)


def _check_function(config: dict[str, object]) -> None:
    """Lambda layers name a function: from a file only an operator will do."""
    name = config.get("function")
    if name is not None and (not isinstance(name, str) or find(name) is None):
        raise HybridLabError(f"there is no operator {str(name)[:60]!r}")


def _is_as_saved(parameter: Parameter, record: ParameterRecord) -> bool:
    """Whether a parameter without values equals the file's record in everything else."""
    return (
        type(parameter) is Parameter
        and not record.constant
        and access.arrays(parameter) is None
        and access.deferred_init(parameter) is None
        and (parameter.name, parameter.partial_shape, name_of(np.dtype(parameter.dtype)), parameter.init)
        == (record.name, record.shape, record.dtype, record.init)
        and (parameter.grad_req, parameter.lr_mult, parameter.wd_mult, parameter.differentiable)
        == (record.grad_req, record.lr_mult, record.wd_mult, record.differentiable)
    )


def _fits(block: Block, record: BlockRecord) -> bool:
    """Whether a registered parent's own child equals the file's Block in its place."""
    return record.layer is not None and type(block).__name__ == record.class_ and block.prefix == record.prefix
