"""Progress bars: drawn for long work only, on terminals and in cells, and gone when the work is done."""

import io
import subprocess
import sys

import pytest
import tqdm

from hybrid_lab.system import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def drawn(bar):
    """The bar after two seconds with two kernels done."""
    bar.step(1, "scaled")
    bar._started -= 2
    bar.step(2, "scaled")


def test_a_bar_is_drawn_after_a_second_and_leaves_nothing(monkeypatch):
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    bar = progress.Progress("compiling for gfx942", 4)
    bar.step(1, "scaled")
    assert seen.getvalue() == ""
    drawn(bar)
    bar._bar.refresh()
    assert "compiling for gfx942:  50%" in seen.getvalue() and "2/4" in seen.getvalue() and "scaled" in seen.getvalue()
    bar.close()
    assert seen.getvalue().split("\r")[-2].strip() == "" == seen.getvalue().split("\r")[-1]


def test_a_cell_without_widgets_gets_no_red_bar(monkeypatch):
    """A notebook shows standard error on a red ground."""
    streams = {name: type("OutStream", (Terminal,), {"__module__": "ipykernel.iostream"})() for name in ("out", "err")}
    monkeypatch.setattr(sys, "stdout", streams["out"])
    monkeypatch.setattr(sys, "stderr", streams["err"])
    monkeypatch.setattr("tqdm.auto.tqdm", tqdm.tqdm)
    bar = progress.Progress("compiling", 4)
    drawn(bar)
    bar.close()
    assert "compiling" in streams["out"].getvalue() and streams["err"].getvalue() == ""


def test_a_file_and_a_missing_stream_get_no_bar(tmp_path, monkeypatch):
    with open(tmp_path / "log", "w") as file:
        for stream in (file, None):
            monkeypatch.setattr(sys, "stderr", stream)
            bar = progress.Progress("compiling", 4)
            drawn(bar)
            bar.close()
    assert (tmp_path / "log").read_text() == ""


CELL = """
import hybrid_lab as mx
from hybrid_lab.system.progress import Progress
bar = Progress("compiling for <gfx942>", 4)
bar._started -= 2
bar.step(2, "scaled")
drawn = [part.value for part in bar._bar.container.children]
bar.close()
print(*drawn)
"""


def test_a_cell_gets_a_widget_that_leaves_an_empty_output():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbclient.NotebookClient(notebook, kernel_name="python3", timeout=60).execute()
    empty, result = notebook.cells[0].outputs
    assert empty.data == {"text/plain": "", "text/html": ""}
    assert "compiling for &lt;gfx942&gt;:" in result.text.replace("\u2007", " ") and "2.0" in result.text


def test_importing_the_package_loads_no_tqdm():
    code = "import sys, hybrid_lab; assert not any(name.startswith('tqdm') for name in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


def test_an_import_from_torch_says_what_torch_is_doing(monkeypatch):
    torch = pytest.importorskip("torch")
    from hybrid_lab.torch import imports, stages

    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    monkeypatch.setattr(stages, "_LARGE", 0)
    imports(torch.nn.Linear(3, 2), torch.ones(2, 3))
    text = seen.getvalue()
    for words in ("importing Linear", "torch exports it for prediction", "for training", "takes its operators apart"):
        assert words in text
    assert text.split("\r")[-1].strip() == "" and stages._running.bar is None
    before = len(text)
    monkeypatch.setattr(stages, "_LARGE", 1000)
    monkeypatch.setattr(stages, "PATIENCE", 1000)
    imports(torch.nn.Linear(3, 2), torch.ones(2, 3))
    assert len(seen.getvalue()) == before  # a quick one says nothing


def test_a_long_import_of_an_onnx_file_says_how_far_it_is(monkeypatch, tmp_path):
    pytest.importorskip("onnx")
    import hybrid_lab as mx
    from hybrid_lab import nd
    from hybrid_lab.gluon import nn
    from hybrid_lab.onnx.reading import compose

    net = nn.HybridSequential()
    net.add(*(nn.Dense(3, activation="relu") for _ in range(40)))
    net.initialize()
    net.hybridize(engine="numpy")
    net(nd.ones((1, 3)))
    path = mx.onnx.export(net, str(tmp_path / "net.onnx"), nd.ones((1, 3)))
    steps = []
    monkeypatch.setattr(compose, "_TOLD", 8)
    monkeypatch.setattr(progress.Progress, "step", lambda self, done, current="": steps.append((done, current)))
    compose.compose(str(tmp_path / "net.onnx"), by_nodes=True)
    assert [done for done, _ in steps] == [*range(0, 8 * len(steps), 8)] and len(steps) > 4 and path
