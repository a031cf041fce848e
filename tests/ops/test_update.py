"""Update operators change weights and states in place, and a new rate is neither a new operator nor a new program."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import engines, nd, ops, sym
from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, ShapeError
from hybrid_lab.graph import Graph, input_node
from hybrid_lab.graph.builder import Builder


def arrays(count: int, shape: tuple[int, ...] = (3, 4)) -> list[nd.NDArray]:
    generator = np.random.RandomState(count)
    return [nd.array(generator.uniform(0.1, 1.0, shape)) for _ in range(count)]


def test_the_weight_and_the_state_change_in_place():
    w, g, m = arrays(3)
    before, momentum = w.asnumpy(), m.asnumpy()
    result = nd.sgd_mom_update(w, g, m, lr=0.1, momentum=0.9, wd=0.01, out=w)
    assert result is w
    expected = 0.9 * momentum - 0.1 * (g.asnumpy() + 0.01 * before)
    np.testing.assert_allclose(m.asnumpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(w.asnumpy(), before + expected, rtol=1e-5)


def test_without_out_the_weight_stays_and_the_state_changes():
    w, g, mean, var = arrays(4)
    before, old = w.asnumpy(), mean.asnumpy()
    new = nd.adam_update(w, g, mean, var, lr=0.1)
    np.testing.assert_array_equal(w.asnumpy(), before)
    assert not np.allclose(mean.asnumpy(), old)
    assert not np.allclose(new.asnumpy(), before)


def test_several_weights():
    w0, g0, m0, w1, g1, m1 = arrays(6)
    single = ((w0, g0, m0, 0.1), (w1, g1, m1, 0.2))
    expected = [nd.sgd_mom_update(w, g, m.copy(), lr=lr, momentum=0.9) for w, g, m, lr in single]
    nd.multi_sgd_mom_update(
        w0, g0, m0, w1, g1, m1, lrs=(0.1, 0.2), wds=(0, 0), momentum=0.9, num_weights=2, out=[w0, w1]
    )
    for found, wanted in zip((w0, w1), expected, strict=True):
        np.testing.assert_array_equal(found.asnumpy(), wanted.asnumpy())


def test_a_number_and_an_array_of_one_element_are_the_same():
    w, g = arrays(2)
    plain = nd.sgd_update(w, g, lr=0.25, wd=0.5)
    loaded = nd.sgd_update(w, g, lr=nd.array([0.25]), wd=nd.array([0.5]))
    np.testing.assert_array_equal(plain.asnumpy(), loaded.asnumpy())


def test_a_new_rate_is_the_same_operator():
    w, g = arrays(2)
    nd.sgd_update(w, g, lr=0.1)
    count = len(ops.get("sgd_update")._interned)
    for step in range(20):
        nd.sgd_update(w, g, lr=0.1 / (step + 2))
    assert len(ops.get("sgd_update")._interned) == count


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("lowered", [False, True])
def test_a_compiled_update_takes_the_rate_as_an_input(engine: str, lowered: bool):
    names = ("weight", "grad", "mean", "var", "lr", "wd", "rescale_grad")
    given = [input_node(name, shape=(3, 4) if i < 4 else (1,), dtype="float32") for i, name in enumerate(names)]
    op, builder = ops.get("adam_update").bind(clip_gradient=0.5), Builder()
    if lowered:
        made = [item.value for item in op.lower(builder, *map(builder.expr, given))]
    else:
        made = builder.append(op, given)
    graph = Graph(given, [], list(zip((given[0], given[2], given[3]), made, strict=True)))
    program = engines.get(engine).compile(graph)
    values = [item.asnumpy() for item in arrays(4)]
    for rate in (0.1, 0.01):
        numbers = [np.array([number], np.float32) for number in (rate, 0.01, 0.5)]
        expected = op.numpy(*values, rate, 0.01, 0.5)
        for found, wanted in zip(program([*values, *numbers], (0, 0)), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_large_weights_are_updated_piece_by_piece():
    w, g = arrays(2, (300, 211))
    found = nd.sgd_update(w, g, lr=0.1, wd=0.5).asnumpy()
    np.testing.assert_allclose(found, w.asnumpy() - 0.1 * (g.asnumpy() + 0.5 * w.asnumpy()), rtol=1e-5)


@pytest.mark.parametrize("name", ["adam_update", "rmsprop_update", "ftml_update"])
def test_float16_weights_take_steps_of_gradients_whose_squares_it_has_not(name: str):
    record, numbers = ops.get(name), {"lr": 0.01, "t": 1, "wd": 0.0, "rescale_grad": 1.0}
    op = record.bind()
    data = [np.full(4, 0.5, "float16"), np.array([1e-4, -1e-4, 6e-8, 0.0], "float16")]
    given = [*data, *(np.zeros(4, "float16") for _ in op.signature.aux), *(numbers[key] for key in record.scalars)]
    found = op.numpy(*given)
    wide = op.numpy(*(item.astype("float32") if isinstance(item, np.ndarray) else item for item in given))
    for one, other in zip(found, wide, strict=True):
        assert one.dtype == np.float16 and np.isfinite(one).all()
        np.testing.assert_array_equal(one, other.astype("float16"))


def test_group_adagrad_has_one_rate_per_row():
    w, g = arrays(2)
    history = nd.ones((3, 1))
    before = w.asnumpy()
    nd.contrib.group_adagrad_update(w, g, history, lr=0.1, rescale_grad=2.0, epsilon=0.0, out=w)
    squares = 1 + np.square(2 * g.asnumpy()).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(history.asnumpy(), squares, rtol=1e-5)
    np.testing.assert_allclose(w.asnumpy(), before - 0.2 * g.asnumpy() / np.sqrt(squares), rtol=1e-5)
    with pytest.raises(ShapeError, match=r"\(3, 4\), \(3, 4\) and \(4,\); \(n, m\), \(n, m\) and \(n, 1\) are needed"):
        nd.contrib.group_adagrad_update(w, g, nd.ones(4), lr=0.1)


def test_an_overflow_in_mixed_precision_changes_nothing():
    w, g, mean, var = arrays(4)
    before = [item.asnumpy() for item in (w, mean, var)]
    nd.contrib.adamw_update(w, g, mean, var, nd.array([np.inf]), lr=0.1, eta=1.0, out=w)
    for item, old in zip((w, mean, var), before, strict=True):
        np.testing.assert_array_equal(item.asnumpy(), old)


def test_states_are_auxiliary_in_a_symbol_and_numbers_survive_its_file():
    update = sym.sgd_mom_update(sym.var("w"), sym.var("g"), lr=0.125, momentum=0.5, name="step")
    assert update.list_auxiliary_states() == ["step_mom"]
    text = update.tojson()
    assert '"lr": "0.125"' in text
    node = sym.load_json(text).outputs[0].node
    assert node.inputs[3:] == (0.125, 0.0, 1.0) and node.op.momentum == 0.5


REFUSED = [
    (lambda w, g: nd.sgd_update(w, g), AttributeSpecError, "sgd_update: the attribute lr is missing"),
    (lambda w, g: nd.sgd_update(w, g, lr=0.1, wdd=0.1), AttributeSpecError, "unknown attribute wdd; did you mean wd"),
    (lambda w, g: nd.sgd_update(w, g, lr="fast"), AttributeSpecError, "sgd_update: attribute lr='fast'"),
    (lambda w, g: nd.sgd_update(w, nd.ones(3), lr=0.1), ShapeError, r"grad has shape \(3,\), the weight \(3, 4\)"),
    (lambda w, g: nd.sgd_update(w, g, lr=nd.ones(2)), ShapeError, r"lr has shape \(2,\); a number or an array"),
    (lambda w, g: nd.mp_sgd_update(w, g, w.astype("float64"), lr=0.1), DTypeError, "weight32 is float64, float32"),
    (
        lambda w, g: nd.multi_sgd_update(w, g, lrs=(0.1, 0.2), wds=(0,), num_weights=1),
        AttributeSpecError,
        "2 lrs and 1 wds for num_weights=1",
    ),
    (lambda w, g: nd.multi_sgd_update(w, g, w, lrs=0.1, wds=0), ShapeError, "3 inputs; num_weights=1 needs 2"),
]


@pytest.mark.parametrize(("call", "error", "text"), REFUSED)
def test_what_does_not_fit(call, error, text):
    with pytest.raises(error, match=text):
        call(*arrays(2))
