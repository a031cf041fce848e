"""One model under several names: one row, with the name that finds it again, saved once."""

import pytest

import hybrid_lab as mx
from hybrid_lab import nd
from hybrid_lab.gluon import nn
from hybrid_lab.lab.kernel import hooks
from hybrid_lab.lab.models.registry import Registry
from hybrid_lab.lab.models.variables import is_leftover
from hybrid_lab.lab.saving.file_names import name_for
from tests.lab.conftest import IMPORTS

MLP = """
def mlp(*units):
    net = nn.HybridSequential()
    net.add(*[nn.Dense(unit, in_units=5) for unit in units or (3,)])
    net.initialize()
    net.hybridize(engine="numpy")
    net(x)
    return net
class Holder: pass"""

DICT = "nets = {'gen': mlp(), 'dis': mlp()}"
LIST = "nets = [mlp(), mlp()]"

#: Cells -> {name: (held, also)} of the rows, and the files of "Save every model".
WAYS = {
    "two variables": (["net = other = mlp()"], {"net": ("", "also other")}, ["net"]),
    "a loop over the values of a dict": (
        [DICT, "for net in nets.values(): net(x)"],
        {"nets": ("", 'net is nets["dis"]')},
        ["nets"],
    ),
    "over its items": (
        [DICT, "for key, net in nets.items():\n    net(x)"],
        {"nets": ("", 'net is nets["dis"]')},
        ["nets"],
    ),
    "over a list, left early": (
        [LIST, "for i, net in enumerate(nets):\n    break"],
        {"nets": ("", "net is nets[0]")},
        ["nets"],
    ),
    "in a cell with a magic": (
        [LIST, "%%time\nfor net in nets:\n    net(x)"],
        {"nets": ("", "net is nets[1]")},
        ["nets"],
    ),
    "over two lists": (
        [LIST, "for net, size in zip(nets, (1, 2)):\n    if size:\n        net(x)"],
        {"nets": ("", "net is nets[1]")},
        ["nets"],
    ),
    "a loop that fills a list": (
        ["nets = []\nfor size in (1, 2):\n    net = mlp(size)\n    nets.append(net)"],
        {"nets": ("", "net is nets[1]")},
        ["nets"],
    ),
    "a loop over one": (
        ["nets = [mlp()]\nfor net in nets: net(x)"],
        {"nets[0]": ("in the list nets", "also net")},
        ["nets[0]"],
    ),
    "a loop, then chosen by hand": (
        [LIST, "for net in nets: net(x)", "best = net"],
        {"best": ("", "also net, nets[1]"), "nets": ("", "")},
        ["nets"],
    ),
    "a variable that is put into a list with others": (
        ["student = mlp()", "nets = [student, mlp()]"],
        {"student": ("", "also nets[0]"), "nets": ("", "")},
        ["nets"],
    ),
    "a variable that is put into a list alone": (["net = mlp(); nets = [net]"], {"net": ("", "also nets[0]")}, ["net"]),
    "variables for all of a dict, and a loop": (
        ["a, b = mlp(), mlp(); nets = {'a': a, 'b': b}", "for net in nets.values(): net(x)"],
        {"a": ("", ""), "b": ("", "also net"), "nets": ("its Blocks have variables of their own", "")},
        ["a", "b"],
    ),
    "one list in two variables": ([LIST + "; same = nets"], {"nets": ("", "also same")}, ["nets"]),
    "two containers of the same": (
        [LIST, "named = {'a': nets[0], 'b': nets[1]}"],
        {"nets": ("", "also named")},
        ["nets"],
    ),
    "a part of a list": (
        ["nets = [mlp(), mlp(), mlp()]", "two = nets[:2]"],
        {"nets": ("", ""), "two": ("", "")},
        ["nets"],
    ),
    "an attribute": (["gan = Holder(); gan.gen = mlp(); gen = gan.gen"], {"gen": ("", "also gan.gen")}, ["gen"]),
    "a comprehension": ([LIST, "[net(x) for net in nets]"], {"nets": ("", "")}, ["nets"]),
    "a part of another": (["net = mlp(); first = net[0]"], {"net": ("", "")}, ["net"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_one_object_is_one_row_and_saved_once(shell, run, way, tmp_path):
    cells, rows, files = WAYS[way]
    run(IMPORTS, MLP, *cells)
    session = hooks.lab_of(shell).session
    found = session.models()["models"]
    assert {model["name"]: (model["held"], model["also"]) for model in found} == rows
    report = mx.lab.save_all()
    assert [row["model"] for row in report.data()["rows"] if row["ok"]] == files
    assert sorted(path.name for path in tmp_path.glob("*.hlab")) == sorted(map(name_for, files))
    saving = session.models()["saving"]
    assert [model["name"] for model in found if not saving[model["id"]]["left_out"]] == files
    assert len(mx.lab.reload_all().data()["rows"]) == len(files)


def net():
    made = nn.HybridSequential()
    made.add(nn.Dense(2))
    return made


def test_without_the_code_a_variable_of_one_among_others_is_a_loops():
    one, two = net(), net()
    rows = {entry.name: entry.also for entry in Registry(lambda: {"nets": {"a": one, "b": two}, "net": two}).refresh()}
    assert rows == {"nets": 'net is nets["b"]'}
    rows = {entry.name: entry.also for entry in Registry(lambda: {"nets": [one], "net": one}).refresh()}
    assert rows == {"net": "also nets[0]"}


def test_what_binds_a_variable_last():
    for source, expected in {
        "for a in b: pass": True,
        "for a in b: pass\na = 1": False,
        "a = 1\nfor a in b: pass": True,
        "while (a := f()): pass": True,
        "[a for a in b]": None,
        "[(a := c) for c in b]": True,
        "def f():\n    for a in b: pass": None,
        "with f() as a: pass": False,
        "for i in b:\n    with f() as (a, c): pass": True,
        "for x.a in b: pass": None,
        "get_ipython().run_cell_magic('time', '', 'for a in b: pass')": True,
        "get_ipython().run_cell_magic('time', '', 'a = 1')": False,
        "for a in": None,
        "if c:\n    for a, d in b: pass\nelse:\n    e = 1": True,
        "(" * 500: None,
    }.items():
        assert is_leftover("a", [source]) is expected, source
    assert is_leftover("a", ["for a in b: pass", "c = 1"]) is True
    assert is_leftover("a", ["for a in b: pass", "a = 1"]) is False


def test_a_view_of_a_model_whose_variable_has_another_one(namespace, page):
    first = namespace["net"] = net()
    registry = page.session.registry
    assert registry.show(first).held == ""
    namespace["net"] = net()
    old, new = registry.refresh()
    assert (old.name, old.held, old.left_out != "") == ("net", "in a view", True)
    assert (new.name, new.held) == ("net", "") and new.id != old.id


def test_the_first_block_that_failed_is_told_of_every_model(namespace, page):
    from tests.lab.conftest import Stubborn

    top = nn.HybridSequential()
    top.add(nn.Dense(2), Stubborn())
    top.initialize()
    top.hybridize()
    namespace["good"], namespace["bad"] = net(), top
    with pytest.raises(mx.diagnostics.HybridizeError):
        top(nd.ones((2, 2)))
    found = {model["name"]: model["failed"] for model in page.ok("models")["models"]}
    assert found["good"] is None
    assert (found["bad"]["path"], found["bad"]["count"]) == ("1", 1) and "HL101" in found["bad"]["why"]
    top.hybridize(False)
    assert page.ok("models")["models"][1]["failed"] is None
