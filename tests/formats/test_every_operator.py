"""Every operator that can be saved comes back: the samples of each record, and the calls of `mx.np` with a graph."""

from __future__ import annotations

import re
from itertools import groupby

import numpy
import pytest

from hybrid_lab import gluon, nd, np, npx, sym
from hybrid_lab.formats.mxnet import symbol_json
from hybrid_lab.formats.mxnet.operator_names import as_in_files
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, input_node
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.symbol.symbol import compose
from tests import quick
from tests.failures import Failures
from tests.formats.doors import check
from tests.numpy_front.test_functions import CASES as FUNCTIONS
from tests.numpy_front.test_functions import OPEN, Calls
from tests.numpy_front.test_golden import CALLS, SCRIPT
from tests.ops.cases import CASES
from tests.seeds import same_random_numbers

pytestmark = pytest.mark.usefixtures("quick_disk")

SAMPLES = {name: list(cases) for name, cases in groupby(CASES, key=lambda case: case.record.name)}


class OneOperator(gluon.HybridBlock):
    """A Block whose code is one operator of a record's sample."""

    def __init__(self, case):
        super().__init__()
        self.case = case

    def hybrid_forward(self, F, *arrays):
        op, rest = self.case.record.bind(**self.case.sample.attributes), iter(arrays)
        given = [next(rest) if isinstance(item, numpy.ndarray) else item for item in self.case.inputs()]
        made = invoke(op, given) if F is nd else compose(op, given, None)
        # A Block needs an array, also where the operator makes one of nothing.
        return [made, *[each * 2 for each in rest]] if not isinstance(made, list) else made


def arrays_of(case):
    arrays = [nd.array(item, dtype=item.dtype) for item in case.inputs() if isinstance(item, numpy.ndarray)]
    return arrays or [nd.ones((2,))]


@pytest.mark.parametrize("name", SAMPLES)
def test_operator(name, tmp_path):
    cases, failures = SAMPLES[name], Failures()
    in_mxnet = cases[0].record.mxnet is not None
    for hybridized in (True, False) if quick.ALL else (True,):
        with failures.of("hybridized" if hybridized else "not hybridized"):
            same_random_numbers()
            arguments = [arrays_of(case) for case in cases]
            folder = tmp_path / str(hybridized)
            folder.mkdir()
            check(lambda: [OneOperator(case) for case in cases], arguments, folder, hybridized, in_mxnet, quick.ALL)
    for case in cases:
        with failures.of(f"the file's operator of {case.id}, {case!r}"):
            check_file(case)
    failures.raise_all()


def check_file(case):
    """`as_in_files`, by which a live graph and a file's graph are compared, keeps the attributes that files have."""
    op = case.record.bind(**case.sample.attributes)
    inputs = [
        input_node(f"x{index}") if isinstance(item, numpy.ndarray) else item for index, item in enumerate(case.inputs())
    ]
    node = Node(op, inputs, name="y", draw=0 if op.random else None)
    variables = [item for item in inputs if not isinstance(item, (int, float, bool))]
    graph = Graph(variables, node.outputs[:1], draws=1)
    read = symbol_json.loads(symbol_json.dumps(graph, portable=False)).outputs[0].node.op
    assert read is as_in_files(op)


def numpy_calls():
    """Name -> a function of the module (`mx.np` or `sym.np`) and arrays, and the arrays."""
    found = {**FUNCTIONS, **{f"{name} of open shapes": each for name, each in OPEN.items()}}
    values = SCRIPT.inputs()
    for call in CALLS:
        names = [name for name in values if re.search(rf"(?<![\w.]){name}(?![\w(])", call)]
        if names and call not in WITHOUT_GRAPH:
            found[call] = (_function(call, names), [values[name] for name in names])
    return found


def _function(call, names):
    made = eval(f"lambda np, npx, {', '.join(names)}: {call}")  # a call of the golden list of this repository
    return lambda module, *arrays: made(module, sym.npx if module is sym.np else npx, *arrays)


WITHOUT_GRAPH = {
    "np.unique(i)", "np.nonzero(i)[0]", "np.bincount(l)", "np.percentile(a, 40)", "a[m]", "a[l]", "a[[0, 1], [2, 0]]",
}  # fmt: skip
"""Calls whose results have a shape that depends on values, or that no graph has yet."""
NUMPY_CALLS = numpy_calls()
GROUPS = [list(NUMPY_CALLS)[start : start + 40] for start in range(0, len(NUMPY_CALLS), 40)]


@pytest.mark.each_value
@pytest.mark.parametrize("hybridized", [True, False])
@pytest.mark.parametrize("names", GROUPS, ids=[f"from {names[0]}" for names in GROUPS])
def test_calls_of_numpy(names, hybridized, tmp_path, np_mode):
    arguments = [[np.array(value, dtype=value.dtype) for value in NUMPY_CALLS[name][1]] for name in names]
    check(lambda: [Calls(NUMPY_CALLS[name][0]) for name in names], arguments, tmp_path, hybridized, in_mxnet=False)
