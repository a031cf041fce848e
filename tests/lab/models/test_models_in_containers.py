"""Models that no variable holds itself: in lists, dicts, objects and functions."""

import gc

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn
from hybrid_lab.lab.kernel import hooks
from hybrid_lab.lab.models.registry import Registry
from hybrid_lab.lab.picture.graph_view import graph_view
from tests.lab.conftest import IMPORTS

MLP = """
from hybrid_lab.gluon import nn
def mlp(*units):
    net = nn.HybridSequential()
    net.add(*[nn.Dense(unit) for unit in units])
    net.initialize()
    net.hybridize(engine="numpy")
    return net
z, real = nd.ones((2, 5)), nd.ones((2, 3))
"""


def mlp(*units):
    net = nn.HybridSequential()
    net.add(*[nn.Dense(unit, in_units=3) for unit in units])
    net.initialize()
    return net


class Holder:
    def __init__(self, **held):
        self.__dict__.update(held)


class Slotted:
    __slots__ = ("decoder", "encoder")


class Trap:
    """An object that raises whatever is asked of it."""

    def __getattribute__(self, name):
        raise RuntimeError(name)


def models(namespace):
    return {entry.name: entry for entry in Registry(lambda: namespace).refresh()}


def listed(namespace):
    return {name: entry.held for name, entry in models(namespace).items()}


def children(entry):
    return [*entry.block._children]


def test_a_list_and_a_dict_are_models():
    registry = {"nets": [mlp(3), mlp(4)], "gan": {"gen": mlp(3), "dis.1": mlp(1)}, "pair": (mlp(2), mlp(2))}
    held = Registry(lambda: registry)
    found = {entry.name: entry for entry in held.refresh()}
    assert {name: children(entry) for name, entry in found.items()} == {
        "nets": ["0", "1"], "gan": ["gen", "dis_1"], "pair": ["0", "1"],
    }  # fmt: skip
    assert [entry.held for entry in found.values()] == ["", "", ""]


def test_objects_with_blocks_as_attributes_are_models():
    slotted = Slotted()
    slotted.encoder, slotted.decoder = mlp(3), mlp(4)
    inside = Holder(nets=[mlp(3)], out=mlp(2), other=5)
    namespace = {"t": Holder(encoder=mlp(3), decoder=mlp(4)), "s": slotted, "i": inside}
    held = Registry(lambda: namespace)
    found = {entry.name: children(entry) for entry in held.refresh()}
    assert found == {"t": ["encoder", "decoder"], "s": ["decoder", "encoder"], "i": ["nets_0", "out"]}


def test_what_is_no_model_of_its_own():
    net, other = mlp(3), mlp(4)
    assert listed({"net": net, "layers": [net[0], net]}) == {"net": ""}, "parts, and one that has a variable"
    assert listed({"one": [net]}) == {"one[0]": "in the list one"}
    assert listed({"a": net, "b": other, "nets": [net, other]}) == {
        "a": "", "b": "", "nets": "its Blocks have variables of their own",
    }  # fmt: skip
    assert listed({"losses": [gluon.loss.L2Loss()], "_nets": [mlp(3)], "Out": {1: mlp(3)}}) == {}
    assert listed({"trap": Trap(), "numbers": [*range(10000)], "module": mx, "kind": Holder, "empty": {}}) == {}


def test_a_group_holds_its_blocks_weakly_and_follows_its_list():
    namespace = {"nets": [mlp(3), mlp(4)]}
    held = Registry(lambda: namespace)
    (entry,) = held.refresh()
    revision, identity = entry.revision, entry.id
    namespace["nets"].append(mlp(5))
    (entry,) = held.refresh()
    assert (entry.id, children(entry)) == (identity, ["0", "1", "2"]) and entry.revision > revision
    assert entry.facts.shown["blocks"] == 6, "the list is no Block"
    revision = entry.revision
    held.refresh()
    assert entry.revision == revision
    namespace["nets"][2].add(nn.Dense(2))
    held.refresh()
    assert entry.facts.shown["blocks"] == 7 and entry.revision > revision
    block = entry.block
    namespace["nets"].clear()
    gc.collect()
    assert not block._children
    assert held.refresh() == []


def test_a_group_is_saved_compared_and_reloaded_as_one(page, namespace):
    namespace["gan"] = {"gen": mlp(3), "dis": mlp(1)}
    for net in namespace["gan"].values():
        net.hybridize(engine="numpy")
        net(nd.ones((2, 3)))
    (model,) = page.ok("models")["models"]
    assert (model["name"], model["class"], model["file"], model["graphs"]) == ("gan", "dict", "gan.hlab", 4)
    saved = page.ok("save", model=model["id"], file="gan.hlab", overwrite=False)
    assert "no data" not in str(saved), "how a group holds its Blocks is no attribute of the user's"
    before = namespace["gan"]["gen"][0].weight.data().asnumpy()
    namespace["gan"]["gen"][0].weight.set_data(nd.ones((3, 3)))
    report = page.ok("compare", model=model["id"], file="gan.hlab")
    assert "gen.0.weight" in str(report)
    page.ok("reload", model=model["id"], file="gan.hlab", graphs="code")
    assert (namespace["gan"]["gen"][0].weight.data().asnumpy() == before).all()
    loaded = gluon.load("gan.hlab")
    assert loaded.gen(nd.ones((2, 3))).shape == (2, 3)
    assert not any(hasattr(loaded, name) for name in ("_members", "_versions"))


def test_the_picture_of_a_gan_is_how_a_cell_called_its_nets(shell, run):
    run(
        IMPORTS,
        MLP,
        "gan = {'gen': mlp(4, 3), 'dis': mlp(4, 1)}; loss = gluon.loss.SigmoidBCELoss()",
        """for step in range(5):
    with autograd.record():
        fake = gan["gen"](z)
        errors = loss(gan["dis"](real), nd.ones((2, 1))) + loss(gan["dis"](nd.relu(fake)), nd.zeros((2, 1)))
    errors.backward()""",
        "real + 1",
    )
    (entry,) = (each for each in hooks.lab_of(shell).session.registry.refresh() if each.name == "gan")
    reply = graph_view(entry.block, "")
    assert [box["label"] for box in reply["boxes"] if not box["parent"]] == [
        "gen, 5 calls", "dis, 5 calls", "dis (2), 5 calls",
    ]  # fmt: skip
    assert reply["summary"] == "15 calls of 2 graphs, 4 operators"
    boxes = {node["id"]: node["block"] for node in reply["nodes"]}
    flows = {(boxes[read["node"]], node["block"]) for node in reply["nodes"] for read in node["inputs"]}
    assert ("gen.1", "dis.0") in flows and ("dis.1", "gen.0") not in flows
    run("for step in range(500): gan['gen'](z)")
    hooks.lab_of(shell).session.registry.refresh()
    assert [box["label"] for box in graph_view(entry.block, "")["boxes"] if not box["parent"]] == ["gen, 64+ calls"]


def test_a_model_in_a_function_is_listed_while_it_lives(shell, run):
    run(IMPORTS, MLP, "session = None")
    session = hooks.lab_of(shell).session
    shell.user_ns["seen"] = lambda: [
        (model["class"], model["held"], session.models()["saving"][model["id"]]["left_out"])
        for model in session.models()["models"]
    ]
    found = run(
        """def train():
    net, loss = mlp(3), gluon.loss.L2Loss()
    loss(net(real), real)
    return seen()
train()"""
    )
    assert found == [("HybridSequential", "in a function", "in a function")]
    gc.collect()
    assert session.models()["models"] == []
    run("real + 1")
    assert session.models()["models"] == []


def test_a_model_that_had_a_variable_or_is_a_part_is_in_no_function(shell, run):
    run(IMPORTS, MLP)
    session = hooks.lab_of(shell).session
    run("net = mlp(3); net(real); keep = net.collect_params(); _old = net")
    run("net = mlp(4); net(real); net[0](real);")
    assert [(model["name"], model["held"]) for model in session.models()["models"]] == [("net", "")]
    run("_hidden = mlp(2); _hidden(real);")
    assert [model["held"] for model in session.models()["models"]] == ["", "in a function"]
    run("del _hidden")
    assert [model["held"] for model in session.models()["models"]] == [""]


def test_many_calls_of_a_cell_cost_no_memory(shell, run):
    run(IMPORTS, MLP, "net = mlp(3)", "for _ in range(2000): net(real)")
    from hybrid_lab.gluon.call_record import cell

    assert len(cell.last.items) <= 65 and not cell.last.is_whole


@pytest.mark.parametrize("code", ["net.run(real)", "net.encoder(real); 1 / 0"])
def test_a_cell_that_fails_is_noted(shell, run, code):
    run(
        IMPORTS,
        MLP,
        """class Net:
    def __init__(self): self.encoder, self.decoder = mlp(3), mlp(2)
    def run(self, x):
        return self.decoder(self.encoder(x).reshape((-1, 1, 3, 1)).swapaxes(1, 2)[:, 5])
net = Net()""",
    )
    with pytest.raises(Exception):  # noqa: B017 - whatever the code raises
        run(code)
    (entry,) = hooks.lab_of(shell).session.registry.refresh()
    assert [box["label"] for box in graph_view(entry.block, "")["boxes"] if not box["parent"]][0] == "encoder"


def test_lists_that_share_a_model_say_so_and_save_it_into_both_files(page, namespace):
    shared, one, other = mlp(3), mlp(3), mlp(3)
    namespace.update(first=[shared, one], second={"enc": shared, "own": other})
    for net in (shared, one, other):
        net.hybridize()
        net(nd.ones((2, 3)))
    found = page.ok("models")["models"]
    assert [(each["name"], each["also"]) for each in found] == [
        ("first", "shares first[0] with second"),
        ("second", 'shares second["enc"] with first'),
    ]
    first, second = (each["id"] for each in found)
    for model, file in ((first, "first"), (second, "second")):
        page.ok("save", model=model, file=file, overwrite=False)
    shared[0].bias.set_data(nd.ones(3))
    changed = lambda: [page.ok("answers", model=model)["change"]["changed"] for model in (first, second)]
    assert changed() == [1, 1]
    page.ok("reload", model=first, file="first", graphs="code")
    assert changed() == [0, 0], "one model: it is as it was for both"
    # Part of one list, or with a variable of its own, a model is saved once, which the panel says elsewhere.
    namespace.update(every=[shared, one, other])
    assert {each["name"]: each["also"] for each in page.ok("models")["models"]}["every"] == ""


@pytest.mark.parametrize("name", ["top", "nets", "gan", "parts"])
def test_plain_tops_have_every_overlay_and_one_number_of_changes(page, namespace, name):
    """A plain Block, a list, an object and a dict: banner and Compare count the same, and Undo takes a reload back."""
    one, two = mlp(3), mlp(3)
    if name == "top":
        namespace[name] = nn.Sequential()
        namespace[name].add(one, two)
    else:
        held = {"nets": [one, two], "gan": Holder(gen=one, dis=two), "parts": {"a": one, "b": two}}
        namespace[name] = held[name]
    for net in (one, two):
        net.hybridize()
    two(one(nd.ones((2, 3)))) if name != "top" else namespace[name](nd.ones((2, 3)))
    (model,) = page.ok("models")["models"]
    assert (model["name"], model["file"]) == (name, f"{name}.hlab")
    page.ok("save", model=model["id"], file=name, overwrite=False)
    one[0].bias.set_data(nd.ones(3))
    two[0].weight.set_data(two[0].weight.data() + 0)
    difference = page.ok("compare", model=model["id"], file=name)["difference"]
    assert difference["summary"] == "1 tensor changed"
    assert page.ok("answers", model=model["id"])["change"]["changed"] == 1
    for kind in ("time", "memory", "values", "gradients", "engine"):
        reply = page.ok("overlay", model=model["id"], path="", program="", kind=kind, data="")
        assert reply["headline"] or reply["missing"], kind
    reply = page.ok("reload", model=model["id"], file=name, graphs="code")
    assert page.ok("answers", model=model["id"])["change"]["changed"] == 0
    page.ok("undo", model=model["id"], undo=reply["undo"])
    assert one[0].bias.data().asnumpy().tolist() == [1, 1, 1]
