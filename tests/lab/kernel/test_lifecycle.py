"""A notebook is a living thing: cells run again, classes and methods change, children are replaced, variables go."""

import gc
import weakref

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn
from hybrid_lab.lab.kernel import hooks
from hybrid_lab.lab.kernel.lifecycle import drop_stale
from tests.lab.conftest import CLASS, IMPORTS, MAKE, Net, inputs, make_net


@pytest.fixture
def notes(shell):
    """notes() -> what the lab told the user since the last time."""
    lab = hooks.lab_of(shell)
    told = []
    drop_stale()  # models of other tests that are still alive
    lab.session.note = told.extend
    lab.comms.opened(_Page(), {})

    def take():
        taken, told[:] = list(told), []
        return taken

    return take


class _Page:
    comm_id = "page"

    def on_msg(self, handler):
        pass

    def on_close(self, handler):
        pass

    def send(self, message):
        pass

    def close(self):
        pass


# -- classes -----------------------------------------------------------------------------------------------------------


def test_a_class_that_is_defined_again_is_told_once_and_leaves_no_stale_graph(shell, run, notes):
    run(IMPORTS, CLASS, MAKE)
    old = shell.user_ns["net"]
    assert old._graphs.graphs()
    run(CLASS.replace("self.fc(x)", "self.fc(x) * 2"))
    (note,) = notes()
    assert note == "net was made from an earlier class Net: make net again to run the new code"
    assert not old._graphs.graphs()
    run("1", "2")
    assert notes() == []
    before = run("net(x).asnumpy()")  # the old object keeps its class: eager and hybrid say the same
    assert np.allclose(before, run("net.hybridize(False); net(x).asnumpy()"), rtol=1e-5)
    run(MAKE)
    assert run("np.allclose(net(x).asnumpy(), net.fc(x).asnumpy() * 2)")
    assert notes() == []


def test_running_the_same_class_cell_again_is_no_news(shell, run, notes):
    run(IMPORTS, CLASS, MAKE, CLASS)
    assert notes() == [] and shell.user_ns["net"]._graphs.graphs()
    run(CLASS.replace("nn.Dense(3)", "nn.Dense(4)"))  # only __init__ differs
    assert len(notes()) == 1


def test_class_attributes_count_as_code(run, notes):
    source = CLASS.replace("    def __init__", "    units = 3\n\n    def __init__", 1)
    run(IMPORTS, source, MAKE, source.replace("units = 3", "units = 4"))
    assert len(notes()) == 1


def test_nested_blocks_of_the_old_class_are_named(run, notes):
    run(IMPORTS, CLASS)
    run("outer = nn.HybridSequential(); outer.add(Net(), Net()); outer.initialize(); outer.hybridize(); y = outer(x)")
    run(CLASS.replace("self.fc(x)", "self.fc(x) * 2"))
    (note,) = notes()
    assert note == "outer.0 and 1 more Blocks were made from an earlier class Net: make outer again to run the new code"


def test_one_model_after_running_everything_again(shell, run):
    run(IMPORTS, CLASS, MAKE)
    first = hooks.lab_of(shell).session.models()["models"]
    run(CLASS, MAKE)
    gc.collect()
    second = hooks.lab_of(shell).session.models()["models"]
    assert len(first) == len(second) == 1 and first[0]["id"] != second[0]["id"]


def test_without_a_page_notes_go_to_the_log(run, caplog, monkeypatch):
    import logging

    monkeypatch.setattr(logging.getLogger("hybrid_lab"), "propagate", True)
    run(IMPORTS, CLASS, MAKE)
    with caplog.at_level("INFO", logger="hybrid_lab"):
        run(CLASS.replace("self.fc(x)", "self.fc(x) * 2"))
    assert "made from an earlier class Net" in caplog.text


# -- code that is replaced in place ------------------------------------------------------------------------------------


def test_a_method_assigned_to_the_class_drops_the_graph(shell, run, notes):
    run(IMPORTS, CLASS, MAKE)
    run("Net.hybrid_forward = lambda self, F, x: self.fc(x) * 2")
    assert notes() == ["the code of Net changed: its graph was dropped"]
    assert run("np.allclose(net(x).asnumpy(), net.fc(x).asnumpy() * 2)")


def test_code_replaced_inside_the_function_object_as_autoreload_does(shell, run, notes):
    run(IMPORTS, CLASS, MAKE)
    run("def other(self, F, x):\n    return self.fc(x) * 3\nNet.hybrid_forward.__code__ = other.__code__")
    assert notes() == ["the code of Net changed: its graph was dropped"]
    assert run("np.allclose(net(x).asnumpy(), net.fc(x).asnumpy() * 3)")


def test_a_helper_function_that_is_defined_again(run, notes):
    helper = "def helper(F, x):\n    return F.relu(x) + {}"
    run(IMPORTS, helper.format(1))
    run(CLASS.replace("self.fc(x)", "helper(F, self.fc(x))"), MAKE)
    run(helper.format(1))
    assert notes() == []
    run(helper.format(2))
    assert notes() == ["the code of Net changed: its graph was dropped"]
    assert run("np.allclose(net(x).asnumpy(), np.maximum(net.fc(x).asnumpy(), 0) + 2)")


@pytest.mark.parametrize(
    "refused",
    [
        "return F.contrib.boolean_mask(self.fc(x), F.max(x, axis=1) > 0.5)",
        "self.last = self.fc(x)\n        return self.last * 1",
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_refused_block_is_traced_again_once_its_code_is_mended(shell, run, notes, refused, nested):
    run(IMPORTS, CLASS.replace("return self.fc(x)", refused), MAKE)
    if nested:
        run("outer = nn.HybridSequential(); outer.add(net); outer.hybridize(); outer(x)")
    top = shell.user_ns["outer" if nested else "net"]
    assert not top._graphs.graphs() and top._graph_calls.failures.refuses
    notes()
    run("Net.hybrid_forward = lambda self, F, x: self.fc(x) * 2")
    assert notes() == ["the code of Net changed: it is traced again"]
    assert run(f"np.allclose({'outer' if nested else 'net'}(x).asnumpy(), net.fc(x).asnumpy() * 2)")
    assert top._graphs.graphs() and not top._graph_calls.failures.refuses
    run("1")
    assert notes() == []


def test_the_graphs_around_a_changed_block_go_too(shell, run, notes):
    run(IMPORTS, CLASS)
    run("outer = nn.HybridSequential(); outer.add(Net()); outer.initialize(); outer.hybridize(); y = outer(x)")
    run("Net.hybrid_forward = lambda self, F, x: self.fc(x) * 2")
    assert len(notes()) == 1
    assert not shell.user_ns["outer"]._graphs.graphs()
    assert run("np.allclose(outer(x).asnumpy(), outer[0].fc(x).asnumpy() * 2)")


def test_autoreload_of_a_module(shell, run, notes, tmp_path, monkeypatch):
    """The graph is dropped before the cell that runs right after the file was written."""
    import os

    monkeypatch.syspath_prepend(str(tmp_path))
    source = "from hybrid_lab import gluon\nfrom hybrid_lab.gluon import nn\n" + CLASS
    module = tmp_path / "lab_models_under_test.py"
    module.write_text(source)
    run(
        IMPORTS,
        "%load_ext autoreload",
        "%autoreload 2",
        "import lab_models_under_test as models\nNet = models.Net",
        MAKE,
    )
    module.write_text(source.replace("self.fc(x)", "self.fc(x) * 2"))
    os.utime(module, (2e9, 2e9))
    try:
        assert run("np.allclose(net(x).asnumpy(), net.fc(x).asnumpy() * 2)")
        assert notes() == ["the code of Net changed: its graph was dropped"]
    finally:
        run("%autoreload 0", "%unload_ext autoreload")


def test_models_in_lists_are_watched_as_well(run, notes):
    run(IMPORTS, CLASS, "nets = [Net()]; nets[0].initialize(); nets[0].hybridize(); y = nets[0](x)")
    run("Net.hybrid_forward = lambda self, F, x: self.fc(x) * 2")
    assert len(notes()) == 1
    assert run("np.allclose(nets[0](x).asnumpy(), nets[0].fc(x).asnumpy() * 2)")


def test_graphs_from_a_file_are_not_of_the_code(shell, run, notes):
    run(IMPORTS, CLASS, MAKE, "path = net.save('a'); r = net.load('a', graphs='file'); before = net(x).asnumpy()")
    run("Net.hybrid_forward = lambda self, F, x: self.fc(x) * 2")
    assert notes() == []
    assert run("np.array_equal(net(x).asnumpy(), before)")


# -- children ----------------------------------------------------------------------------------------------------------


def test_a_child_replaced_after_hybridize_drops_the_graphs_of_all_ancestors():
    outer = nn.HybridSequential()
    outer.add(Net(), nn.Dense(2))
    outer.initialize()
    outer.hybridize()
    outer(inputs())
    net, beside = outer[0], outer[1]
    kept = beside._graphs.graphs()
    assert outer._graphs.graphs() and net._graphs.graphs() and net.head._graphs.graphs()
    net.head = nn.Dense(7)
    assert not outer._graphs.graphs() and not net._graphs.graphs() and not outer._graph_calls.programs
    assert beside._graphs.graphs() == kept
    net.head.initialize()
    beside.initialize(force_reinit=True)
    assert net(inputs()).shape == (4, 7)


def test_a_replaced_child_gives_new_numbers_at_once():
    net = make_net()
    net(inputs())
    net.head = nn.Dense(3)
    net.head.initialize()
    hybrid = net(inputs()).asnumpy()
    net.hybridize(False)
    np.testing.assert_allclose(hybrid, net(inputs()).asnumpy(), rtol=1e-5)


def test_a_child_taken_away():
    net = make_net()
    del net.head
    assert not net._graphs.graphs()
    with pytest.raises(AttributeError):
        net(inputs())


def test_a_failed_trace_leaves_no_graph_of_its_children():
    class Half(Net):
        def hybrid_forward(self, F, x):
            return self.head(self.body(x)).asnumpy()

    net = make_net(Half, called=False)
    with pytest.raises(mx.HybridizeError):
        net(inputs())
    assert not any(block._graphs.graphs() for _, block in mx.insight.states.hybrid_blocks(net))


# -- the end of a model ------------------------------------------------------------------------------------------------


def test_deleting_the_variable_frees_the_model(page, namespace):
    net = namespace["net"] = make_net()
    page.ok("save", model="m1", file="", overwrite=False)
    page.ok("tree", model="m1")
    page.ok("graph", model="m1", path="body", program="traced")
    page.ok("explain", model="m1")
    page.ok("reload", model="m1", file="", graphs="file")  # with an undo that is never taken
    gone = weakref.ref(net), weakref.ref(net.head), weakref.ref(net._graphs)
    del net, namespace["net"]
    gc.collect()
    assert [reference() for reference in gone] == [None, None, None]
    assert page.ok("models")["models"] == []
    assert page.error("tree", model="m1")["code"] == "unknown-model"


def test_deleting_the_variable_frees_the_model_in_a_shell(shell, run):
    run(IMPORTS, CLASS, MAKE, "import gc, weakref\ngone = weakref.ref(net)\nview = mx.view(net)")
    hooks.lab_of(shell).push()
    run("del net, y", "gc.collect();")
    assert shell.user_ns["gone"]() is None
    assert "net is gone: its variable was deleted" in shell.user_ns["view"].static_html()


def test_replaced_models_go(shell, run):
    run(IMPORTS, CLASS, MAKE, "import gc, weakref\ngone = weakref.ref(net)", CLASS, MAKE, "gc.collect();")
    assert shell.user_ns["gone"]() is None


def test_a_circle_of_blocks_does_not_hang(page, namespace):
    class Loop(gluon.Block):
        pass

    one, two = Loop(), Loop()
    one.two, two.one = two, one
    namespace |= {"one": one, "two": two}
    assert [model["name"] for model in page.ok("models")["models"]] == ["one"]
    assert page.ok("tree", model="m1")["root"]["children"][0]["children"][0]["shared_with"] == ""
