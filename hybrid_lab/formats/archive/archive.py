"""Archive: everything in a .hlab file, read and checked, before any of it reaches a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.ops.framework.dtypes import name_of

from .. import strict_json
from . import calls, examples, graphs, layout, objects, tree, values
from .container import Container

if TYPE_CHECKING:
    from hybrid_lab.gluon import Block, Parameter

    from .graphs import SavedGraph


class Archive:
    """An open archive whose every byte was checked.

    tree : the Tree; calls : what plain Blocks called last, or None
    weights : parameter id -> array; graphs : member -> SavedGraph
    values : False reads and checks the tree and the graphs alone, which is quick for any size; `weights` is empty then
    """

    def __init__(self, path: str | PathLike[str], values: bool = True) -> None:
        self.container = container = Container.open(path)
        self.path = container.path
        # Each member is read once, so that the checked bytes are the used bytes, even if the file changes meanwhile.
        names = container.names if values else [name for name in container.names if _is_structure(name)]
        self._contents = {name: container.read(name) for name in names if not container.holds_tensors(name)}
        self._arrays = {name: container.read_tensors(name) for name in names if container.holds_tensors(name)}
        self.tree = tree.from_json(self._json(layout.TREE), self.path)
        there = layout.CALLS in container
        self.calls = calls.parse(self._json(layout.CALLS), self.path) if there else None
        self._tensors = self._tensors_of(layout.WEIGHTS) if values else self._constants()
        self.weights = {key: array for key, array in self._tensors.items() if key in self.tree.parameters}
        if values:
            self._check_weights()
        self._check_members()

    def _constants(self) -> dict[str, np.ndarray]:
        """The arrays inside graphs, read without the parameters."""
        file = self.container.tensors(layout.WEIGHTS)
        return {key: file[key] for key in file if key not in self.tree.parameters}

    def _content(self, member: str) -> bytes:
        if member not in self._contents:
            raise self.container.error("damaged archive: it has no such member", member)
        return self._contents[member]

    def _json(self, member: str) -> object:
        return strict_json.parse(self._content(member), path=self.path, member=member)

    def _object(self, member: str, what: str) -> dict[str, Any]:
        data = self._json(member)
        if not isinstance(data, dict):
            raise self.container.error(f"damaged archive: {what} are not an object", member)
        return data

    def _tensors_of(self, member: str) -> dict[str, np.ndarray]:
        if member not in self._arrays:
            raise self.container.error("damaged archive: it has no such tensors", member)
        return self._arrays[member]

    def _check_weights(self) -> None:
        for key, record in self.tree.parameters.items():
            array = self.weights.get(key)
            if (array is not None) != (record.state == "initialized"):
                raise self.container.error(f"damaged archive: parameter {key!r} is {record.state}", layout.WEIGHTS)
            if array is not None and (array.shape != record.shape or name_of(array.dtype) != record.dtype):
                raise self.container.error(
                    f"damaged archive: {key!r} is {array.dtype}{list(array.shape)}, the tree says {record.dtype}"
                    f"{list(record.shape or ())}",
                    layout.WEIGHTS,
                )

    def _check_members(self) -> None:
        named = [member for block in self.tree.blocks for member in block.graphs]
        there = [name for name in self.container.names if name.startswith("graphs/")]
        if sorted(named) != sorted(there):
            odd = sorted(set(named).symmetric_difference(there)) or named
            raise self.container.error(f"damaged archive: tree and members disagree about {odd[0]!r}", layout.TREE)

    @cached_property
    def graphs(self) -> dict[str, SavedGraph]:
        """All graphs by member name."""
        constants: dict[str, dict[str, np.ndarray]] = {}
        for key, array in self._tensors.items():
            member, colon, name = key.partition(":")  # no member's name has a colon
            if colon and key not in self.weights:
                array.flags.writeable = False
                constants.setdefault(member, {})[name] = array
        return {
            member: graphs.parse(
                self._content(member), member, constants.get(member, {}), self.tree.parameters, self.path
            )
            for block in self.tree.blocks
            for member in block.graphs
        }

    @cached_property
    def examples(self) -> dict[str, np.ndarray]:
        """Tensors `<member>:in0`, `<member>:out0`."""
        return self._arrays.get(layout.EXAMPLE_ARRAYS, {})

    def example_differences(self, members: Iterable[str] | None = None) -> list[str]:
        """Differences between the stored examples and the graphs and weights of this file."""
        found = []
        for member in members if members is not None else self.graphs:
            problem = examples.check(self.graphs[member], self.weights, self.examples)
            if problem:
                found.append(f"example: {member}: {problem}")
        return found

    @property
    def attribute_tensors(self) -> dict[str, np.ndarray]:
        """The arrays among the attributes of Blocks, by the names that their records use."""
        return self._arrays.get(layout.ATTRIBUTES, {})

    def aux(
        self,
        blocks: Mapping[int, Block] | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        trainer_of: Callable[[Any, Mapping[str, Parameter]], Any] = objects.trainer_of,
    ) -> dict[str, Any]:
        """The user's own values; empty if none were saved.

        blocks, parameters : of the model that is loaded, by their ids in the archive, for values that refer to them
        trainer_of : as in values.Decoder
        """
        if layout.AUX not in self.container:
            return {}
        decoder = values.Decoder(self._arrays.get(layout.AUX_ARRAYS, {}), blocks, parameters, trainer_of)
        return read_values(self.container, self._json(layout.AUX), layout.AUX, decoder)

    @cached_property
    def checkpoint(self) -> dict[str, Any] | None:
        """Where the training stood, of a checkpoint (`mx.checkpoint`); None for other archives."""
        if layout.CHECKPOINT not in self.container:
            return None
        arrays = self._tensors_of(layout.CHECKPOINT_ARRAYS)
        decoder = values.Decoder(arrays, trainer_of=values.trainer_parts)
        return read_values(self.container, self._json(layout.CHECKPOINT), layout.CHECKPOINT, decoder)

    @cached_property
    def trainer(self) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """The trainer's settings and states, or None."""
        if layout.TRAINER not in self.container:
            return None
        return self._object(layout.TRAINER, "the trainer's settings"), self._tensors_of(layout.TRAINER_ARRAYS)

    @cached_property
    def random(self) -> dict[str, Any] | None:
        """The random state, or None."""
        return self._object(layout.RANDOM, "the random numbers' settings") if layout.RANDOM in self.container else None


def read_values(container: Container, data: object, member: str, decoder: values.Decoder) -> dict[str, Any]:
    """The dict that an Encoder made `data` of. Raises ArchiveError."""
    try:
        found = decoder.decode(data)
    except ValueError as error:
        raise container.error(f"damaged archive: {error}", member) from None
    if not isinstance(found, dict):
        raise container.error("damaged archive: the values are not a dict", member)
    return found


def _is_structure(member: str) -> bool:
    """Whether a member is part of the model's structure."""
    return member in (layout.TREE, layout.CALLS) or member.startswith("graphs/")
