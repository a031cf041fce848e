"""Tables that know operators by name know names that exist."""

from __future__ import annotations

import itertools

import pytest

from hybrid_lab.engines.onnxruntime import cost
from hybrid_lab.engines.torch_kernels.registry import TABLE
from hybrid_lab.engines.torch_kernels.workspace import WorkspaceGradient, WorkspaceLSTM
from hybrid_lab.graph.passes import decompose
from hybrid_lab.ops.framework.operator import records

OPERATORS = {record.name for record in records()}
FAMILIES = {record.family for record in records()}

TABLES = {
    "torch_kernels": set(TABLE) - {WorkspaceLSTM.name, WorkspaceGradient.name},
    "decompose.PRIMITIVES": list(itertools.chain(*decompose.PRIMITIVES.values())),
}


@pytest.mark.parametrize("place", TABLES)
def test_every_name_is_that_of_an_operator(place):
    assert [name for name in TABLES[place] if name not in OPERATORS] == []


def test_prices_are_of_operators_and_families():
    assert [name for name in cost._PER_ELEMENT if name not in OPERATORS | FAMILIES] == []
    assert [name for name in cost._PER_PRODUCT if name not in FAMILIES] == []
