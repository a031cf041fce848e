"""Models of rank 0 in the lab: their names, who answers questions about them, and what is refused."""

import pytest

import hybrid_lab as mx
from hybrid_lab.gluon import nn
from hybrid_lab.lab.distributed.board import board
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.kernel.session import Session


class First:
    """A lab of rank 0, in this process."""

    def __init__(self, session):
        self.session, self.asked = session, []

    def ask_first(self, kind, body):
        self.asked.append(kind)
        return dict(getattr(self.session, f"_on_{kind}")(body))  # `ask` would look at the same board


@pytest.fixture
def first():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net(mx.nd.ones((1, 3)))
    first = First(Session(lambda: {"net": net}, kernel="other"))
    board.connect(first)
    board.look()
    yield first
    board.clear()


def test_models_of_rank_0_are_listed_and_answered(first):
    own = nn.Dense(4, in_units=1)
    own.initialize()
    session = Session(lambda: {"own": own}, kernel="this")
    rows = session.ask("models", {})["models"]
    assert [row["name"] for row in rows] == ["own", "net (rank 0)"]
    of_first = {"model": rows[1]["id"]}
    tree = session.ask("tree", of_first)
    assert (tree["model"]["name"], tree["root"]["class"]) == ("net (rank 0)", "Dense")
    assert session.ask("changes", {**of_first, "since": rows[1]["revision"]})["model"]["name"] == "net (rank 0)"
    assert session.ask("graph", {**of_first, "path": "", "program": ""})["nodes"]
    assert first.asked == ["models", "tree", "changes", "graph"]


@pytest.mark.parametrize("kind", ["reload", "restore", "undo", "watch_nan"])
def test_what_would_change_one_worker_alone_is_refused(first, kind):
    model = board.models["models"][0]["id"]
    with pytest.raises(RequestError, match="alone would make the workers differ"):
        Session(dict, kernel="this").ask(kind, {"model": model})
    assert kind not in first.asked


def test_nothing_is_left_after_the_end(first):
    board.clear()
    session = Session(dict, kernel="this")
    assert session.ask("models", {})["models"] == []
    assert session.ask("workers", {})["workers"] == []
