"""Nodes of unrolled cells have MXNet's names; names.json has those that the real MXNet 1.9.1 gives."""

import importlib.util
import json
from pathlib import Path

import pytest

import hybrid_lab as mx

HERE = Path(__file__).parents[2] / "golden" / "rnn"
NAMES = json.loads((HERE / "names.json").read_text(encoding="utf-8"))
spec = importlib.util.spec_from_file_location("cell_cases", HERE / "cell_cases.py")
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)


def without_making_of_states(names: list[str]) -> list[str]:
    """Zeros of the batch's size take more than one node here: `c_begin_state_0_batch` and others before it."""
    return [name for name in names if not name.endswith(("_batch", "_swapped", "_zeros", "_one"))]


@pytest.mark.parametrize("case", NAMES["gluon"])
def test_gluon_cells(case):
    names = cases.names_of(mx, *cases.gluon_cells(mx)[case])
    assert sorted(without_making_of_states(names)) == sorted(NAMES["gluon"][case])


@pytest.mark.parametrize("case", NAMES["symbol"])
def test_cells_on_symbols(case):
    names = cases.names_of(mx, *cases.symbol_cells(mx)[case])
    assert sorted(without_making_of_states(names)) == sorted(NAMES["symbol"][case])


def test_a_cell_of_the_user_names_its_nodes_by_the_step():
    class Cell(mx.gluon.rnn.HybridRecurrentCell):
        def state_info(self, batch_size=0):
            return [{"shape": (batch_size, 3), "__layout__": "NC"}]

        def hybrid_forward(self, F, x, states):
            output = F.broadcast_add(x, states[0], name=f"t{self._counter}_out")
            return output, [output]

    cell = Cell(prefix="mine_")
    outputs, _ = cell.unroll(3, mx.sym.var("x"))
    assert [output.name for output in outputs] == ["mine_t0_out", "mine_t1_out", "mine_t2_out"]
    x = mx.nd.ones((2, 3))
    _, states = cell(x, cell.begin_state(2))
    cell(x, states)
    assert cell._counter == 4
    cell.reset()
    assert cell._counter == -1


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
def test_begin_states_can_be_inputs(kind):
    cell = getattr(mx.gluon.rnn, kind)(4, prefix="c_")
    states = cell.begin_state(func=mx.sym.var)
    assert [state.name for state in states] == [f"c_begin_state_{number}" for number in range(len(states))]
    outputs, _ = cell.unroll(2, mx.sym.var("x"), states, merge_outputs=True)
    assert outputs.infer_shape(x=(3, 2, 5))[1] == [(3, 2, 4)]


@pytest.mark.parametrize("activation", [mx.gluon.nn.LeakyReLU(0.3), lambda x, name: x * 2])
def test_activations_may_be_functions(activation):
    cell = mx.gluon.rnn.LSTMCell(4, activation=activation)
    cell.initialize()
    x = mx.nd.random.normal(shape=(2, 3, 5))
    eager = cell.unroll(3, x, merge_outputs=True)[0].asnumpy()
    cell.hybridize(engine="numpy")
    assert abs(cell.unroll(3, x, merge_outputs=True)[0].asnumpy() - eager).max() < 1e-6


def test_counting_steps_makes_no_graph_stale(caplog):
    cell = mx.gluon.rnn.RNNCell(4, prefix="c_")
    cell.initialize()
    cell.hybridize(engine="numpy")
    x = mx.nd.ones((2, 3, 5))
    cell.unroll(3, x)
    with mx.autograd.record():  # another program of the same trace
        cell.unroll(3, x)
    assert "changed since the trace" not in caplog.text
