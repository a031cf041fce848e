"""RNN, LSTM and GRU with random settings against torch.nn in float64: outputs, states, gradients; layers as cells."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from tests.reference.closeness import ENGINES, differences
from tests.reference.golden import cell_cases

torch = pytest.importorskip("torch")
sequences = torch.nn.utils.rnn

SEEDS = 12
KINDS = ("RNN", "LSTM", "GRU")


def settings(kind, seed):
    rng = np.random.RandomState(1000 * KINDS.index(kind) + seed)
    chosen = {
        "hidden_size": int(rng.randint(1, 5)),
        "num_layers": int(rng.randint(1, 4)),
        "bidirectional": bool(rng.rand() < 0.5),
        "layout": "TNC" if rng.rand() < 0.5 else "NTC",
        "use_sequence_length": bool(rng.rand() < 0.4),
    }
    if kind == "RNN":
        chosen["activation"] = "relu" if rng.rand() < 0.5 else "tanh"
    sizes = {"steps": int(rng.randint(1, 6)), "batch": int(rng.randint(1, 5)), "inputs": int(rng.randint(1, 5))}
    return chosen, sizes, rng


def compared(kind, seed, dtype, engine):
    """The results by name: those of the layer, those of torch."""
    chosen, sizes, rng = settings(kind, seed)
    layer = getattr(gluon.rnn, kind)(input_size=sizes["inputs"], dtype=dtype, **chosen)
    layer.initialize()
    if engine:
        layer.hybridize(engine=engine)
    first = chosen["layout"] == "NTC"
    shape = (sizes["batch"], sizes["steps"]) if first else (sizes["steps"], sizes["batch"])
    values = rng.normal(0, 1, (*shape, sizes["inputs"]))
    count = 2 if kind == "LSTM" else 1
    directions = 2 if chosen["bidirectional"] else 1
    begin = rng.normal(0, 1, (count, chosen["num_layers"] * directions, sizes["batch"], chosen["hidden_size"]))
    lengths = rng.randint(1, sizes["steps"] + 1, sizes["batch"])
    lengths[0] = sizes["steps"]
    more = {} if kind != "RNN" else {"nonlinearity": chosen["activation"]}
    peer = getattr(torch.nn, kind)(
        sizes["inputs"], chosen["hidden_size"], chosen["num_layers"], bidirectional=chosen["bidirectional"],
        batch_first=first, dtype=torch.float64, **more,
    )  # fmt: skip
    pairs = {}
    for place in range(chosen["num_layers"]):
        for direction, end in (("l", ""), ("r", "_reverse"))[:directions]:
            for mine, theirs in (("i2h", "ih"), ("h2h", "hh")):
                for what in ("weight", "bias"):
                    pairs[f"{direction}{place}_{mine}_{what}"] = getattr(peer, f"{what}_{theirs}_l{place}{end}")
    parameters = {name: getattr(layer, name) for name in pairs}
    for name, parameter in parameters.items():
        array = rng.uniform(-0.8, 0.8, parameter.shape)
        parameter.set_data(nd.array(array, dtype=dtype))
        pairs[name].data[:] = torch.tensor(array)

    x, states = nd.array(values, dtype=dtype), [nd.array(each, dtype=dtype) for each in begin]
    for each in (x, *states):
        each.attach_grad()
    given = (x, states, nd.array(lengths, dtype=dtype)) if chosen["use_sequence_length"] else (x, states)
    for _ in range(2):
        with autograd.record():
            y, after = layer(*given)
        heads = [np.random.RandomState(seed + place).normal(0, 1, each.shape) for place, each in enumerate((y, *after))]
        autograd.backward([y, *after], [nd.array(each, dtype=dtype) for each in heads])
    found = {"y": y, **{f"state{place}": each for place, each in enumerate(after)}, "dx": x.grad}
    found.update({f"dstate{place}": each.grad for place, each in enumerate(states)})
    found.update({f"d{name}": each.grad() for name, each in parameters.items()})

    their_x, their_states = (torch.tensor(each, requires_grad=True) for each in (values, begin))
    state = tuple(their_states) if kind == "LSTM" else their_states[0]
    if chosen["use_sequence_length"]:
        packed, last = peer(sequences.pack_padded_sequence(their_x, lengths, first, enforce_sorted=False), state)
        their_y, _ = sequences.pad_packed_sequence(packed, first)
    else:
        their_y, last = peer(their_x, state)
    ends = list(last) if kind == "LSTM" else [last]
    sum((each * torch.tensor(head)).sum() for each, head in zip((their_y, *ends), heads)).backward()
    expected = {"y": their_y, **{f"state{place}": each for place, each in enumerate(ends)}, "dx": their_x.grad}
    expected.update({f"dstate{place}": each for place, each in enumerate(their_states.grad)})
    expected.update({f"d{name}": each.grad for name, each in pairs.items()})
    return {key: each.asnumpy() for key, each in found.items()}, {
        key: each.detach().numpy() for key, each in expected.items()
    }


@pytest.mark.each_value
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_layers_equal_torch(kind, engine, totals):
    for seed in range(0, SEEDS, 1 if engine is None else 4):
        for dtype, tolerance in (("float64", 1e-10), ("float32", 1e-4)):
            found, expected = compared(kind, seed, dtype, engine)
            names = differences(found, expected, tolerance)
            assert not names, (settings(kind, seed)[:2], dtype, names)
            totals["recurrent layers compared with torch"] += 1


@pytest.mark.parametrize("kind", KINDS)
def test_cells_equal_the_layer(kind):
    """Unrolled with the lengths of the sequences, in either layout."""
    for seed in range(SEEDS):
        chosen, sizes, rng = settings(kind, seed)
        layer = getattr(gluon.rnn, kind)(input_size=sizes["inputs"], dtype="float64", **chosen)
        layer.initialize()
        first = chosen["layout"] == "NTC"
        shape = (sizes["batch"], sizes["steps"]) if first else (sizes["steps"], sizes["batch"])
        x = nd.array(rng.normal(0, 1, (*shape, sizes["inputs"])), dtype="float64")
        lengths = nd.array(rng.randint(1, sizes["steps"] + 1, sizes["batch"]), dtype="float64")
        given = (lengths,) if chosen["use_sequence_length"] else ()
        states = [nd.zeros(each["shape"], dtype="float64") for each in layer.state_info(sizes["batch"])]
        expected, ends = layer(x, states, *given)
        cells = layer._unfuse()
        found, after = cells.unroll(
            sizes["steps"], x, layout=chosen["layout"], merge_outputs=True, valid_length=given[0] if given else None
        )
        np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-10, atol=1e-12)
        for place, end in enumerate(ends):
            own = np.stack([each.asnumpy() for each in after[place :: len(ends)]])
            np.testing.assert_allclose(own, end.asnumpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", range(24))
def test_hybridized_cells_equal_eager_ones(seed, monkeypatch):
    monkeypatch.setenv("HYBRID_LAB_CPU", "numpy")
    case = cell_cases.cell_case(seed)
    found, expected = (cell_cases.run_cell(mx, case, hybridize=hybridize) for hybridize in (True, False))
    assert not differences(found, expected, 1e-10), case
