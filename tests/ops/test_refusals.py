"""Wrong shapes, dtypes and attributes are typed errors that name the operator and what does not fit."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, HybridLabError, RecordError, ShapeError
from hybrid_lab.gluon import nn
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ops import F, get, records
from hybrid_lab.ops.framework.run import infer
from tests.ops.cases import each_sample

SHAPES = [
    ("broadcast_add", {}, [(2, 3), (2, 4)], "broadcast_add: the shapes (2, 3) and (2, 4) do not broadcast"),
    ("dot", {}, [(2, 3), (2, 4)], "dot: the summed axes of (2, 3) and (2, 4) differ (3 and 2)"),
    ("dot", {"transpose_b": True}, [(2, 3), (2, 4)], "transpose_b=True"),
    ("batch_dot", {}, [(2, 3), (3, 4)], "three or more dimensions"),
    ("FullyConnected", {"num_hidden": 5}, [(2, 3), (5, 4), (5,)], "needs a weight of shape (5, 3), it has (5, 4)"),
    ("FullyConnected", {"num_hidden": 5}, [(2, 3), (5, 3), (4,)], "the bias has shape (4,)"),
    ("Convolution", {"kernel": (3, 3), "num_filter": 2}, [(1, 3, 9), (2, 3, 3, 3), (2,)], "needs 4 dimensions (NCHW)"),
    ("Convolution", {"kernel": (3, 3), "num_filter": 2}, [(1, 3, 2, 2), (2, 3, 3, 3), (2,)], "does not fit into data"),
    (
        "Convolution",
        {"kernel": (3,), "num_filter": 4, "num_group": 2},
        [(1, 3, 9), (4, 1, 3), (4,)],
        "3 channels cannot",
    ),
    ("Pooling", {"kernel": (3, 3)}, [(1, 1, 2, 2)], "does not fit into (2, 2)"),
    ("BatchNorm", {}, [(2, 3), (4,), (3,), (3,), (3,)], "gamma has shape (4,); data (2, 3) needs (3,)"),
    ("_batch_norm_grad", {}, [(2, 3), (2, 3), (3,), (1,), (3,)], "vectors (3,), (1,) and (3,)"),
    ("Reshape", {"shape": (5, -1)}, [(2, 3)], "has 6 elements"),
    ("Reshape", {"shape": (-1, -1)}, [(2, 3)], "more than one -1"),
    ("Reshape", {"shape": (0, 0, 0)}, [(2, 3)], "finds no dimension left"),
    ("Reshape", {"shape": (-4, 4, -1, 0)}, [(6, 3)], "cannot split a dimension of 6 into 4 and 1"),
    ("Concat", {"dim": 1}, [(2, 3), (3, 3)], "differ outside of dim=1"),
    ("SliceChannel", {"num_outputs": 4}, [(2, 6)], "cannot be cut into 4 equal parts"),
    ("sum", {"axis": 3}, [(2, 3)], "sum: axis 3 does not exist; the input has 2 dimensions"),
    ("sum", {"axis": 1}, [(2,)], "sum: axis 1 does not exist; the input has 1 dimension"),
    ("sum", {"axis": 0}, [()], "sum: axis 0 does not exist; the input has no dimensions"),
    ("transpose", {"axes": (0, 0)}, [(2, 3)], "is no permutation of the axes of the input, which has 2 dim"),
    ("squeeze", {"axis": 0}, [(2, 3)], "axis 0 of the shape (2, 3) is not 1"),
    ("pick", {}, [(2, 3), (3,)], "the index has shape (3,)"),
    ("Embedding", {"input_dim": 4, "output_dim": 2}, [(3,), (4, 3)], "(input_dim, output_dim) is (4, 2)"),
]


@pytest.mark.parametrize(("name", "attributes", "shapes", "text"), SHAPES)
def test_shapes_that_do_not_fit(name, attributes, shapes, text):
    with pytest.raises(ShapeError) as caught:
        get(name).bind(**attributes).infer_shape(*shapes)
    assert text in str(caught.value) and str(caught.value).lower().startswith(name.lower())


@pytest.mark.parametrize("record", [each for each in records() if each.name.startswith("_linalg_")], ids=str)
def test_errors_of_matrices_name_the_operator(record):
    no_matrix = () if record.name == "_linalg_makediag" else (2,)
    with pytest.raises(ShapeError) as caught:
        record.bind(**record.samples[0].attributes).infer_shape(*[no_matrix] * len(record.samples[0].inputs))
    assert str(caught.value).startswith(record.name.removeprefix("_") + ":")


def test_an_input_that_is_given_twice():
    x = nd.ones((2, 2))
    for call in (lambda: nd.relu(x, data=x), lambda: nd.dot(x, x, lhs=x), lambda: nd.softmax(x, data=x)):
        with pytest.raises(AttributeSpecError, match="given twice"):
            call()


ATTRIBUTES = [
    ("softmax", {"axs": 1}, "softmax: unknown attribute axs; did you mean axis?"),
    ("Convolution", {"num_filter": 3}, "Convolution: the attribute kernel is missing"),
    ("Convolution", {"kernel": (3, 3), "num_filter": 3, "layout": "NWC"}, "layout 'NWC' is not supported"),
    ("Convolution", {"kernel": (3, 3), "num_filter": 3, "stride": (1,)}, "stride=(1,) needs one number for each axis"),
    ("Convolution", {"kernel": (3, 3), "num_filter": 3, "num_group": 2}, "must be a multiple of num_group=2"),
    ("Pooling", {"kernel": (2, 2), "pool_type": "median"}, "attribute pool_type='median'"),
    ("Pooling", {"kernel": (2, 2), "pad": (2, 2)}, "must be smaller than kernel"),
    ("Activation", {"act_type": "swish"}, "is not one of 'relu'"),
    ("Dropout", {"p": 1.5}, "Dropout: p=1.5"),
    ("Cast", {"dtype": "complex64"}, "dtype complex64 is not supported; use one of float32"),
    ("log_softmax", {"use_length": True}, "use_length is not supported; softmax supports it"),
    ("softmax", {"dtype": "int32"}, "softmax: dtype=int32; a floating dtype is needed"),
    ("sum", {"axis": "one"}, "sum: attribute axis='one'"),
    ("_arange", {"start": 0, "stop": 3, "step": 0}, "step must not be 0"),
]


@pytest.mark.parametrize(("name", "attributes", "text"), ATTRIBUTES)
def test_attributes_that_do_not_fit(name, attributes, text):
    with pytest.raises(AttributeSpecError) as caught:
        get(name).bind(**attributes)
    assert text in str(caught.value)


def test_mixed_dtypes():
    with pytest.raises(DTypeError, match=r"\(float16, float32\); .*F.cast"):
        infer(get("broadcast_add").bind(), ((2,), (2,)), (np.dtype("float16"), np.dtype("float32")))


def test_softmax_of_integers():
    with pytest.raises(DTypeError, match="softmax: floating numbers are needed, not int32"):
        infer(get("softmax").bind(), ((2,),), (np.dtype("int32"),))


def test_take_can_refuse_an_index():
    with pytest.raises(HybridLabError, match="take: index 5 is outside of an axis of 3"):
        F.take(np.zeros(3, np.float32), np.array([0, 5]), mode="raise")


NO_ARRAYS = {
    "a number": 1.5, "None": None, "a list": [1.0], "a string": "a", "a NumPy array": np.ones(2), "a complex": 1j,
    "an object": object(),
}  # fmt: skip


@each_sample(lambda case: case.number == 0)
def test_what_is_no_array(case):
    """In the place of every input: the operator computes with it, or the error is of the user's call."""
    given = [nd.array(item, dtype=item.dtype) if isinstance(item, np.ndarray) else item for item in case.inputs()]
    for position in range(len(given)):
        for what, item in NO_ARRAYS.items():
            for recorded in (False, True):
                try:
                    with autograd.record() if recorded else autograd.pause():
                        invoke(case.op, [*given[:position], item, *given[position + 1 :]])
                except HybridLabError as error:
                    assert not isinstance(error, RecordError), (position, what)
                else:
                    assert what == "a number"


def test_a_number_or_a_list_in_the_place_of_indices():
    with pytest.raises(DTypeError, match="take: .*indices .*number"):
        nd.take(nd.ones((3, 2)), 1)
    with pytest.raises(DTypeError, match="take: the input indices must be an NDArray, not list"):
        nd.take(nd.ones((3, 2)), [1])
    with pytest.raises(DTypeError, match="_sparse_retain: .*data .*number"):
        nd.sparse.retain(0, nd.array([0]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_indices_that_are_no_numbers(dtype):
    """MXNet 1.9.1 on an x86 processor, but for infinity, which it takes for the least whole number."""
    x = nd.arange(12).reshape((4, 3))
    index = nd.array([0, np.nan, np.inf, -np.inf], dtype=dtype)
    assert nd.take(x, index)[:, 0].asnumpy().tolist() == [0, 0, 9, 0]
    assert nd.take(x[:3], index, mode="wrap")[:, 0].asnumpy().tolist() == [0, 3, 3, 3]
    assert nd.pick(x, index).asnumpy().tolist() == [0, 3, 8, 9]
    assert nd.Embedding(index, x, input_dim=4, output_dim=3)[:, 0].asnumpy().tolist() == [0, 0, 9, 0]
    assert nd.one_hot(index, 2).asnumpy().tolist() == [[1, 0], [0, 0], [0, 0], [0, 0]]
    with pytest.raises(HybridLabError, match="take: index nan is outside of an axis of 4"):
        nd.take(x, index, mode="raise")
    with pytest.raises(HybridLabError, match="gather_nd: index .* is out of bounds"):
        nd.gather_nd(x, index.reshape((1, 4)))


def test_clip_takes_numbers_only():
    with pytest.raises(DTypeError, match="clip: numbers are needed, not bool"):
        nd.clip(nd.array([1, 0], dtype="bool"), 0, 1)


def test_unknown_operators_suggest_near_names():
    with pytest.raises(HybridLabError, match="no operator named 'softmix'; did you mean softmin, softmax"):
        get("softmix")


def test_nothing_to_choose_from():
    empty, one = np.zeros((0, 3), np.float32), np.zeros(1, np.float32)
    for choose in (lambda: F.take(empty, one), lambda: F.max(empty, axis=0), lambda: F.argmax(empty, axis=0)):
        with pytest.raises(ShapeError, match="nothing to choose from"):
            choose()


@pytest.mark.parametrize(
    "name, shapes, attributes, message",
    [
        ("BilinearSampler", [(2, 3, 0, 5), (2, 2, 3, 4)], {}, "nothing to choose from"),
        ("ROIPooling", [(0, 3, 8, 9), (5, 5)], {"pooled_size": (2, 3), "spatial_scale": 1.0}, "nothing to choose from"),
        (
            "_contrib_ROIAlign",
            [(2, 3, 0, 9), (5, 5)],
            {"pooled_size": (2, 3), "spatial_scale": 1.0},
            "nothing to choose from",
        ),
        ("softmax_cross_entropy", [(4, 0), (4,)], {}, "no classes"),
        ("CTCLoss", [(6, 2, 0), (2, 3)], {}, "no classes"),
        ("Convolution", [(2, 0, 7), (4, 0, 3), (4,)], {"kernel": 3, "num_filter": 4}, "no channels"),
        ("Deconvolution", [(2, 0, 5), (0, 2, 4)], {"kernel": 4, "num_filter": 2}, "no channels"),
        ("Deconvolution", [(2, 3, 0), (3, 2, 4)], {"kernel": 4, "num_filter": 2, "stride": 3, "adj": 2}, "no pixels"),
    ],
)
def test_arrays_without_pixels_classes_or_channels(name, shapes, attributes, message):
    with pytest.raises(ShapeError, match=message):
        infer(get(name).bind(**attributes), tuple(shapes), (np.dtype("float32"),) * len(shapes))


@pytest.mark.parametrize("engine", [None, "numpy", "onnxruntime", "torch"])
@pytest.mark.parametrize(
    "name, shapes, attributes",
    [
        ("SoftmaxOutput", [(0, 3), (0,)], {"normalization": "batch"}),
        ("SoftmaxOutput", [(2, 3, 0), (2, 0)], {"multi_output": True}),
        ("UpSampling", [(2, 3, 2, 0)], {"scale": 2, "sample_type": "nearest"}),
        ("GridGenerator", [(0, 6)], {"transform_type": "affine", "target_shape": (3, 4)}),
        (
            "SpatialTransformer",
            [(0, 3, 4, 5), (0, 6)],
            {"target_shape": (3, 4), "transform_type": "affine", "sampler_type": "bilinear"},
        ),
        ("BilinearSampler", [(2, 0, 4, 5), (2, 2, 3, 4)], {}),
        ("ROIPooling", [(2, 0, 8, 9), (5, 5)], {"pooled_size": (2, 3), "spatial_scale": 1.0}),
        (
            "_contrib_ROIAlign",
            [(2, 0, 8, 9), (5, 5)],
            {"pooled_size": (2, 3), "spatial_scale": 1.0, "position_sensitive": True},
        ),
    ],
)
def test_gradients_of_empty_arrays(name, shapes, attributes, engine):
    block = nn.HybridLambda(lambda F, *inputs: getattr(F, name)(*inputs, **attributes))
    if engine is not None:
        block.hybridize(engine=engine)
    inputs = [nd.zeros(shape) for shape in shapes]
    for each in inputs:
        each.attach_grad()
    with autograd.record():
        result = block(*inputs)
    result.backward()
    assert [each.grad.shape for each in inputs] == shapes
    assert not any(each.grad.asnumpy().any() for each in inputs)
