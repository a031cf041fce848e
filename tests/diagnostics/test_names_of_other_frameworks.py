"""Names of MXNet 2, PyTorch and others lead to what has their meaning here."""

import re

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics.errors import UnknownNameError
from hybrid_lab.diagnostics.unknown_names import ELSEWHERE

MODULES = {"mx": mx, "gluon": gluon, "gluon.nn": gluon.nn, "gluon.data.batchify": gluon.data.batchify}
NAMES = [(where, name) for where, names in ELSEWHERE.items() for name in names]


@pytest.mark.parametrize(("where", "name"), NAMES)
def test_a_name_from_elsewhere_names_what_is_here(where, name):
    with pytest.raises(UnknownNameError) as caught:
        getattr(MODULES[where], name)
    advice = ELSEWHERE[where][name]
    assert f"use {advice}" in str(caught.value)
    named = re.findall(r"\b(?:gluon|nd|mx)\.[\w.]+", advice)
    assert named
    for path in named:
        value = {"gluon": gluon, "nd": nd, "mx": mx}[path.partition(".")[0]]
        for part in path.split(".")[1:]:
            value = getattr(value, part)
