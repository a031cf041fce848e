"""`forward` and `__call__` of the user's around hybrid_forward: part of the graph, whatever class they are added to."""

import inspect
import subprocess
import sys
import types

import numpy as np
import pytest

from hybrid_lab import autograd, gluon, nd, onnx, sym
from hybrid_lab import random as mx_random
from hybrid_lab.diagnostics import HybridizeError, HybridLabError
from hybrid_lab.gluon import contrib, loss, nn, rnn
from hybrid_lab.gluon.data.vision import transforms
from hybrid_lab.ndarray import NDArray


def floats(*shape):
    return np.random.RandomState(sum(shape)).uniform(0.1, 0.9, shape).astype("float32")


def _symbol_block(kind):
    data = sym.var("data")
    return kind(sym.FullyConnected(data, num_hidden=3, name="fc"), data)


def _containing(kind, **settings):
    container = kind(**settings)
    container.add(nn.Dense(3), nn.Dense(3, activation="tanh"))
    return container


def _stack(kind):
    stack = kind()
    stack.add(rnn.LSTMCell(3))
    stack.add(rnn.LSTMCell(3))
    return stack


class _Step(rnn.HybridRecurrentCell):
    def state_info(self, batch_size=0):
        return [{"shape": (batch_size, 4), "__layout__": "NC"}]

    def hybrid_forward(self, F, x, states):
        return F.tanh(x + states[0]), [x * 2]


class _Plus(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x + 1


class _Error(loss.Loss):
    def hybrid_forward(self, F, pred, label):
        return F.mean(F.abs(pred - label), axis=1)


X2, X3, X4, X5 = floats(2, 4), floats(2, 3, 4), floats(2, 4, 6, 6), floats(2, 2, 4, 4, 4)
PAIR = (X2, floats(2, 4)[::-1].copy())
SIGNED = (X2, np.float32([[1, -1, 1, -1], [-1, 1, 1, 1]]))
STATE, STATES = [floats(2, 3)], [floats(2, 3), floats(2, 3) / 2]


def _images(rank, gates):
    """The arguments of a convolutional cell with one or two states."""
    shape = (2, 2, *(4,) * rank)
    return {"input_shape": shape[1:], "hidden_channels": 2, "i2h_kernel": 3, "h2h_kernel": 3, "i2h_pad": 1}, (
        floats(*shape), [floats(*shape) for _ in range(gates)],
    )  # fmt: skip


#: class -> (how an instance of a subclass is made, the arguments of a call)
CLASSES = {
    gluon.HybridBlock: (None, (X2,)),  # a class of the user's without any layer of Gluon's
    gluon.SymbolBlock: (_symbol_block, (X2,)),
    nn.Activation: ({"activation": "tanh"}, (X2,)),
    nn.Dense: ({"units": 3}, (X2,)),
    nn.Dropout: ({"rate": 0.5}, (X2,)),
    nn.Embedding: ({"input_dim": 9, "output_dim": 2}, (np.float32([[0, 1], [2, 3]]),)),
    nn.Flatten: ({}, (X3,)),
    nn.HybridLambda: ({"function": "tanh"}, (X2,)),
    nn.HybridSequential: (_containing, (X2,)),
    nn.ReflectionPad2D: ({"padding": 1}, (X4,)),
    nn.DepthwiseConv2D: ({"kernel_size": 3}, (X4,)),
    nn.SeparableConv2D: ({"channels": 2, "kernel_size": 3}, (X4,)),
    nn.LeakyReLU: ({"alpha": 0.1}, (X2,)),
    **{each: ({}, (X4,)) for each in (nn.BatchNorm, nn.BatchNormReLU, nn.GroupNorm, nn.InstanceNorm, nn.LayerNorm)},
    **{each: ({}, (X2,)) for each in (nn.ELU, nn.GELU, nn.PReLU, nn.SELU, nn.Swish, contrib.nn.Identity)},
    **{
        getattr(nn, f"{kind}{rank}D"): ({}, (data,))
        for kind in ("AvgPool", "MaxPool", "GlobalAvgPool", "GlobalMaxPool")
        for rank, data in ((1, X3), (2, X4), (3, X5))
    },
    **{
        getattr(nn, f"Conv{rank}D{kind}"): ({"channels": 2, "kernel_size": 2}, (data,))
        for kind in ("", "Transpose")
        for rank, data in ((1, X3), (2, X4), (3, X5))
    },
    contrib.nn.HybridConcurrent: (_containing, (X2,)),
    contrib.nn.SyncBatchNorm: ({}, (X4,)),
    contrib.nn.PixelShuffle1D: ({"factor": 2}, (X4[0],)),
    contrib.nn.PixelShuffle2D: ({"factor": 2}, (X4,)),
    contrib.nn.PixelShuffle3D: ({"factor": (1, 1, 2)}, (X5,)),
    contrib.cnn.DeformableConvolution: ({"channels": 2, "kernel_size": (3, 3)}, (X4,)),
    contrib.cnn.ModulatedDeformableConvolution: ({"channels": 2, "kernel_size": (3, 3)}, (X4,)),
    rnn.RNN: ({"hidden_size": 3}, (X3,)),
    rnn.GRU: ({"hidden_size": 3}, (X3, [floats(1, 3, 3)])),
    rnn.LSTM: ({"hidden_size": 3}, (X3, [floats(1, 3, 3), floats(1, 3, 3)])),
    rnn.RNNCell: ({"hidden_size": 3}, (X2, STATE)),
    rnn.GRUCell: ({"hidden_size": 3}, (X2, STATE)),
    rnn.LSTMCell: ({"hidden_size": 3}, (X2, STATES)),
    rnn.DropoutCell: ({"rate": 0.5}, (X2, [])),
    rnn.HybridRecurrentCell: (None, (X2, [floats(2, 4)])),
    rnn.HybridSequentialRNNCell: (_stack, (X2, STATES + STATES)),
    rnn.ResidualCell: (lambda kind: kind(rnn.LSTMCell(4)), (X2, [floats(2, 4), floats(2, 4)])),
    rnn.ZoneoutCell: (lambda kind: kind(rnn.LSTMCell(3), zoneout_states=0.3), (X2, STATES)),
    contrib.rnn.VariationalDropoutCell: (lambda kind: kind(rnn.LSTMCell(3), drop_inputs=0.3), (X2, STATES)),
    contrib.rnn.LSTMPCell: ({"hidden_size": 3, "projection_size": 2}, (X2, [floats(2, 2), floats(2, 3)])),
    **{
        getattr(contrib.rnn, f"Conv{rank}D{kind}Cell"): _images(rank, gates)
        for rank in (1, 2, 3)
        for kind, gates in (("RNN", 1), ("GRU", 1), ("LSTM", 2))
    },
    loss.Loss: (lambda kind: kind(None, 0), PAIR),
    loss.CTCLoss: ({}, (floats(2, 5, 4), np.float32([[1, 2], [2, 1]]))),
    loss.CosineEmbeddingLoss: ({}, (*PAIR, np.float32([1, -1]))),
    loss.SoftmaxCELoss: ({}, (X2, np.float32([1, 3]))),
    loss.TripletLoss: ({}, (*PAIR, floats(2, 4) / 2)),
    loss.SDMLLoss: ({}, PAIR),
    **{each: ({}, SIGNED) for each in (loss.HingeLoss, loss.SquaredHingeLoss, loss.LogisticLoss)},
    **{
        each: ({}, PAIR)
        for each in (
            loss.HuberLoss, loss.KLDivLoss, loss.L1Loss, loss.L2Loss, loss.PoissonNLLLoss, loss.SigmoidBCELoss,
        )
    },
    transforms.Cast: ({"dtype": "float64"}, (X2,)),
    transforms.CropResize: ({"x": 1, "y": 1, "width": 1, "height": 2}, (floats(4, 3, 3),)),
    transforms.Normalize: ({"mean": 0.2, "std": 0.5}, (floats(3, 4, 5),)),
    transforms.Resize: ({"size": 3}, (floats(4, 5, 3),)),
    transforms.ToTensor: ({}, (X3,)),
}  # fmt: skip
_BASES = {gluon.HybridBlock: _Plus, rnn.HybridRecurrentCell: _Step, loss.Loss: _Error}
#: They have no call of their own: abstract bases, and a cell that can only be unrolled.
WITHOUT_CALLS = {
    rnn.ModifierCell, rnn.BidirectionalCell, contrib.rnn.GatedCell, contrib.rnn.ElmanStep, contrib.rnn.GRUStep,
    contrib.rnn.LSTMStep, contrib.nn.SparseEmbedding,
}  # fmt: skip


def scaled(result, factor):
    """Every tensor of a result, times the factor."""
    if isinstance(result, (list, tuple)):
        return type(result)(scaled(each, factor) for each in result)
    return result * factor


def own_forward(base):
    class Own(base):
        def forward(self, x, *args):
            return scaled(super().forward(x + x, *args), 3)

    return Own


def own_call(base):
    class Own(base):
        def __call__(self, x, *args):
            return scaled(super().__call__(x + x, *args), 5)

    return Own


def both(base):
    return own_call(own_forward(base))


def mixins(base):
    class Forward:
        def forward(self, *args):
            return scaled(super().forward(*args), 2)

    class Call:
        def __call__(self, *args):
            return scaled(super().__call__(*args), 7)

    class Own(Call, Forward, base):
        pass

    return Own


def on_the_instance(base):
    class Own(base):
        def __init__(self, *args, **settings):
            super().__init__(*args, **settings)
            before = self.forward
            self.forward = types.MethodType(lambda block, *args: scaled(before(*args), 11), self)

    return Own


WAYS = [own_forward, own_call, both, mixins, on_the_instance]


class Parent(gluon.HybridBlock):
    def __init__(self, child):
        super().__init__()
        self.child = child

    def hybrid_forward(self, F, *args):
        return scaled(self.child(*args), 2)


class PlainParent(gluon.Block):
    def __init__(self, child):
        super().__init__()
        self.child = child

    def forward(self, *args):
        return scaled(self.child(*args), 2)


def make(kind, way):
    maker, args = CLASSES[kind]
    own = way(_BASES.get(kind, kind))
    block = own() if maker is None else own(**maker) if isinstance(maker, dict) else maker(own)
    mx_random.seed(3)
    block.initialize()
    return block, args


def arrays(args):
    return [[*map(nd.array, each)] if isinstance(each, list) else nd.array(each, dtype=each.dtype) for each in args]


def leaves_of(result):
    return [result] if isinstance(result, NDArray) else [leaf for each in result for leaf in leaves_of(each)]


def numbers(result):
    """The values of a result, flat."""
    return [leaf.asnumpy() for leaf in leaves_of(result)]


def assert_same(result, expected):
    assert len(result) == len(expected)
    for got, wanted in zip(result, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * (1 + np.abs(wanted).max(initial=0)))


def gradients(block, args):
    """The outputs of a recorded call and the gradients of the inputs and parameters."""
    inputs = arrays(args)
    inputs[0].attach_grad()
    mx_random.seed(5)
    with autograd.record():
        outputs = block(*inputs)
        head = nd.concat(*[(each.astype("float32") ** 2).sum() for each in leaves_of(outputs)], dim=0).sum()
    head.backward()
    trained = [each for each in block.collect_params().values() if each.grad_req != "null"]
    return numbers(outputs) + [inputs[0].grad.asnumpy()] + [each.grad().asnumpy() for each in trained]


each_class = pytest.mark.parametrize(
    "kind", CLASSES, ids=lambda kind: f"{kind.__module__.split('.')[-1]}.{kind.__name__}"
)
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


def test_the_table_has_every_public_class():
    rooms = (gluon, nn, rnn, loss, contrib.nn, contrib.rnn, contrib.cnn, transforms)
    found = {
        item
        for room in rooms
        for name, item in vars(room).items()
        if inspect.isclass(item) and issubclass(item, gluon.HybridBlock) and not name.startswith("_")
    }
    assert found - WITHOUT_CALLS == {*CLASSES}


@pytest.mark.each_value
@each_way
@each_class
def test_own_code_is_in_the_graph(kind, way, tmp_path):
    block, args = make(kind, way)
    expected = numbers(block(*arrays(args)))
    plain = numbers(make(kind, lambda base: base)[0](*arrays(args)))
    assert any(not np.array_equal(one, other) for one, other in zip(plain, expected, strict=True))
    block.hybridize()
    assert_same(numbers(block(*arrays(args))), expected)
    if kind is contrib.rnn.VariationalDropoutCell:  # its masks are kept from call to call: it runs eagerly
        assert not block._graph_calls.programs
        return
    assert len(block._graph_calls.programs) == 1
    block.save(tmp_path / "own.hlab")
    assert_same(numbers(gluon.load(tmp_path / "own.hlab")(*arrays(args))), expected)
    recorded = gradients(make(kind, way)[0], args)
    block = make(kind, way)[0]
    block.hybridize()
    assert_same(gradients(block, args), recorded)
    if way in (own_forward, on_the_instance):  # `both` and `mixins` have a `__call__` besides
        return
    twice = [2 * each for each in expected]
    for parent in Parent(make(kind, way)[0]), PlainParent(make(kind, way)[0]):
        parent.hybridize()
        assert_same(numbers(parent(*arrays(args))), twice)
        parent.save(tmp_path / f"{type(parent).__name__}.hlab")
        loaded = gluon.load(tmp_path / f"{type(parent).__name__}.hlab")
        alone = isinstance(parent, PlainParent)
        assert_same(numbers((loaded.child if alone else loaded)(*arrays(args))), expected if alone else twice)


# -- what own code may do ----------------------------------------------------------------------------------------------


DATA = np.float32([[1, 2], [3, 4]])


class Plus(gluon.HybridBlock):
    def hybrid_forward(self, F, x, *more):
        return sum(more, x + 1)


class Halves(Plus):
    def __call__(self, x):
        return super().__call__(x / 2) * 10


class WidensForward(nn.Dense):
    def forward(self, x):
        return super().forward(nd.concat(x, x, dim=1))


class WidensCall(nn.Dense):
    def __call__(self, x):
        return super().__call__(nd.concat(x, x, dim=1))


class WidensPlainForward(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.weight = self.params.get("weight", shape=(0, 3), init="ones", allow_deferred_init=True)

    def __call__(self, x):
        return super().__call__(nd.concat(x, x, dim=1))

    def forward(self, x):
        return nd.dot(x, self.weight.data())


class TakesDicts(Plus):
    def forward(self, outputs, labels):
        return super().forward(outputs["logits"], labels[0])


class TakesMore(Plus):
    def forward(self, x, way="a", options=None):
        return super().forward(x) * (2 if way == "a" else options["factor"])


class PassesAll(TakesMore):
    def __call__(self, *args, **keywords):
        return super().__call__(*args, **keywords)


class ReadsShape(Plus):
    def forward(self, x):
        return super().forward(x, nd.arange(x.shape[1]))


class OptionalStates(Plus):
    def forward(self, x, states=None):
        if states is None:
            states = [nd.zeros_like(x)]
        return super().forward(x, *states), states


class Keywords(Plus):
    def __call__(self, x, scale=2, shift=0):
        return super().__call__(x * scale) + shift


class Recursive(Plus):
    def __call__(self, x, depth=2):
        return Recursive.__call__(self, x * 2, depth - 1) if depth else super().__call__(x)


class OfThree(Recursive):
    def __call__(self, x):
        return super().__call__(x, 1) * 3


class Paused(Plus):
    def forward(self, x):
        with autograd.pause():
            y = super().forward(x)
        return y * x


class AroundPlainForward(gluon.HybridBlock):
    def __call__(self, x):
        return super().__call__(x * 2)

    def forward(self, x):
        return x + 1


class PlainMixin(gluon.Block):
    def forward(self, x):
        return super().forward(x * 4)


class BehindAPlainBlock(PlainMixin, Plus):
    pass


TRACED = [
    (lambda: WidensForward(3), DATA), (lambda: WidensCall(3), DATA), (WidensPlainForward, DATA),
    (TakesDicts, {"logits": DATA}, [DATA, DATA]), (TakesMore, DATA, "b", {"factor": 5}), (PassesAll, DATA, "a"),
    (ReadsShape, DATA), (OptionalStates, DATA), (OptionalStates, DATA, [DATA]), (Keywords, DATA, 3), (Recursive, DATA),
    (OfThree, DATA), (Paused, DATA), (AroundPlainForward, DATA), (Halves, DATA), (BehindAPlainBlock, DATA),
]  # fmt: skip


def given(item):
    if isinstance(item, dict):
        return {key: given(part) for key, part in item.items()}
    if isinstance(item, list):
        return [given(part) for part in item]
    return nd.array(item) if isinstance(item, np.ndarray) else item


@pytest.mark.parametrize("make, args", [(make, args) for make, *args in TRACED])
def test_own_code_of_any_kind_is_traced(make, args, tmp_path):
    block = make()
    block.initialize(init="ones")
    expected = numbers(block(*given(args)))
    again = make()
    again.initialize(init="ones")
    again.hybridize()
    assert_same(numbers(again(*given(args))), expected)
    assert len(again._graph_calls.programs) == 1
    again.save(tmp_path / "own.hlab")
    loaded = gluon.load(tmp_path / "own.hlab")
    assert_same(numbers(loaded(*given(args))), expected)
    again.load(tmp_path / "own.hlab")
    assert_same(numbers(again(*given(args))), expected)
    again.load(tmp_path / "own.hlab", graphs="file")
    assert_same(numbers(again(*given(args))), expected)
    again.hybridize(False)
    assert_same(numbers(again(*given(args))), expected)


@pytest.mark.parametrize("keywords", [{"scale": 5}, {"shift": 3}, {"scale": 5, "shift": 3}, {"shift": 1, "scale": 2}])
def test_a_call_takes_keywords_in_graphs(keywords):
    block = Keywords()
    expected = block(nd.array(DATA), **keywords).asnumpy()
    block.hybridize()
    assert_same([block(nd.array(DATA), **keywords).asnumpy()], [expected])
    assert len(block._graph_calls.programs) == 1
    with pytest.raises(TypeError, match="nonsense"):
        block(nd.array(DATA), nonsense=1)
    with pytest.raises(TypeError, match="scale"):
        block(nd.array(DATA), 1, scale=1)


class ReadsNumbers(nn.Dense):
    def forward(self, x):
        return super().forward(x / float(x.asnumpy().max()))


class ReadsNumbersInCalls(nn.Dense):
    def __call__(self, x):
        return super().__call__(x / float(x.asnumpy().max()))


class Branches(nn.Dense):
    def forward(self, x):
        return super().forward(x * 2 if x.sum() > 3 else x)


class KeepsTensors(nn.Dense):
    def __call__(self, x):
        self.last = super().__call__(x)
        return self.last * 2


class KeywordsAlone(nn.Dense):
    def __call__(self, x, *, scale=1):
        return super().__call__(x * scale)


EAGER = [
    (ReadsNumbers, {}, "HL111"), (ReadsNumbersInCalls, {}, "HL111"), (Branches, {}, "HL121"),
    (KeepsTensors, {}, "HL173"), (KeywordsAlone, {"scale": 3}, "scale by keyword alone"),
]  # fmt: skip


@pytest.mark.parametrize("kind, keywords, said", EAGER)
def test_own_code_that_no_graph_can_run_runs_eagerly(kind, keywords, said, caplog, tmp_path):
    """As in MXNet, where it is Python around the graph. No file holds a graph without it."""
    block = kind(3)
    block.initialize(init="ones")
    expected = block(nd.array(DATA), **keywords).asnumpy()
    block.hybridize()
    assert_same([block(nd.array(DATA), **keywords).asnumpy()], [expected])
    assert said in caplog.text
    assert not block._graph_calls.programs
    block.save(tmp_path / "own.hlab")
    loaded = gluon.load(tmp_path / "own.hlab")
    if kind is not KeywordsAlone:  # without the keyword there is a graph
        with pytest.raises(HybridLabError, match="class"):
            loaded(nd.array(DATA))
    if kind not in (KeywordsAlone, KeepsTensors):
        parent = Parent(block)
        parent.hybridize()
        assert_same([parent(nd.array(DATA)).asnumpy()], [2 * expected])
    block.hybridize(strict=True)
    with pytest.raises(HybridLabError, match=said):
        block(nd.array(DATA), **keywords)


def test_own_code_may_take_what_no_graph_takes(caplog):
    class Takes(nn.Dense):
        def __call__(self, x):
            return super().__call__(nd.array(x) if isinstance(x, np.ndarray) else x)

    class Unpacks(nn.Dense):
        def forward(self, batch):
            return super().forward(batch.data)

    for block, argument in (Takes(3), DATA), (Unpacks(3), types.SimpleNamespace(data=nd.array(DATA))):
        block.initialize()
        expected = block(argument).asnumpy()
        block.hybridize()
        assert_same([block(argument).asnumpy()], [expected])


def test_a_fault_of_hybrid_forward_stays_an_error():
    class Reads(gluon.HybridBlock):
        def forward(self, x):
            return super().forward(x * 2)

        def hybrid_forward(self, F, x):
            return x * float(x.asnumpy().max())

    block = Reads()
    block.hybridize()
    with pytest.raises(HybridizeError, match="HL111"):
        block(nd.array(DATA))


@pytest.mark.parametrize("name", ["forward", "hybrid_forward"])
def test_code_may_be_set_on_an_instance_at_any_time(name, tmp_path):
    block, x = Plus(), nd.array(DATA)
    block.hybridize()
    before = block(x).asnumpy()
    setattr(block, name, lambda *args: args[-1] * 100)
    assert_same([block(x).asnumpy()], [DATA * 100])
    block.save(tmp_path / "own.hlab")
    assert_same([gluon.load(tmp_path / "own.hlab")(x).asnumpy()], [DATA * 100])
    delattr(block, name)
    assert_same([block(x).asnumpy()], [before])
    dense = nn.Dense(2, in_units=2)
    dense.initialize()
    setattr(dense, name, lambda *args, **params: args[-1] * 100)
    dense.hybridize()
    dense(x)
    dense.save(tmp_path / "dense.hlab")
    assert_same([gluon.load(tmp_path / "dense.hlab")(x).asnumpy()], [DATA * 100])


def test_a_call_that_a_class_gets_later_counts_from_hybridize_on():
    class Late(Plus):
        pass

    block = Late()
    Late.__call__ = lambda self, x: gluon.HybridBlock.__call__(self, x) * 7
    assert_same([block(nd.array(DATA)).asnumpy()], [(DATA + 1) * 7])
    block.hybridize()
    assert_same([block(nd.array(DATA)).asnumpy()], [(DATA + 1) * 7])
    assert len(block._graphs.first().graph.operators) == 2


def test_hooks_see_what_a_call_gets_and_returns():
    for hybrid in (False, True):
        block, seen = Halves(), []
        block.hybridize(hybrid)
        block.register_forward_pre_hook(lambda block, args: seen.append(args[0].asnumpy()))  # noqa: B023
        block.register_forward_hook(lambda block, args, result: seen.append(result.asnumpy()))  # noqa: B023
        block(nd.array(DATA))
        assert_same(seen, [DATA, (DATA / 2 + 1) * 10])


def test_symbols_exports_and_onnx_files_have_own_code(tmp_path):
    block, x, expected = Halves(), nd.array(DATA), (DATA / 2 + 1) * 10
    assert_same([block(sym.var("data")).eval(data=x)[0].asnumpy()], [expected])
    block.hybridize()
    block(x)
    block.export(str(tmp_path / "own"))
    imported = gluon.SymbolBlock.imports(str(tmp_path / "own-symbol.json"), ["data"], None)
    assert_same([imported(x).asnumpy()], [expected])
    onnx.export(block, tmp_path / "own.onnx", inputs=x)
    assert_same([onnx.imports(tmp_path / "own.onnx")(x).asnumpy()], [expected])


def test_a_method_of_the_class_reaches_the_inner_call():
    class Both(Plus):
        def __call__(self, x):
            return super().__call__(x) * 2

        def inner(self, x):
            return super().__call__(x)

    block = Both()
    for hybrid in (False, True):
        block.hybridize(hybrid)
        assert_same([block(nd.array(DATA)).asnumpy()], [(DATA + 1) * 2])
        assert_same([block.inner(nd.array(DATA)).asnumpy()], [DATA + 1])


#: Names that a user's class may well have, as methods and as attributes: MXNet's Blocks have none of them.
NAMES = [
    "_call", "_calls", "_code", "_collect", "_compose", "_entry", "_enter", "_eval", "_forward", "_graph", "_hooks",
    "_inner", "_inputs", "_inside", "_layers", "_model", "_net", "_nodes", "_outputs", "_predict", "_program",
    "_run", "_shape", "_shapes", "_state", "_states", "_step", "_style", "_tensors", "_trace", "_train", "_type",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("base", [Halves, nn.HybridSequential, rnn.LSTM])
def test_a_class_may_use_names_that_mxnet_does_not(base, name, tmp_path):
    """A method of the class is not taken for one of HybridBlock's own, nor an attribute."""

    def method(self, *args, **keywords):
        raise AssertionError(f"{name} was called")

    for way in (lambda kind: setattr(kind, name, method), lambda kind: None):
        kind = type("Users", (base,), {})
        way(kind)
        args = [nd.array(X3)] if base is rnn.LSTM else [nd.array(X2)] * (2 if base is loss.L2Loss else 1)
        make = {nn.Dense: lambda kind: kind(3), rnn.LSTM: lambda kind: kind(3)}.get(base, lambda kind: kind())
        mx_random.seed(3)
        wanted = make(base)
        wanted.initialize()
        mx_random.seed(3)
        block = make(kind)
        if not hasattr(kind, name):
            setattr(block, name, 5)
        block.initialize()
        expected = numbers(wanted(*args))
        assert_same(numbers(block(*args)), expected)
        block.hybridize()
        assert_same(numbers(block(*args)), expected)
        block.save(tmp_path / "named.hlab")
        assert_same(numbers(gluon.load(tmp_path / "named.hlab")(*args)), expected)


def test_an_archive_opens_in_a_process_without_the_code(tmp_path):
    block = Halves()
    block.hybridize()
    expected = block(nd.array(DATA)).asnumpy()
    block.save(tmp_path / "own.hlab")
    text = (
        "import sys; from hybrid_lab import gluon, nd; net = gluon.load(sys.argv[1]); net.hybridize(); "
        "print(net(nd.array([[1, 2], [3, 4]])).asnumpy().tolist())"
    )
    command = [sys.executable, "-c", text, str(tmp_path / "own.hlab")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == str(expected.tolist())
