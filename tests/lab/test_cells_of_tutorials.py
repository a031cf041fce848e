"""MXNet's hybrid tutorial, its cells pasted in their order into a kernel, with `import mxnet` as it stands there."""

from __future__ import annotations

import pytest

from .kernel import Kernel

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
