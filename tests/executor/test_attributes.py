"""Names and attributes that Symbols get from scopes, and pickled Symbols."""

import pickle
import threading

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.diagnostics.errors import AttributeSpecError


def test_a_scope_gives_its_attributes_to_all_that_is_composed_inside():
    with mx.AttrScope(ctx_group="first", __mood__="calm"):
        data = mx.sym.var("data", attr={"__mood__": "angry"})
        with mx.AttrScope(ctx_group="second"):
            out = mx.sym.FullyConnected(data, num_hidden=3, name="fc")
    assert data.attr("ctx_group") == data.attr("__ctx_group__") == "first"
    assert data.attr("__mood__") == "angry"
    attributes = out.attr_dict()
    assert attributes["fc"]["num_hidden"] == "3"
    assert all(attributes[name]["ctx_group"] == "second" for name in ("fc", "fc_weight", "fc_bias"))
    assert all(attributes[name]["__mood__"] == "calm" for name in ("fc", "fc_weight", "fc_bias"))
    assert mx.sym.var("other").list_attr() == {}


def test_attributes_in_a_call_are_those_of_its_variables_too():
    out = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc", lr_mult=2, attr={"__layout__": "NC"})
    assert out.attr("lr_mult") == "2" and out.attr("__layout__") == "NC"
    assert out.attr_dict()["fc_weight"]["__lr_mult__"] == "2"
    with pytest.raises(AttributeSpecError, match="colour"):
        mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, attr={"colour": "red"})
    with pytest.raises(AttributeSpecError, match="string"):
        mx.AttrScope(colour=1)


def test_attributes_are_in_the_file():
    out = mx.sym.relu(mx.sym.var("data", lr_mult=3), __layout__="NC")
    loaded = mx.sym.load_json(out.tojson())
    assert loaded.attr_dict() == out.attr_dict()


def test_prefixes():
    with mx.name.Prefix("net_"):
        assert mx.sym.relu(mx.sym.var("x"), name="fc").name == "net_fc"
        assert mx.sym.relu(mx.sym.var("x")).name == "net_relu0"
    with mx.name.NameManager():
        assert mx.sym.relu(mx.sym.var("x")).name == "relu0"


def test_scopes_belong_to_one_thread():
    seen = []

    def look():
        seen.append((mx.AttrScope.current.get(None), mx.sym.relu(mx.sym.var("x")).name))

    with mx.AttrScope(__mood__="calm"), mx.name.Prefix("net_"):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert mx.AttrScope.current.get({}) == {"__mood__": "calm"}
    assert seen == [({}, "relu0")]


def test_the_current_scope_can_be_replaced():
    before = mx.name.NameManager.current
    try:
        mx.name.NameManager.current = mx.name.NameManager()
        assert mx.name.NameManager.current.get(None, "fc") == "fc0"
    finally:
        mx.name.NameManager.current = before


def test_a_pickled_symbol_is_the_same_graph():
    data = mx.sym.var("data", attr={"__mood__": "angry"}, shape=(2, 0))
    out = mx.sym.Group([mx.sym.FullyConnected(data, num_hidden=3, name="fc"), mx.sym.Dropout(data, p=0.5)])
    loaded = pickle.loads(pickle.dumps(out))
    assert loaded.tojson() == out.tojson()
    assert loaded.list_outputs() == out.list_outputs()
    values = mx.sym.array(np.array([np.nan, 1.0], "float32")) + mx.sym.var("x")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(values)).eval(x=mx.nd.ones(2))[0].asnumpy(), [np.nan, 2])


def test_the_shape_of_a_variable_may_be_one_size():
    variable = mx.sym.var("bias", shape=3)
    assert variable.attr("__shape__") == "(3,)"
    assert variable.infer_shape()[1] == [(3,)]


def test_nodes_are_named_after_the_function_that_was_called():
    """As MXNet 1.9.1 names them, without the numbers: also where a record has another name than the function."""
    sym = mx.sym
    x, y = sym.var("x"), sym.var("y")
    names = {
        "flip": sym.flip(x, axis=0),
        "reverse": sym.reverse(x, axis=0),
        "stop_gradient": sym.stop_gradient(x),
        "slicechannel": sym.SliceChannel(x, num_outputs=2),
        "split": x.split(num_outputs=2),
        "elemwise_add": sym.elemwise_add(x, y),
        "elementwisesum": sym.ElementWiseSum(x, y),
        "swapaxes": x.swapaxes(dim1=0, dim2=1),
        "sum_axis": sym.sum_axis(x),
        "_maximum": sym.maximum(x, y),
        "box_nms": sym.contrib.box_nms(x),
        "multiboxprior": sym.contrib.MultiBoxPrior(x),
        "syrk": sym.linalg.syrk(x),
        "normalize": sym.image.normalize(x),
        "_random_uniform": sym.random.uniform(shape=(2,)),
        "uniform": sym.uniform(shape=(2,)),
    }
    for name, symbol in names.items():
        assert symbol.name.rstrip("0123456789") == name
    offsets = sym.var("offsets")
    layer = sym.contrib.DeformableConvolution(x, offsets, kernel=(1, 1), num_filter=1)
    assert layer.list_arguments()[2].startswith("deformableconvolution")
