"""`import mxnet` under hybrid_lab.compat: the same modules, near names for a missing one, and undone by uninstall()."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def run(code, *arguments, folder=None):
    """Run code, or `python ARGUMENTS`, in a process of its own; returns what it printed."""
    command = [sys.executable, *(arguments or ("-c", textwrap.dedent(code)))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder or ROOT, env=environment(), timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def environment():
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_modules_are_the_same_objects():
    run("""
        import hybrid_lab.compat
        import mxnet as mx, hybrid_lab, mxnet.gluon.nn, mxnet.gluon.data.vision.transforms as transforms
        from mxnet import nd, sym, gluon, autograd, init, viz
        from mxnet.gluon.model_zoo import vision
        assert mx.gluon is hybrid_lab.gluon is gluon and mx.gluon.nn is hybrid_lab.gluon.nn is mxnet.gluon.nn
        assert transforms is hybrid_lab.gluon.data.vision.transforms
        assert nd is hybrid_lab.nd and sym is hybrid_lab.sym and autograd is hybrid_lab.autograd
        assert init is mx.initializer and viz is hybrid_lab.viz and mx.visualization is viz
        import sys
        for name, module in list(sys.modules.items()):
            own = sys.modules.get(name.replace("mxnet", "hybrid_lab", 1))
            if name.startswith("mxnet.") and own is not None:
                assert own is module, name
                assert module.__name__ == module.__spec__.name == own.__name__, name
        """)


def test_the_version_is_that_of_mxnet_and_ours_stays():
    run("""
        import hybrid_lab, hybrid_lab.compat, mxnet
        assert mxnet.__version__ == mxnet.libinfo.__version__ == "1.9.1"
        assert hybrid_lab.__version__ != mxnet.__version__
        """)


def test_modules_that_are_laid_out_differently():
    run("""
        import hybrid_lab.compat, hybrid_lab
        import mxnet as mx
        assert mx.gluon.nn.conv_layers.GlobalAvgPool2D is mx.gluon.nn.GlobalAvgPool2D
        from mxnet.gluon.nn.basic_layers import Dense, BatchNorm
        from mxnet.gluon.nn.conv_layers import *
        assert Conv2D is mx.gluon.nn.Conv2D and MaxPool2D is mx.gluon.nn.MaxPool2D
        from mxnet.gluon.block import HybridBlock, SymbolBlock, Block
        assert mx.gluon.block.HybridBlock is HybridBlock is hybrid_lab.gluon.HybridBlock
        from mxnet.gluon.parameter import ParameterDict
        from mxnet.gluon.rnn.rnn_cell import LSTMCell, HybridRecurrentCell
        from mxnet.gluon.data.dataloader import DataLoader, default_batchify_fn, default_mp_batchify_fn
        from mxnet.gluon.contrib.nn.basic_layers import Identity
        from mxnet.ndarray.ndarray import NDArray, array
        from mxnet.symbol.symbol import Symbol, var
        from mxnet.ndarray.contrib import box_nms
        import mxnet.ndarray.contrib
        assert mxnet.ndarray.contrib is mx.nd.contrib and mx.sym.contrib is mx.symbol.contrib
        from mxnet.optimizer.optimizer import SGD, Optimizer
        """)


def test_a_function_keeps_its_name_when_the_module_of_this_name_is_imported():
    run("""
        import hybrid_lab.compat
        import mxnet.gluon.model_zoo.vision.alexnet
        from mxnet.gluon.model_zoo import vision
        import mxnet.gluon.model_zoo.vision.resnet as resnet
        assert callable(vision.alexnet) and resnet.resnet18_v1 is vision.resnet18_v1
        """)


def test_missing_names_are_errors_with_the_nearest():
    said = run("""
        import hybrid_lab.compat
        import mxnet as mx
        def show(code):
            try:
                exec(code, {"mx": mx})
            except Exception as error:
                print(type(error).__mro__[0].__name__, isinstance(error, (ImportError, AttributeError)), error)
        show("import mxnet.gluom")
        show("from mxnet.gluon.nn import Dens")
        show("from mxnet import autogrd")
        show("mx.gluon.nn.Dens")
        show("mx.autogrd")
        show("from mxnet.gluon.nn.conv_layers import Conv4D")
        show("mx.gluon.nn.conv_layers.Conv4D")
        print(hasattr(mx, "nothing_of_this_name"))
        """).splitlines()
    assert all(line.split()[1] == "True" for line in said[:-1]) and said[-1] == "False"
    for line, near in zip(said, ("gluon", "Dense", "autograd", "Dense", "autograd", "Conv4D", "Conv1D"), strict=False):
        assert near in line, line
    assert said[0].startswith("ModuleNotFoundError")


def test_uninstall_leaves_nothing():
    run("""
        import sys, hybrid_lab.compat as compat, hybrid_lab
        compat.install()
        import mxnet as mx, mxnet.gluon.nn.conv_layers
        assert mx.gluon.block.HybridBlock
        before = sys.meta_path[:]
        compat.uninstall()
        compat.uninstall()
        assert len(sys.meta_path) == len(before) - 2
        assert not [name for name in sys.modules if name.partition(".")[0] == "mxnet"]
        assert not hasattr(hybrid_lab.gluon.block, "HybridBlock") and not hasattr(hybrid_lab.gluon.nn, "conv_layers")
        compat.install()
        import mxnet
        assert mxnet.gluon.block.HybridBlock is hybrid_lab.gluon.HybridBlock
        """)


def real_mxnet(folder):
    """A folder in which something else is called mxnet."""
    (folder / "mxnet.py").write_text("__version__ = '1.9.1'\n")
    return folder


def test_an_imported_mxnet_is_an_error(tmp_path):
    said = run(f"""
        import sys
        sys.path.insert(0, {str(real_mxnet(tmp_path))!r})
        import mxnet
        try:
            import hybrid_lab.compat
        except ImportError as error:
            print(error)
        """)
    assert "imported already" in said and "mxnet.py" in said and "Restart" in said


def test_an_installed_mxnet_is_a_warning(tmp_path):
    said = run(f"""
        import logging, sys
        sys.path.insert(0, {str(real_mxnet(tmp_path))!r})
        logging.getLogger("hybrid_lab").addHandler(logging.StreamHandler(sys.stdout))
        import hybrid_lab.compat, mxnet
        print(mxnet.gluon.__name__)
        """)
    assert "not the MXNet that is installed" in said and said.endswith("hybrid_lab.gluon")


def test_scripts_and_modules_run_unchanged(tmp_path):
    (tmp_path / "beside.py").write_text("value = 7\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nimport mxnet as mx, beside\n"
        "print(__name__, sys.argv[1:], mx.nd.ones((2,)).asnumpy().tolist(), beside.value)\n"
    )
    expected = "__main__ ['--lr', '1'] [1.0, 1.0] 7"
    assert run("", "-m", "hybrid_lab.compat", str(script), "--lr", "1") == expected
    assert run("", "-m", "hybrid_lab.compat", "-m", "script", "--lr", "1", folder=tmp_path) == expected


@pytest.mark.parametrize("arguments", [[], ["nowhere.py"]])
def test_nothing_to_run_is_a_message(arguments):
    command = [sys.executable, "-m", "hybrid_lab.compat", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120)
    assert done.returncode == 1 and ("usage" in done.stderr or "nowhere.py" in done.stderr)


def test_ipython_extension():
    pytest.importorskip("IPython")
    run("""
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_line_magic("load_ext", "hybrid_lab.compat")
        done = shell.run_cell("import mxnet as mx; answer = mx.nd.zeros((1,)).asscalar()")
        done.raise_error()
        assert shell.user_ns["answer"] == 0
        shell.run_line_magic("unload_ext", "hybrid_lab.compat")
        assert not shell.run_cell("import mxnet.gluon", silent=True).success
        """)
