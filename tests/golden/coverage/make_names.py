"""Writes names.json: the public names of each module of the real MXNet, beside this script.

They are those of `__all__`; without it, those defined in the module or below it.
"""

import importlib
import json
import types

MODULES = """
mx gluon gluon.nn gluon.rnn gluon.loss gluon.parameter gluon.trainer gluon.utils gluon.block gluon.contrib.nn
gluon.contrib.rnn gluon.contrib.cnn gluon.contrib.estimator gluon.contrib.data gluon.contrib.data.text gluon.data
gluon.data.vision gluon.data.vision.transforms gluon.data.sampler gluon.data.dataloader gluon.data.dataset
gluon.model_zoo.vision autograd initializer optimizer metric lr_scheduler visualization callback context base random io
image recordio kvstore module model executor operator profiler monitor name attribute util runtime engine test_utils rnn
contrib.amp contrib.onnx contrib.text.embedding contrib.text.utils contrib.text.vocab contrib.quantization
contrib.autograd contrib.io ndarray ndarray.contrib ndarray.random ndarray.linalg ndarray.image ndarray.sparse symbol
symbol.contrib symbol.random symbol.linalg symbol.image symbol.sparse numpy numpy.random numpy.linalg numpy_extension
numpy_extension.image numpy_extension.random
""".split()


def is_own(module, value):
    """Whether a value is defined in a module or below it."""
    if isinstance(value, types.ModuleType):
        return module.__name__ == "mxnet" and value.__name__.startswith("mxnet.")
    home = getattr(value, "__module__", None)
    if home is None:
        return False
    return home.startswith(module.__name__) or (module.__name__ == "mxnet" and home.startswith("mxnet"))


found = {}
for name in MODULES:
    module = importlib.import_module("mxnet" if name == "mx" else "mxnet." + name)
    names = set(getattr(module, "__all__", ())) | {
        each for each, value in vars(module).items() if not hasattr(module, "__all__") and is_own(module, value)
    }
    if name.partition(".")[0] in ("ndarray", "symbol", "mx"):
        names |= {each for each, value in vars(module).items() if is_own(module, value)}
    if name in ("numpy", "numpy_extension"):  # their `__all__` is empty
        names = {each for each, value in vars(module).items() if not isinstance(value, types.ModuleType)}
        names -= {"absolute_import", "division", "print_function"}
    found[name] = sorted(each for each in names if not each.startswith("_") and hasattr(module, each))
lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(names)}" for name, names in found.items())
with open("names.json", "w", encoding="utf-8") as file:
    file.write("{\n" + lines + "\n}\n")
