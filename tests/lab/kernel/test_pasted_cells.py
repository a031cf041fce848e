"""The cells of the seeds - MXNet's hybrid tutorial, the RFC, the SINGA thread - pasted in their order into a kernel."""

from __future__ import annotations

import pytest

from tests.lab.kernel_process import Kernel

IMPORTS = """\
import hybrid_lab.compat
import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn

mx.random.seed(42)
"""

NET = """\
class Net(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super(Net, self).__init__(**kwargs)
        with self.name_scope():
            # layers created in name_scope will inherit name space
            # from parent layer.
            self.conv1 = nn.Conv2D(6, kernel_size=5)
            self.pool1 = nn.MaxPool2D(pool_size=2)
            self.conv2 = nn.Conv2D(16, kernel_size=5)
            self.pool2 = nn.MaxPool2D(pool_size=2)
            self.fc1 = nn.Dense(120)
            self.fc2 = nn.Dense(84)
            # You can use a Dense layer for fc3 but we do dot product manually
            # here for illustration purposes.
            self.fc3_weight = self.params.get('fc3_weight', shape=(10, 84))

    def hybrid_forward(self, F, x, fc3_weight):
        # Here `F` can be either mx.nd or mx.sym, x is the input data,
        # and fc3_weight is either self.fc3_weight.data() or
        # self.fc3_weight.var() depending on whether x is Symbol or NDArray
        print(x)
        x = self.pool1(F.relu(self.conv1(x)))
        x = self.pool2(F.relu(self.conv2(x)))
        # 0 means copy over size from corresponding dimension.
        # -1 means infer size from the rest of dimensions.
        x = x.reshape((0, -1))
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        x = F.dot(x, fc3_weight, transpose_b=True)
        return x
"""

EAGER = """\
net = Net()
net.initialize()
x = mx.nd.random_normal(shape=(16, 1, 28, 28))
net(x)
x = mx.nd.random_normal(shape=(16, 1, 28, 28))
net(x)
"""

HYBRID = """\
net.hybridize()
x = mx.nd.random_normal(shape=(16, 1, 28, 28))
net(x)
x = mx.nd.random_normal(shape=(16, 1, 28, 28))
net(x)
"""

FLAGS = ["net.hybridize(static_alloc=True)", "net.hybridize(static_alloc=True, static_shape=True)"]

#: The English tutorial, and the Chinese one, which calls the net again before it is exported.
EXPORTS = {
    "english": "net.export('model', epoch=1)",
    "chinese": "net(x)\nnet.export('model', epoch=1)",
}

IMPORT = {
    "english": "net2 = gluon.SymbolBlock.imports('model-symbol.json', ['data'], 'model-0001.params')",
    "chinese": """\
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    net2 = gluon.SymbolBlock.imports('model-symbol.json', ['data'], 'model-0001.params')
""",
}

SAME = "import numpy as np; print(np.allclose(net2(x).asnumpy(), net(x).asnumpy(), 1e-4, 1e-5))"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    running = Kernel(tmp_path_factory.mktemp("cells"))
    yield running
    running.stop()


@pytest.mark.parametrize("language", EXPORTS)
def test_the_tutorial_runs_to_its_end_in_the_order_of_its_cells(language, kernel):
    kernel.run(IMPORTS, NET)
    assert kernel.run(EAGER).count("NDArray 16x1x28x28") == 2
    assert kernel.run(HYBRID).count("Symbol") == 1
    kernel.run(*FLAGS, EXPORTS[language], IMPORT[language])
    assert kernel.run(SAME).endswith("True")


@pytest.mark.parametrize("last", ["net.save('net')", "mx.save_cached_graphs(net, 'net')", "%hybrid_save net"])
def test_every_save_after_the_tutorials_cells_has_all_graphs(last, kernel):
    kernel.run(IMPORTS, NET, EAGER, HYBRID, *FLAGS, last)
    kernel.run("again = gluon.load('net'); print(mx.diff('net.hlab', net))")
    assert kernel.run("import numpy as np; print(np.allclose(again(x).asnumpy(), net(x).asnumpy(), 1e-4, 1e-5))")
    count = "import zipfile; print(sum(n.startswith('graphs/') for n in zipfile.ZipFile('net.hlab').namelist()))"
    assert kernel.run(count) == "7"


MODEL = """\
import hybrid_lab.compat
import mxnet as mx
from mxnet import gluon, symbol
from mxnet.gluon import nn

class Model(gluon.Block):
    def __init__(self, **kwargs):
        super().__init__(prefix="model_", **kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential()
            self.features.add(nn.Dense(8, activation='relu'), nn.Dense(4))
            self.head = nn.Dense(2)

    def forward(self, x):
        y = self.features(x)
        if y.mean().asscalar() > 1e9:
            y = -y
        return self.head(y)
"""

#: The two functions of the RFC, as they stand there but for the import of `symbol`.
SKETCH = """\
def save_cached_graphs(block):
    def _save_cached_graphs(blk, index):
        if isinstance(blk, mx.gluon.nn.HybridBlock):
            blk.export(blk.name + str(index[0]))
        for child in blk._children.values():
            index[0] += 1
            _save_cached_graphs(child, index)
    #save top-level block
    index = [0]
    _save_cached_graphs(block, index)

def load_cached_graphs(block):
    def _load_cached_graphs(blk, index):
        if isinstance(blk, mx.gluon.nn.HybridBlock):
            sym = symbol.load(blk.name + str(index[0]) + '-symbol.json')
            blk._cached_graph = sym
        for child in blk._children.values():
            index[0] += 1
            _load_cached_graphs(child, index)
    #load top-level block
    index = [0]
    _load_cached_graphs(block, index)
"""


BETWEEN = ["", "net.hybridize()", "net.hybridize(); net(x); net.hybridize(static_alloc=True)"]


@pytest.mark.parametrize("between", BETWEEN)
def test_the_sketch_of_the_rfc_after_any_cell(between, kernel):
    kernel.run(MODEL, SKETCH, "net = Model(); net.initialize(); x = mx.nd.ones((3, 5)); y = net(x)", between)
    kernel.run("save_cached_graphs(net); net.save_parameters('model.params')")
    kernel.run("net2 = Model(); net2.load_parameters('model.params'); load_cached_graphs(net2)")
    assert kernel.run("import numpy as np; print(np.allclose(net2(x).asnumpy(), y.asnumpy(), 1e-5))") == "True"
    kernel.run("net.save('model'); opened = gluon.load('model')")
    same = "np.allclose(opened.head(opened.features(x)).asnumpy(), y.asnumpy(), 1e-5)"
    assert kernel.run(f"print({same})") == "True"


SINGA = """\
import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn

@gluon.register
class MyModel(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(4, 3)
        self.linear = nn.Dense(3)

    def hybrid_forward(self, F, x):
        return self.linear(F.relu(self.conv1(x)))

    def train_one_batch(self, x, y):
        with autograd.record():
            loss = gluon.loss.SoftmaxCrossEntropyLoss()(self(x), y).mean()
        loss.backward()
        self.trainer.step(1)
        return loss
"""


def test_the_flow_of_the_singa_thread(kernel):
    kernel.run(
        SINGA,
        "x, y = nd.random.normal(shape=(2, 2, 8, 8)), nd.array([0, 2])",
        "m = MyModel(); m.compile([x], is_train=True, use_graph=True, graph_alg='sequence')",
        "m.trainer = gluon.Trainer(m.collect_params(), 'sgd')",
        "for _ in range(3): m.train_one_batch(x, y)",
        "m.epoch = 3",
        "m.save_states('my_checkpoint_1', aux_states={'epoch': 3}); m.save('my_model_1')",
        "m2 = gluon.load('my_model_1'); m2.compile([x], use_graph=True)",
        "m3 = MyModel(); m3.compile([x], use_graph=True); aux = m3.load_states('my_checkpoint_1')",
        "mx.onnx.export(m, 'm.onnx'); m4 = mx.onnx.imports('m.onnx')",
    )
    same = "[np.allclose(each(x).asnumpy(), m(x).asnumpy(), 1e-4, 1e-5) for each in (m2, m3, m4)]"
    assert kernel.run(f"import numpy as np; print({same}, aux, m2.epoch)") == "[True, True, True] {'epoch': 3} 3"
