"""Blocks of two models are matched by structure: what was done to a network is what `mx.diff` says, and no more."""

import random
import warnings

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.formats.archive.block_matching import match_blocks
from hybrid_lab.formats.archive.tree import describe_tree
from hybrid_lab.gluon import nn

pytestmark = pytest.mark.filterwarnings("ignore:Parameter")

WIDTH = 8


def sequence(*layers):
    net = nn.HybridSequential()
    net.add(*layers)
    return net


def dense(units=WIDTH, **options):
    return nn.Dense(units, in_units=options.pop("in_units", WIDTH), **options)


def started(net, hybrid=True):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.initialize(mx.init.Xavier())
    if hybrid:
        net.hybridize(engine="numpy")
    net(nd.ones((2, WIDTH)))
    return net


def layers():
    return sequence(dense(), dense(activation="relu"), dense(), nn.BatchNorm(in_channels=WIDTH), dense(3))


def difference(tmp_path, first, edit):
    """What differs after `edit`, which gets the children of the first network, of which it may use some."""
    one = started(first())
    one.save(tmp_path / "a.hlab")
    return mx.diff(tmp_path / "a.hlab", started(edit(*one._children.values())))


def told(found):
    """(path, class, kind or move, changes) of each Block that differs, and the tensors as `+name`, `-name`, `~name`."""
    marks = {"added": "+", "removed": "-", "changed": "~"}
    blocks = [
        (block.path, block.class_name, block.move or block.kind, tuple(block.changes))
        for block in found.blocks
        if block.has_changed
    ]
    return blocks, [marks[tensor.kind] + tensor.name for tensor in found.tensors]


EDITS = {
    "inserted in the middle": (
        layers, lambda a, b, c, d, e: sequence(a, b, nn.Dropout(0.5), c, d, e), [("2", "Dropout", "added", ())], []
    ),
    "inserted at the front": (
        layers, lambda a, b, c, d, e: sequence(nn.Dropout(0.5), a, b, c, d, e), [("0", "Dropout", "added", ())], []
    ),
    "inserted at the end": (
        layers, lambda *all: sequence(*all, nn.Dropout(0.5)), [("5", "Dropout", "added", ())], []
    ),
    "removed": (
        layers, lambda a, b, c, d, e: sequence(a, b, d, e), [("2", "Dense", "removed", ())], ["-2.weight", "-2.bias"]
    ),
    "one of equal layers removed": (
        lambda: sequence(*(dense() for _ in range(6))), lambda a, b, c, d, e, f: sequence(a, b, d, e, f),
        [("2", "Dense", "removed", ())], ["-2.weight", "-2.bias"],
    ),
    "moved": (
        layers, lambda a, b, c, d, e: sequence(a, d, b, c, e), [("1", "BatchNorm", "moved", ())], []
    ),
    "two exchanged": (
        lambda: sequence(dense(), sequence(dense(), nn.BatchNorm(in_channels=WIDTH)), dense()),
        lambda a, b, c: sequence(b, a, c), [("0", "HybridSequential", "moved", ())], [],
    ),
    "replaced by another class": (
        layers, lambda a, b, c, d, e: sequence(a, b, nn.Dropout(0.5), d, e),
        [("2", "Dense -> Dropout", "same", ("class: Dense became Dropout",))], ["-2.weight", "-2.bias"],
    ),
    "normalization replaced": (
        layers, lambda a, b, c, d, e: sequence(a, b, c, nn.LayerNorm(in_channels=WIDTH), e),
        [("3", "BatchNorm -> LayerNorm", "same", ("class: BatchNorm became LayerNorm",))],
        ["-3.running_mean", "-3.running_var"],
    ),
    "another activation": (
        lambda: sequence(dense(), nn.Activation("relu"), dense()),
        lambda a, b, c: sequence(a, nn.Activation("tanh"), c),
        [("1", "Activation", "same", ("activation: 'relu' became 'tanh'",))], [],
    ),
    "another rate": (
        lambda: sequence(dense(), nn.Dropout(0.5), dense()), lambda a, b, c: sequence(a, nn.Dropout(0.1), c),
        [("1", "Dropout", "same", ("rate: 0.5 became 0.1",))], [],
    ),
    "wrapped": (
        layers, lambda a, b, c, d, e: sequence(a, sequence(b, c), d, e),
        [("1", "HybridSequential", "added", ()), ("1.0", "Dense", "moved", ()), ("1.1", "Dense", "moved", ())], [],
    ),
    "a sequence wrapped": (
        lambda: sequence(dense(), sequence(dense(), nn.Dropout(0.1))), lambda a, b: sequence(a, sequence(b)),
        [("1", "HybridSequential", "added", ()), ("1.0", "HybridSequential", "moved", ())], [],
    ),
    "unwrapped": (
        lambda: sequence(dense(), sequence(dense(), nn.Dropout(0.1)), dense(3)),
        lambda a, b, c: sequence(a, *b._children.values(), c),
        [("1", "HybridSequential", "removed", ()), ("1", "Dense", "moved", ()), ("2", "Dropout", "moved", ())], [],
    ),
    "duplicated": (
        lambda: sequence(dense(), dense(4), dense(3, in_units=4)),
        lambda a, b, c: sequence(a, dense(), b, c), [("1", "Dense", "added", ())], ["+1.weight", "+1.bias"],
    ),
    "called twice": (
        layers, lambda a, b, c, d, e: sequence(a, b, a, c, d, e),
        [("2", "Dense", "added", ("the same Block as 0",))], [],
    ),
    "no longer shared": (
        lambda: (lambda a: sequence(a, a))(dense()), lambda a, b: sequence(a, dense()),
        [("1", "Dense", "same", ("sharing: the same Block as 0 became a Block of its own",))], ["~1.weight"],
    ),
    "nothing": (layers, lambda *all: sequence(*all), [], []),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_what_is_told(name, tmp_path):
    first, edit, blocks, tensors = EDITS[name]
    assert told(difference(tmp_path, first, edit)) == (blocks, tensors)


def test_a_default_that_is_given_is_no_difference():
    first = sequence(dense(), nn.Conv2D(4, (3, 3), in_channels=2))
    second = sequence(dense(activation=None, use_bias=True), nn.Conv2D(4, 3, strides=1, in_channels=2))
    first.initialize()
    for layer, other in zip(first, second, strict=True):
        with_numbers_of(layer, other)
    assert told(mx.diff(first, second)) == ([], [])


def with_numbers_of(layer, other):
    """`other` with the numbers of a layer."""
    other.initialize()
    for name, parameter in layer.params.items():
        other.params[other.prefix + name.removeprefix(layer.prefix)].set_data(parameter.data())
    return other


@pytest.mark.parametrize("options", [{}, {"activation": None}], ids=["as before", "a default is given"])
def test_a_layer_inserted_into_a_long_chain_that_was_trained(tmp_path, options):
    """All numbers changed a little: which of the equal layers is new is what is told."""

    def edit(*chain):
        longer = [with_numbers_of(layer, dense(**options)) for layer in chain]
        for layer in longer:
            layer.weight.set_data(layer.weight.data() * 1.01 + 0.001)
        return sequence(*longer[:20], dense(**options), *longer[20:])

    found = difference(tmp_path, lambda: sequence(*(dense() for _ in range(60))), edit)
    assert [(block.path, block.kind) for block in found.blocks if block.kind != "same"] == [("20", "added")]
    assert {tensor.kind for tensor in found.tensors} == {"added", "changed"}
    assert all(tensor.largest < 0.1 for tensor in found.tensors if tensor.kind == "changed")


def test_more_units_change_what_reads_them_too(tmp_path):
    found = difference(
        tmp_path,
        lambda: sequence(dense(4), dense(3, in_units=4)),
        lambda a, b: sequence(dense(6), dense(3, in_units=6)),
    )
    blocks, tensors = told(found)
    assert [(path, kind, changes[0]) for path, _, kind, changes in blocks] == [
        ("0", "same", "units: 4 became 6"), ("1", "same", "in_units: 4 became 6"),
    ]  # fmt: skip
    assert tensors == ["~0.weight", "~0.bias", "~1.weight"]


def test_a_shifted_tensor_says_what_it_was_called(tmp_path):
    def edit(a, b, c, d, e):
        c.weight.set_data(c.weight.data() + 1)
        return sequence(a, b, nn.Dropout(0.5), c, d, e)

    found = difference(tmp_path, layers, edit)
    (tensor,) = found.tensors
    assert (tensor.name, tensor.first_name) == ("3.weight", "2.weight")
    assert tensor.text.endswith("; before: 2.weight")
    assert found.summary == "1 Block added, 1 operator added, 1 tensor changed"
    assert found.notes[0].startswith("3 Blocks have other numbers, since others came or went: 2 -> 3, 3 -> 4, 4 -> 5")


class Named(gluon.HybridBlock):
    """Two layers whose attributes have these names."""

    def __init__(self, first, second, **options):
        super().__init__(**options)
        self.order = (first, second)
        with self.name_scope():
            setattr(self, first, dense())
            setattr(self, second, dense(3))

    def hybrid_forward(self, F, x):
        for name in self.order:
            x = getattr(self, name)(x)
        return x


def copied(net, *names):
    """A `Named` with other names and the same numbers."""
    other = started(Named(*names))
    for mine, its in zip(net._children.values(), other._children.values(), strict=True):
        for name, parameter in its._reg_params.items():
            parameter.set_data(mine._reg_params[name].data())
    return other


def test_a_renamed_attribute_is_one_difference():
    net = started(Named("fc", "out"))
    found = mx.diff(net, copied(net, "proj", "out"))
    assert told(found) == ([("proj", "Dense", "renamed", ())], [])
    assert found.blocks[0].all_changes == ["renamed from fc"]
    assert found.summary == "1 Block renamed"


def test_two_tops_of_different_classes():
    net = started(Named("fc", "out"))
    found = mx.diff(net, started(sequence(*net._children.values())))
    blocks, tensors = told(found)
    assert [(path, move) for path, _, move, _ in blocks] == [("", "same"), ("0", "renamed"), ("1", "renamed")]
    assert tensors == [] and not found.operators


def test_a_renamed_parameter_is_no_other_tensor():
    class Scale(gluon.HybridBlock):
        def __init__(self, name, **options):
            super().__init__(**options)
            self.weight_name = name
            setattr(self, name, self.params.get(name, shape=(1, WIDTH)))

        def hybrid_forward(self, F, x, **parameters):
            return F.broadcast_mul(x, parameters[self.weight_name])

    one, two = Scale("gain"), Scale("scale")
    for net in (one, two):
        net.initialize(mx.init.One())
        net.hybridize(engine="numpy")
        net(nd.ones((2, WIDTH)))
    (block,) = mx.diff(one, two).blocks
    assert block.changes == ["scale: renamed from gain"] and not block.tensors and not block.operators


def test_another_dtype_is_told_of_each_tensor():
    one = started(sequence(dense()))
    two = sequence(dense())
    two.initialize()
    two.cast("float64")
    found = mx.diff(one, two)
    assert [tensor.text.partition(";")[0] for tensor in found.tensors] == [
        "float32[8, 8] became float64[8, 8]", "float32[8] became float64[8]"
    ]  # fmt: skip


def test_a_plain_top_with_several_graphs(tmp_path):
    class Top(gluon.Block):
        def __init__(self, *parts, **options):
            super().__init__(**options)
            self.body, self.head = parts

        def forward(self, x):
            return self.head(self.body(x))

    one = started(Top(layers(), sequence(dense(3, in_units=3))))
    one.save(tmp_path / "a.hlab")
    body = one.body._children.values()
    found = mx.diff(tmp_path / "a.hlab", started(Top(sequence(nn.Dropout(0.5), *body), one.head)))
    assert told(found) == ([("body.0", "Dropout", "added", ())], [])
    assert [(row.kind, row.second.partition("(")[0]) for row in found.operators] == [("added", "Dropout")]


def test_numpy_semantics_are_matched_as_well():
    with mx.util.np_shape(True), mx.util.np_array(True):
        one = sequence(dense(), dense(3))
        one.initialize()
        one.hybridize(engine="numpy")
        one(mx.np.ones((2, WIDTH)))
        two = sequence(one[0], nn.Dropout(0.5), one[1])
        two.hybridize(engine="numpy")
        two(mx.np.ones((2, WIDTH)))
        assert told(mx.diff(one, two)) == ([("1", "Dropout", "added", ())], [])


def test_a_model_without_a_graph():
    class Plain(gluon.Block):
        def __init__(self, *parts, **options):
            super().__init__(**options)
            self.parts = nn.Sequential()
            self.parts.add(*parts)

        def forward(self, x):
            return self.parts(x)

    one = started(Plain(dense(), dense(3)), hybrid=False)
    parts = one.parts._children.values()
    two = started(Plain(nn.Dropout(0.5), *parts), hybrid=False)
    assert told(mx.diff(one, two)) == ([("parts.0", "Dropout", "added", ())], [])


# -- random edits ------------------------------------------------------------------------------------------------------


class Layer:
    """The description of one Block of a random network. number : of its values, which a copy shares"""

    count = 0

    def __init__(self, kind, option=None, inside=()):
        Layer.count += 1
        self.kind, self.option, self.inside, self.number = kind, option, list(inside), Layer.count

    def built(self):
        if self.kind == "sequence":
            return sequence(*(layer.built() for layer in self.inside))
        block = {
            "dense": lambda: dense(activation=self.option), "drop": lambda: nn.Dropout(self.option),
            "act": lambda: nn.Activation(self.option), "batch": lambda: nn.BatchNorm(in_channels=WIDTH),
            "layer": lambda: nn.LayerNorm(in_channels=WIDTH),
        }[self.kind]()  # fmt: skip
        block.initialize()
        values = np.random.RandomState(self.number)
        for parameter in block.collect_params().values():
            parameter.set_data(nd.array(values.uniform(0.5, 1.0, parameter.shape)))
        return block

    def containers(self):
        return [self] * (self.kind == "sequence") + [each for layer in self.inside for each in layer.containers()]


OPTIONS = {
    "dense": (None, "relu", "tanh"), "drop": (0.1, 0.2, 0.3), "act": ("relu", "tanh", "sigmoid"),
    "batch": (None,), "layer": (None,),
}  # fmt: skip


def random_layer(chance):
    kind = chance.choice(list(OPTIONS))
    return Layer(kind, chance.choice(OPTIONS[kind]))


def random_network(chance):
    parts = [random_layer(chance) for _ in range(chance.randrange(3, 7))]
    for _ in range(chance.randrange(3)):
        inner = Layer("sequence", inside=[random_layer(chance) for _ in range(chance.randrange(2, 5))])
        parts.insert(chance.randrange(len(parts) + 1), inner)
    return Layer("sequence", inside=parts)


def copy(layer):
    other = Layer(layer.kind, layer.option, [copy(each) for each in layer.inside])
    other.number = layer.number
    return other


def edited(network, chance):
    """One edit in place; the most differences that explain it, or None where there was nothing to do."""
    box = chance.choice(network.containers())
    inside = box.inside
    place = chance.randrange(len(inside))
    layer = inside[place]
    kind = chance.choice(["insert", "remove", "move", "replace", "change", "wrap", "duplicate", "numbers"])
    if kind == "insert":
        inside.insert(place, random_layer(chance))
        return 1
    if kind == "remove" and len(inside) > 1:
        del inside[place]
        return 1
    if kind == "move" and len(inside) > 2:
        inside.insert(chance.randrange(len(inside) - 1), inside.pop(place))
        return 1
    if kind == "replace" and layer.kind != "sequence":
        inside[place] = random_layer(chance)
        return 2 if inside[place].kind == layer.kind else 1
    if kind == "change" and len(OPTIONS.get(layer.kind, ())) > 1:
        layer.option = chance.choice([each for each in OPTIONS[layer.kind] if each != layer.option])
        return 1
    if kind == "wrap":
        end = min(len(inside), place + 2)
        inner = inside[place:end]
        inside[place:end] = [Layer("sequence", inside=inner)]
        return 1 + len(inner)
    if kind == "duplicate":
        other = copy(layer)
        inside.insert(place, other)
        return 1
    if kind == "numbers" and layer.kind == "dense":
        layer.number = Layer(layer.kind).number
        return 1
    return None


def differences(found):
    """How many differences are told: a Block with all inside it is one, and so are its new numbers."""
    gone = {block.path for block in found.blocks if block.kind == "removed"}
    new = {block.path for block in found.blocks if block.kind == "added"}
    total = 0
    for block in found.blocks:
        around = block.path.rpartition(".")[0]
        if block.kind != "same":
            # A Dense holds its activation: with the other option it comes, goes or changes.
            total += around not in (gone if block.kind == "removed" else new) and not block.path.endswith(".act")
        else:
            changed = block.changes and not block.path.endswith(".act")
            numbers = [tensor for tensor in block.tensors if tensor.kind == "changed"]
            total += bool(block.move) + bool(changed or numbers)
    return total


@pytest.mark.parametrize("seed", range(100))
def test_random_edits_are_explained_by_no_more_differences(seed, tmp_path):
    """And what was not edited has equal numbers: no tensor of it is told."""
    chance = random.Random(seed)
    network = random_network(chance)
    one = network.built()
    one.hybridize(engine="numpy")
    one(nd.ones((2, WIDTH)))
    one.save(tmp_path / "a.hlab")
    edits = [most for _ in range(chance.randrange(1, 3)) if (most := edited(network, chance)) is not None]
    two = network.built()
    two.hybridize(engine="numpy")
    two(nd.ones((2, WIDTH)))
    found = mx.diff(tmp_path / "a.hlab", two)
    slack = 2 * (len(edits) > 1)  # two edits may meet in one place
    assert differences(found) <= sum(edits) + slack, str(found)
    assert bool(found) <= bool(edits)
    back = mx.diff(two, tmp_path / "a.hlab")
    assert differences(back) <= sum(edits) + slack + 1, str(back)


def test_thousands_of_blocks_are_matched():
    """A chain of 4,000 layers with two inserted: no layer beside them is told to differ."""
    chain = [dense() for _ in range(4000)]
    one = sequence(*chain)
    two = sequence(*chain[:10], nn.Dropout(0.5), *chain[10:3990], nn.Dropout(0.5), *chain[3990:])
    found = match_blocks(describe_tree(one), describe_tree(two))
    assert len(found.pairs) == 4001 and not found.removed and set(found.moves.values()) == {"renumbered"}
    assert found.pairs["9"] == "9" and found.pairs["10"] == "11" and found.pairs["3990"] == "3992"
