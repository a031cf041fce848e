"""What help texts and completion show: signatures of public functions and methods, and the names that dir() lists."""

import importlib
import inspect
import pkgutil
import types

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon

ROOMS = """
autograd callback checkpoint contrib contrib.amp contrib.onnx contrib.text engine executor gluon
gluon.contrib.cnn gluon.contrib.data gluon.contrib.estimator gluon.contrib.nn gluon.contrib.rnn gluon.data
gluon.data.vision gluon.data.vision.transforms gluon.loss gluon.model_zoo.vision gluon.nn gluon.rnn
gluon.utils image init io kv lab lint lr_scheduler metric mod model monitor nd nd.contrib nd.random nd.sparse
np np.linalg np.random npx npx.random onnx operator optimizer profiler random recordio rnn runtime sym
sym.contrib test_utils torch util viz
""".split()

#: Functions that take any number of inputs, layers or sizes, or attributes by any name.
ANY_NUMBER = {
    "ix_", "printoptions", "runs",
    "AttrScope", "log", "forward", "backward", "save_for_backward", "summary", "add", "transpose", "reshape",
    "reshape_view", "item", "ArrayDataset", "Augmenter", "DetAugmenter", "atleast_1d", "atleast_2d", "atleast_3d",
    "broadcast_arrays", "result_type", "rand", "randn", "environment", "random_arrays", "alias", "default_types",
    "inferred", "known_shapes", "infer_shape", "infer_shape_partial", "infer_type", "infer_type_partial",
    "infer_storage_type", "simple_bind", "eval", "complete", "save_parameters", "Initializer", "Custom", "unpack",
}  # fmt: skip


def room(path):
    found = mx
    for name in path.split("."):
        found = getattr(found, name)
    return found


def public(path):
    """(name, function or class or method) of what a room offers."""
    owner = room(path)
    for name in sorted(getattr(owner, "__all__", None) or dir(owner)):
        value = getattr(owner, name)
        if name.startswith("_") or isinstance(value, types.ModuleType) or not callable(value):
            continue
        yield name, value
        for key, member in (
            vars(value).items() if inspect.isclass(value) and value.__module__[:10] == "hybrid_lab" else ()
        ):
            function = getattr(member, "__func__", member)
            if not key.startswith("_") and inspect.isfunction(function):
                yield f"{name}.{key}", function


def shown(function):
    """The parameters that help shows, without self; None where Python knows none."""
    try:
        return [each for each in inspect.signature(function).parameters.values() if each.name not in ("self", "cls")]
    except ValueError:
        return None


@pytest.mark.parametrize("path", ROOMS)
def test_every_public_function_shows_its_arguments(path):
    star = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    bare = [name for name, value in public(path) if (given := shown(value)) and {each.kind for each in given} <= star]
    assert [name for name in bare if name.rpartition(".")[2] not in ANY_NUMBER] == []


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (gluon.Block.save, {"path", "inputs", "trainer", "aux"}),
        (gluon.nn.Dense(2).load, {"path", "strict", "graphs", "map", "subtree"}),
        (gluon.load, {"path", "with_aux"}),
        (gluon.model_zoo.vision.alexnet, {"pretrained", "ctx", "root"}),
        (gluon.model_zoo.vision.resnet18_v1, {"pretrained", "ctx", "root", "stride_in_3x3"}),
        (mx.np.median, {"a", "axis", "keepdims"}),
        (mx.np.ones(2).sum, {"axis", "keepdims"}),
        (mx.profiler.set_config, {"filename", "profile_all"}),
        (mx.contrib.onnx.export_model, {"sym", "params"}),
        (mx.io.ImageRecordUInt8Iter, {"path_imgrec", "data_shape", "batch_size"}),
    ],
)
def test_functions_that_hand_their_arguments_on_show_them(function, names):
    given = [each.name for each in shown(function)]
    assert names <= set(given) and "self" not in given and "net" not in given[1:]


def modules():
    """All modules of the package that make names when they are asked for."""
    for found in pkgutil.walk_packages(mx.__path__, "hybrid_lab."):
        if "__main__" not in found.name and not found.name.endswith("lab.views.widget"):  # needs the built front end
            module = importlib.import_module(found.name)
            if "__getattr__" in vars(module):
                yield module


def test_dir_lists_what_can_be_got():
    late = {
        "hybrid_lab.lab": ["autosave", "progress", "view"],
        "hybrid_lab.mxnet.model": ["FeedForward"],
        "hybrid_lab.ndarray": ["np", "npx", "sparse", "softmax"],
        "hybrid_lab.ndarray.random": ["exponential_like", "normal"],
        "hybrid_lab.ndarray.sparse": ["dot", "csr_matrix", "retain"],
        "hybrid_lab.random": ["seed", "poisson", "normal_like"],
        "hybrid_lab.symbol": ["np", "npx", "softmax"],
        "hybrid_lab.torch": ["imports", "module"],
        "hybrid_lab.onnx": ["imports", "export"],
        "hybrid_lab.mxnet.contrib": ["amp", "nd"],
    }
    names = set()
    for module in modules():
        names.add(module.__name__)
        listed = set(dir(module))
        tables = [
            vars(module)[table] for table in ("_MODULES", "_PUBLIC_NAMES", "_OLDER", "__all__") if table in vars(module)
        ]
        wanted = {name for table in tables for name in table} | set(late.get(module.__name__, ()))
        assert wanted <= listed, (module.__name__, wanted - listed)
        for name in listed:
            getattr(module, name)
    assert late.keys() <= names and len(names) > 20


def test_nothing_but_random_operators_is_in_nd_random():
    assert not hasattr(mx.nd.random, "Div") and not hasattr(mx.nd.random, "adamw_update")
