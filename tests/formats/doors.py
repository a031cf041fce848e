"""Every way to write a model and to read it back, tried on one model: what the generated tests of saving share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.diagnostics import Unmappable
from hybrid_lab.gluon import access, nn

Make = Callable[[], Sequence[gluon.Block]]


class Members(gluon.Block):
    """A plain Block whose children are the members of a test, each called on arguments of its own."""

    def __init__(self, members: Sequence[gluon.Block]) -> None:
        super().__init__(prefix="members_")
        for number, member in enumerate(members):
            self.register_child(member, str(number))
        with self.name_scope():
            self.dense = nn.Dense(1, in_units=1)  # a Trainer needs a parameter

    def forward(self, arguments: Sequence[Any]) -> list[np.ndarray]:
        return outputs(self, arguments)


def outputs(net: gluon.Block, arguments: Sequence[Any]) -> list[np.ndarray]:
    """What the members give, as NumPy arrays in a flat list, from the same random numbers each time."""
    mx.random.seed(1)
    calls = zip(net._children.values(), arguments, strict=False)
    return [array for member, given in calls for array in _flat(member(*map(_copied, given)))]


def _copied(item: Any) -> Any:
    """The item with arrays of its own: some operators write into what they are given."""
    return [_copied(each) for each in item] if isinstance(item, list) else item.copy()


def _flat(item: Any) -> Iterator[np.ndarray]:
    if isinstance(item, (list, tuple)):
        for each in item:
            yield from _flat(each)
    else:
        yield item.asnumpy()


def check(
    make: Make,
    arguments: Sequence[Any],
    folder: Path,
    hybridized: bool = True,
    in_mxnet: bool = True,
    every: bool = True,
) -> None:
    """Save a model and load it through every door; assert that nothing differs.

    make : makes the members, the same each time but for the values of their parameters
    arguments : for each member, the arrays that it is called with
    in_mxnet : write MXNet's files, too; a member that has none must be refused as Unmappable
    every : False leaves out doors that read a file as another one does
    Raises AssertionError that lists every door that fails, and how.
    """
    net = Members(make())
    net.initialize(mx.init.Uniform(1))
    if hybridized:
        net.hybridize()
    wanted = net(arguments)
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    file, problems = str(folder / "net.hlab"), list[str]()

    @contextlib.contextmanager
    def door(name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            problems.append(f"{name}: {type(error).__name__}: {str(error)[:500]}")

    def fresh() -> Members:
        model = Members(make())
        model.initialize(mx.init.Uniform(1))
        return model

    def compare(model: gluon.Block) -> None:
        found = outputs(model, arguments)
        assert [(each.shape, each.dtype) for each in found] == [(each.shape, each.dtype) for each in wanted]
        for mine, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)  # two engines may round differently

    with door("net.save"):
        net.save(file)
    if problems:
        raise AssertionError(problems[0])
    if every:
        with door("net.load into the same model"):
            assert not net.load(file).differences
            compare(net)
    with door("net.load into a new model"):
        model = fresh()
        model.load(file)
        compare(model)
    if every:
        with door("net.load with the file's graphs"):
            model = fresh()
            model.load(file, graphs="file")
            compare(model)
    with door("gluon.load"):
        compare(gluon.load(file))
    with door("mx.diff"):
        difference = mx.diff(file, net)
        assert not difference, str(difference)
    if every:
        with door("a checkpoint"):
            manager = mx.checkpoint.Manager(folder / "checkpoints", net, trainer)
            manager.save(1)
            manager.restore()
            compare(net)
    hybrid = {name: each for name, each in net._children.items() if isinstance(each, gluon.HybridBlock)}
    graphs = {name: access.graphs(each).graphs() for name, each in hybrid.items() if each is not net.dense}
    if in_mxnet and any(graphs.values()):
        with door('save_cached_graphs(format="mxnet")'):
            mx.save_cached_graphs(net, folder / "mxnet", format="mxnet")
            for name in [name for name, found in graphs.items() if found]:
                if not (folder / "mxnet" / f"{name}-symbol.json").exists():
                    with pytest.raises(Unmappable):  # the one reason that there may be
                        net._children[name].export(str(folder / "member"))
        with door("net.load of MXNet's files"):
            model = fresh()
            assert not model.load(folder / "mxnet").differences
            if all((folder / "mxnet" / f"{name}-symbol.json").exists() for name in graphs):
                compare(model)
    if problems:
        raise AssertionError("\n".join(problems))
