"""Parameters that a distribution does not have are refused where the operator is bound: alike on arrays, on Symbols, in
hybridized blocks and by initializers.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import init, nd, sym
from hybrid_lab.diagnostics.errors import AttributeSpecError, HybridLabError, ShapeError
from hybrid_lab.gluon import HybridBlock
from hybrid_lab.ops.framework.attributes import Shape
from tests.ops.cases import RECORDS

#: Attributes of random records -> values that they do not take.
WRONG = {
    **dict.fromkeys(("scale", "lam", "mu", "alpha", "beta", "sigma"), (-1.0, math.nan)),
    **dict.fromkeys(("min_factor", "max_factor", "alpha_std"), (-1.0, math.nan)),
    **dict.fromkeys(("brightness", "contrast", "saturation", "hue"), (-1.0, math.nan)),
    "p": (-0.5, 1.5, math.nan),
    "k": (-1, 0),
    "high": (-7.0,),
    "low": (1e9,),
}
#: Parameters of random records that any number may be.
ANY = {"loc", "axes", "mode", "shape", "dtype", "get_prob", "act_type", "slope", "state_size", "num_layers"}

DRAWING = [
    record
    for record in RECORDS
    if record.random and record.mxnet and record.fields and record.name not in ("RNN", "LeakyReLU")
]
BINDINGS = [
    (record, name, value)
    for record in DRAWING
    for name in record.fields
    if name not in ANY and not name.startswith("_")
    for value in WRONG[name]
    if not (isinstance(value, float) and not value.is_integer() and "int" in str(record.fields[name].annotation))
]


@pytest.mark.parametrize(("record", "name", "value"), BINDINGS, ids=lambda item: getattr(item, "name", str(item)))
def test_every_random_record_refuses_wrong_parameters(record, name, value):
    given = {key: field.default for key, field in record.fields.items() if not field.required and key[0] != "_"}
    given |= record.samples[0].attributes if any(field.required for field in record.fields.values()) else {}
    given |= {"low": -3, "high": 5} if record.name == "random_randint" else {}
    record.bind(**given)
    with pytest.raises(AttributeSpecError, match=name):
        record.bind(**{**given, name: value})


@pytest.mark.parametrize("record", [r for r in RECORDS if r.fields.get("shape") and not r.input_names])
def test_no_array_has_a_negative_size(record):
    needed = {"low": 0, "high": 3, "value": 1}
    needed = {name: value for name, value in needed.items() if name in record.fields}
    assert record.fields["shape"].annotation in (Shape, "Shape")
    with pytest.raises(ShapeError, match="cannot have negative sizes"):
        mx.ndarray.invoke.invoke(record.bind(shape=(2, -1), **needed), ())


WRONG_CALLS = {
    "normal": {"scale": -1},
    "uniform": {"low": 1, "high": 0},
    "exponential": {"scale": 0},
    "poisson": {"lam": -1},
    "gamma": {"alpha": 0},
    "negative_binomial": {"k": 1, "p": 2},
    "generalized_negative_binomial": {"mu": 1, "alpha": -1},
}


class Drawing(HybridBlock):
    def __init__(self, name):
        super().__init__()
        self.kind = name

    def hybrid_forward(self, F, x):
        return x + getattr(F.random, self.kind)(**WRONG_CALLS[self.kind], shape=(3,))


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_arrays_symbols_and_blocks_refuse_alike(name):
    messages = []
    eager, hybrid = Drawing(name), Drawing(name)
    hybrid.hybridize(engine="numpy")
    for call in (
        lambda: getattr(nd.random, name)(**WRONG_CALLS[name], shape=(3,)),
        lambda: getattr(sym.random, name)(**WRONG_CALLS[name], shape=(3,)),
        lambda: eager(nd.zeros(3)),
        lambda: hybrid(nd.zeros(3)),
    ):
        with pytest.raises(AttributeSpecError, match="is needed") as caught:
            call()
        messages.append(str(caught.value))
    assert len(set(messages)) == 1


def test_initializers_and_arrays_of_parameters():
    for make in (lambda: init.Normal(-1), lambda: init.Uniform(math.nan), lambda: init.Xavier(magnitude=-3)):
        with pytest.raises(AttributeSpecError, match="of at least 0"):
            make()
    with pytest.raises(HybridLabError, match="lam >= 0"):
        nd.random.poisson(nd.array([1, -1]))
    with pytest.raises(HybridLabError, match="probabilities"):
        nd.random.multinomial(nd.array([-1.0, 2.0]))
    assert np.array_equal(nd.random.normal(3, 0, shape=(2,)).asnumpy(), [3, 3])


def test_zipfian_classes():
    mx.random.seed(1)
    true_classes = mx.nd.array([0, 3], dtype="int32")
    classes, true_counts, counts = mx.nd.contrib.rand_zipfian(true_classes, 4000, 10)
    drawn = classes.asnumpy()
    assert drawn.dtype == np.int64 and drawn.min() == 0 and drawn.max() == 9
    expected = 4000 * np.log((np.arange(10) + 2) / (np.arange(10) + 1)) / np.log(11)
    np.testing.assert_allclose(true_counts.asnumpy(), expected[[0, 3]], rtol=1e-6)
    np.testing.assert_allclose(counts.asnumpy(), expected[drawn], rtol=1e-6)
    np.testing.assert_allclose(np.bincount(drawn), expected, rtol=0.3)
    with pytest.raises(AttributeSpecError, match="must be at least 1"):
        mx.nd.contrib.rand_zipfian(true_classes, 0, 10)


def test_zipfian_classes_in_a_graph():
    group = mx.sym.Group(list(mx.sym.contrib.rand_zipfian(mx.sym.var("x"), 5, 10)))
    executor = group.bind(mx.cpu(), {"x": mx.nd.array([0, 3], dtype="int32")})
    assert [output.shape for output in executor.forward()] == [(5,), (2,), (5,)]
