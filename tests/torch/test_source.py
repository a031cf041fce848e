"""PyTorch source of models: each operator on the samples of its record, and whole networks with their weights."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.graph.infer import infer
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.torch.source.rules import RULES
from hybrid_lab.torch.source.writer import Writer
from tests.onnx.one_operator import graph_of
from tests.ops.cases import CASES, RNG, close

torch = pytest.importorskip("torch")

BY_RECORD = {name: [case for case in CASES if case.record.name == name] for name in RULES}
#: Samples whose use of the operator has no PyTorch source: they are refused, and their number may only fall.
REFUSED = {}
#: torch computes them otherwise at the edges: what a kernel gives for NaN or for an index outside.
LOOSE = {"erfinv": 1e-4, "gammaln": 1e-4}


def module_of(text, state):
    space = {}
    exec(compile(text, "<source>", "exec"), space)
    model = space["Model"]()
    model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in state.items()})
    return model.eval()


def outputs_of(case, with_weights):
    """What the source of one operator gives; its inputs behind the first are weights if asked."""
    op = case.record.bind(**case.sample.attributes).bind_mode(False)
    arrays = case.inputs()
    graph = graph_of(op, arrays)
    given = [item for item in arrays if isinstance(item, np.ndarray)]
    graph = infer(graph, *({value: kind(item) for value, item in zip(graph.inputs, given, strict=True)}
                           for kind in (np.shape, lambda item: item.dtype)))  # fmt: skip
    count = 1 if with_weights else len(given)
    weights = {value: (f"y_{value.node.name}", item)
               for value, item in list(zip(graph.inputs, given, strict=True))[count:]}  # fmt: skip
    made = Writer(graph, [value.node.name for value in graph.inputs[:count]], weights).source("One.", "w.safetensors")
    model = module_of(made.text, made.state)
    found = model(*(torch.from_numpy(np.array(item)) for item in given[:count]))
    return [item.numpy() for item in (found if isinstance(found, tuple) else [found])], run_kernel(op, arrays, rng=RNG)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("with_weights", [False, True], ids=["data", "weights"])
def test_the_source_of_an_operator_gives_what_its_kernel_gives(name, with_weights):
    cases, refused, failed = BY_RECORD[name], [], []
    assert cases, name
    for case in cases:
        if any(str(getattr(item, "dtype", "")) in ("float16", "bfloat16") for item in case.inputs()):
            continue
        try:
            with torch.no_grad():
                found, wanted = outputs_of(case, with_weights)
            for one, other in zip(found, wanted, strict=False):
                close(one, other, LOOSE.get(name, 1e-4))
        except Unmappable:
            refused.append(case)
        except Exception as error:
            failed.append(f"{case!r}: {type(error).__name__}: {str(error)[:300]}")
    assert not failed, "\n".join(failed)
    print(name, len(refused), "of", len(cases), "refused")
