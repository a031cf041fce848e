"""The reference: every public callable has an example, and those that the site executes run."""

import inspect
import os
import subprocess
import sys

import pytest

from docs.site import api, docstrings, executed, operators, sources

#: Callables without an example, by what one would need.
WITHOUT = {
    "files of a data set": "gluon.data.vision: CIFAR10 CIFAR100 FashionMNIST MNIST ImageListDataset; mx.io: MNISTIter",
    "a network": "gluon.utils: download",
    "several workers": "mx.distributed: check join mean start; mx.lab: workers",
    "a notebook": "mx.lab: autosave load_ipython_extension share unload_ipython_extension view",
    "a GPU": "mx.context: gpu_memory_info; mx: use_compiled",
    "minutes": "mx.insight: tune",
    "a state that others would see": "mx.contrib.amp: disable init init_trainer unscale; mx.profiler: dump",
    "a subclass, or is the base of one": "mx.mod: PythonModule PythonLossModule; mx.onnx: Backend; mx.io: MXDataIter; "
    "mx.kv: TestStore; mx.callback: module_checkpoint",
    "that of the one it is a variant of": "nd.contrib: multi_mp_adamw_update multi_mp_lamb_update; mx.metric: alias; "
    "gluon.model_zoo.vision: BottleneckV1b; mx.init: drawing; npx: rnn; sym: Custom; nd: null; "
    "mx.io: ImageRecordIter_v1 ImageRecordUInt8Iter ImageRecordUInt8Iter_v1 ImageRecordInt8Iter ImageDetRecordIter; "
    "mx.image: ImageDetIter CreateMultiRandCropAugmenter",
}
NAMES_WITHOUT = {
    f"{space.strip()}.{name}"
    for text in WITHOUT.values()
    for part in text.split(";")
    for space, _, names in [part.partition(":")]
    for name in names.split()
}


@pytest.mark.long
def test_every_callable_has_an_example_which_runs():
    """Write one in the docstring or in docs/site/examples.txt. In a process of its own: examples register classes."""
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "docs.site", "--examples"]
    environment = {**os.environ, "PYTHONPATH": str(sources.ROOT)}
    done = subprocess.run(command, cwd=sources.ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    assert set(done.stdout.split()) == NAMES_WITHOUT


_NET = """
net = nn.Dense(2, in_units=3, prefix="dense0_")
net.initialize()
x, y, batch_size = nd.ones((4, 3)), nd.zeros((4,)), 4
loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
"""
_SYMBOL = """
symbol = sym.SoftmaxOutput(sym.FullyConnected(sym.var("data"), num_hidden=2), name="softmax")
train_iterator = test_iterator = mx.io.NDArrayIter(nd.ones((4, 3)), nd.zeros((4,)), 2)
X, y = nd.ones((4, 3)), nd.zeros((4,))
"""
#: Callables whose docstring has code that supposes something to be there -> what makes it.
SUPPOSED = {
    "autograd.Function": "x = nd.array([1.0])",
    "gluon.SymbolBlock": _NET,
    "gluon.Trainer": _NET,
    "gluon.data.DistributedSampler": "dataset = gluon.data.SimpleDataset(list(range(200)))",
    "mx.kv.KVStore": "gradient_0 = gradient_1 = weight_0 = weight_1 = nd.ones((2, 3))",
    "mx.torch.write_source": "net = nn.Conv2D(1, 3, in_channels=3)\nnet.initialize()",
    "mx.insight.capture": """
class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.features, self.output = nn.HybridSequential(), nn.HybridSequential()
        self.features.add(*(nn.Dense(2) for _ in range(4)))
        self.output.add(nn.Dense(2))
    def hybrid_forward(self, F, x):
        return self.output(self.features(x))
net = Net()
net.initialize()
x = nd.ones((2, 3))
""",
    "mx.monitor.Monitor": f"""{_SYMBOL}
module = mx.mod.Module(symbol)
module.bind(train_iterator.provide_data, train_iterator.provide_label)
module.init_params()
batch = next(train_iterator)
""",
    "mx.mod.Module": _SYMBOL,
    "mx.model.FeedForward": _SYMBOL,
}
#: Those whose code is a sketch: a loop with `...`, or two ways in one line.
SKETCHES = {
    *("gluon.Placeholder", "gluon.register", "mx.checkpoint.Manager", "mx.kv.KVStoreBase", "mx.insight.watch_nan"),
    "mx.contrib.amp.scale_loss",
}


@pytest.mark.long
def test_code_in_docstrings_runs():
    pytest.importorskip("torch")
    code = "from docs.site import api; print(*api.unexecuted())"
    environment = {**os.environ, "PYTHONPATH": str(sources.ROOT), "HYBRID_LAB_CPU": "numpy"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=sources.ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    assert set(done.stdout.split()) == SUPPOSED.keys() | SKETCHES


@pytest.mark.parametrize("name", SUPPOSED)
def test_code_in_a_docstring_runs_with_what_it_supposes(name):
    space, _, last = name.rpartition(".")
    for code in docstrings.examples(inspect.getdoc(getattr(api.namespace(space), last))):
        executed.session(f"{SUPPOSED[name]}\n{code}")


def test_every_example_is_of_a_name():
    known = {f"{space}.{name}" for space, named in api.entries().items() for name, _ in named}
    assert api.by_hand().keys() <= known | {name for names in operators.public().values() for name in names}


def test_every_operator_has_an_example():
    """From the samples of its record."""
    names = [names[0] for record, names in operators.public().items() if operators.example(record, names[0]) is None]
    assert names == ["nd.full"]  # which has one in docs/site/examples.txt


@pytest.mark.parametrize(
    "name",
    [
        *("nd.array", "autograd.record", "autograd.grad", "gluon.HybridBlock", "gluon.Block", "gluon.load"),
        *("gluon.nn.Dense", "gluon.nn.Conv2D", "gluon.nn.BatchNorm", "gluon.nn.HybridSequential", "gluon.rnn.LSTM"),
        *("gluon.loss.SoftmaxCrossEntropyLoss", "gluon.data.DataLoader", "mx.metric.Accuracy", "mx.optimizer.Adam"),
        *("mx.insight.explain", "mx.insight.profile", "mx.insight.compare", "mx.summary", "mx.diff", "mx.onnx.export"),
    ],
)
def test_what_people_meet_first_has_an_example_in_its_help(name):
    space, _, last = name.rpartition(".")
    codes = docstrings.examples(inspect.getdoc(getattr(api.namespace(space), last)) or "")
    assert any(executed.attempt(code) for code in codes)


def test_a_docstring_as_markdown():
    text = """Sum along an axis, f(x) = x_1 + x_2.

    x + y

data : (batch, n) floating; axis : the axis
    that goes; returns : (batch,)
*args : more"""
    assert docstrings.markdown(text) == (
        "Sum along an axis, f(x) = x\\_1 + x\\_2.\n\n```python\nx + y\n```\n\n"
        "- `data`: (batch, n) floating\n- `axis`: the axis that goes\n- returns (batch,)\n- `*args`: more"
    )
    assert docstrings.examples(text) == ["x + y"]


def test_an_example_that_fails_ends_the_build():
    with pytest.raises(executed.ExampleError, match="ZeroDivisionError"):
        executed.session("1 / 0")
    assert executed.session("x = 2\nx * 3") == ">>> x = 2\n>>> x * 3\n6"
    assert executed.attempt("undefined") is None
