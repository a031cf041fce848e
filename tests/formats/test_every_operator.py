"""Every operator that can be saved comes back: the samples of each record, and the calls of `mx.np` with a graph."""

from __future__ import annotations

import re
from itertools import groupby

import numpy
import pytest

from hybrid_lab import gluon, nd, np, npx, sym
from hybrid_lab.diagnostics import Unmappable
from hybrid_lab.formats.mxnet import symbol_json
from hybrid_lab.formats.mxnet.operator_names import as_in_files
from hybrid_lab.gluon import access
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value, input_node
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
#: Records whose samples are saved together: a file and its trace cost more than an operator in them.
RECORDS = [list(SAMPLES)[start : start + 12] for start in range(0, len(SAMPLES), 12)]
#: Samples that MXNet's files cannot hold, although the record has an operator there: numbers in place of tensors.
NOT_IN_MXNET = {"sgd_update-3", "adam_update-2"}


class Operators(gluon.HybridBlock):
    """A Block whose code is the operators of samples, each on arrays of its own."""

    def __init__(self, cases):
        super().__init__()
        self.cases = cases

    def hybrid_forward(self, F, *arrays):
        rest, outputs = iter(arrays), []
        for case in self.cases:
            op, inputs = case.record.bind(**case.sample.attributes), case.inputs()
            given = [next(rest) if isinstance(item, numpy.ndarray) else item for item in inputs]
            made = invoke(op, given) if F is nd else compose(op, given, None)
            outputs += made if isinstance(made, list) else [made]
        return outputs + [each * 2 for each in rest]  # a Block needs an array, also where operators make one of nothing


def arrays_of(cases):
    arrays = [
        nd.array(item, dtype=item.dtype) for case in cases for item in case.inputs() if isinstance(item, numpy.ndarray)
    ]
    return [*arrays, nd.ones((2,))]


def graph_of(case):
    op = case.record.bind(**case.sample.attributes)
    inputs = [
        input_node(f"x{index}") if isinstance(item, numpy.ndarray) else item for index, item in enumerate(case.inputs())
    ]
    node = Node(op, inputs, name="y", draw=0 if op.random else None)
    return Graph([item for item in inputs if isinstance(item, Value)], node.outputs[:1], draws=1)


def is_in_mxnet(case):
    """Whether the sample's operator can be written into MXNet's files."""
    if case.record.mxnet is None:
        return False
    try:
        symbol_json.dumps(graph_of(case))
    except Unmappable:
        return False
    return True


def check_together(cases, folder, hybridized, in_mxnet):
    """One Block for all samples; if it fails, or if it has no graph or no MXNet file, one for each half of them."""
    made, problem = [], None
    folder.mkdir()

    def make():
        made.append(Operators(cases))
        return made[-1:]

    try:
        check(make, [arrays_of(cases)], folder, hybridized, in_mxnet, quick.ALL)
    except Exception as error:
        problem = error
    has_graph = bool(access.graphs(made[0]).graphs())
    has_file = any(folder.glob("mxnet/*-symbol.json"))
    half = len(cases) // 2
    if half and (problem or has_graph < hybridized or has_file < (in_mxnet and has_graph)):
        failures = Failures()
        for number, some in enumerate((cases[:half], cases[half:])):
            with failures.of(", ".join(dict.fromkeys(case.id for case in some))):
                check_together(some, folder / str(number), hybridized, in_mxnet)
        failures.raise_all()
    if problem:
        raise problem
    if not half:
        assert has_graph >= hybridized, "a hybridized call made no graph"
        assert has_file >= (in_mxnet and has_graph), "MXNet's files have no such operator"


@pytest.mark.parametrize("names", RECORDS, ids=[" ".join(names) for names in RECORDS])
def test_operators(names, tmp_path):
    failures, cases = Failures(), [case for name in names for case in SAMPLES[name]]
    in_files = {case.id for case in cases if is_in_mxnet(case)}
    with failures.of("the operators of MXNet's files"):
        assert in_files == {case.id for case in cases if case.record.mxnet is not None} - NOT_IN_MXNET
    for in_mxnet in (True, False):
        some = [case for case in cases if (case.id in in_files) == in_mxnet]
        for hybridized in (True, False) if quick.ALL else (True,):
            if some:
                with failures.of("hybridized" if hybridized else "not hybridized"):
                    same_random_numbers()
                    check_together(some, tmp_path / f"{hybridized} {in_mxnet}", hybridized, in_mxnet)
    for case in cases:
        with failures.of(f"the file's operator of {case.id}, {case!r}"):
            check_file(case)
    failures.raise_all()


def check_file(case):
    """`as_in_files`, by which a live graph and a file's graph are compared, keeps the attributes that files have."""
    graph = graph_of(case)
    read = symbol_json.loads(symbol_json.dumps(graph, portable=False)).outputs[0].node.op
    assert read is as_in_files(graph.outputs[0].node.op)


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
