"""Each name of a Block that the panel shows is code that gives the Block in the notebook."""

import enum

import pytest

from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics.formatting import about, called
from hybrid_lab.gluon import nn
from hybrid_lab.insight.states import block_at
from hybrid_lab.lab.kernel import hooks
from tests.lab.conftest import IMPORTS


class Key(enum.Enum):
    """A key without a literal."""

    A = 1


class Outer(gluon.Block):
    """Children by attribute, by name alone, by number alone, and from lists and dicts in attributes."""

    def __init__(self):
        super().__init__()
        self.head = nn.Dense(2)
        self.__hidden = nn.Dense(2)
        setattr(self, "my layer", nn.Dense(2))
        setattr(self, "class", nn.Dense(2))
        self.register_child(nn.Dense(2))
        self.register_child(nn.Dense(2), "a.b")
        self.register_child(nn.Dense(2), "quo\"te's")
        self.layers = [nn.Dense(2), [nn.Dense(2)]]
        self.named = {"gen": nn.Dense(2), 3: (nn.Dense(2),), Key.A: nn.Dense(2)}
        for block in (self.layers[0], self.layers[1][0], self.named["gen"], self.named[3][0], self.named[Key.A]):
            self.register_child(block)
        self.body = nn.HybridSequential()
        self.body.add(nn.Dense(2), nn.Dense(2))


class Holder:
    """An object of the user's, with an attribute that a property hides."""

    hidden = property(lambda self: None)

    def __init__(self):
        vars(self).update(encoder=nn.Dense(2), parts=[nn.Dense(2)], hidden=nn.Dense(2), **{"my part": nn.Dense(2)})


KEYS = ["gen", "it's", 'say "a"', "a.b", "", 1, -2, 2.5, float("inf"), True, None, (1, "a"), (1,), b"x", Key.A, nd]


NAMESPACES = {
    "attributes": lambda: {"net": Outer()},
    "a list": lambda: {"nets": [Outer(), nn.Dense(2), (nn.Dense(2), nn.Dense(2))]},
    "one in a list": lambda: {"one": [Outer()]},
    "one in a dict": lambda: {"one": {"gen": [Outer()]}},
    "a dict": lambda: {"zoo": {key: nn.Dense(2) for key in KEYS}},
    "dicts in a dict": lambda: {"zoo": {"gen": [nn.Dense(2), Outer()], Key.A: {"x": nn.Dense(2)}}},
    "an object": lambda: {"holder": Holder()},
    "names that are no identifiers": lambda: {"my net": Outer(), "class": nn.Dense(2), "my nets": [nn.Dense(2)] * 2},
}


def shown(node, code):
    """(path, name) of a tree as the front end names its Blocks."""
    yield node["path"], code
    for child, (before, after) in zip(node["children"], node["codes"], strict=True):
        yield from shown(child, before + code + after)


@pytest.mark.parametrize("kind", NAMESPACES)
def test_each_name_gives_its_block(page, namespace, kind):
    namespace.update(NAMESPACES[kind]())
    namespace["Key"] = Key
    registry, count = page.session.registry, 0
    for model in page.ok("models")["models"]:
        net = registry.get(model["id"]).block
        root = page.ok("tree", model=model["id"])["root"]
        assert root["attr"] == model["name"]
        for path, code in shown(root, root["attr"]):
            if path or not root["group"]:
                block = block_at(net, path)
                assert eval(code, namespace) is block, code  # noqa: S307 - this is what the names are for
                assert eval(registry.called(net, path), namespace) is block  # noqa: S307
                assert eval(registry.called(block), namespace) is block  # noqa: S307
                count += 1
        assert model["blocks"] == sum(not node["group"] for node in nodes(root))
    assert count >= 2


def nodes(node):
    yield node
    for child in node["children"]:
        yield from nodes(child)


def test_blocks_in_a_list_of_a_plain_block_are_in_that_list(shell, run):
    run(
        IMPORTS,
        """class Plain(gluon.Block):
    def __init__(self):
        super().__init__()
        self.head = nn.Dense(2)
        self.blocks = [nn.Dense(2), nn.Dense(2)]
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)
net = Plain()
for block in (net, *net.blocks): block.initialize()
del block
net(x)""",
    )
    session = hooks.lab_of(shell).session
    found = {model["name"]: model["held"] for model in session.models()["models"]}
    assert found == {
        "net": "", "net.blocks[0]": "in the list net.blocks", "net.blocks[1]": "in the list net.blocks",
    }  # fmt: skip
    assert called(shell.user_ns["net"].blocks[1]) == "net.blocks[1]"


def test_a_block_of_two_models_is_named_in_the_model_that_is_called_or_looked_at(shell, run):
    run(
        IMPORTS,
        """class Wrong(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        raise ValueError("wrong")
shared = Wrong()
first, second = nn.Sequential(), nn.Sequential()
first.add(nn.Dense(2), shared); second.add(shared)
first.initialize()
del shared""",
    )
    for call, name in {"first(x)": "first[1]", "second(x)": "second[0]"}.items():
        with pytest.raises(ValueError, match="wrong") as raised:
            run(call)
        assert raised.value.__notes__ == [f"in block {name} (Wrong)"]
    first, second = shell.user_ns["first"], shell.user_ns["second"]
    with about(second):
        assert called(second[0]) == "second[0]"
    with about(first):
        assert called(second[0]) == "first[1]"


def test_reports_are_called_by_the_variable(run):
    run(IMPORTS, "net = nn.HybridSequential(); net.add(nn.Dense(2)); net.initialize(); net.hybridize(); net(x)")
    for call in ("explain(net[0])", "compare(net[0], x)", "summary(net[0], x)", "profile(net[0], x)"):
        report = run(f"str(mx.{call})")
        assert report.startswith("net[0]") and "dense" not in report, call
    run("net.save('a.hlab'); net[0].bias.set_data(nd.ones(2))")
    assert run("str(mx.diff('a.hlab', net))").startswith("a.hlab -> net: 1 tensor")
