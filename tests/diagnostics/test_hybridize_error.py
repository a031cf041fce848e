"""HybridizeError: its text, what else it is, and the finding it becomes."""

from __future__ import annotations

import linecache
import pickle

import pytest

from hybrid_lab.diagnostics import HybridizeError, Severity, hybridize_error, rules

CELL = """\
class Net:
    def hybrid_forward(self, F, score):
        if score.max() > 0.5:
            return score
"""


class Score:
    """Stands in for a Symbol."""

    def max(self):
        return self

    def __gt__(self, other):
        return self

    def __bool__(self):
        raise hybridize_error("HL121", block="net.head", tensor="score", condition="score.max() > 0.5")


@pytest.fixture
def raised():
    file = "<ipython-input-4-abc>"
    linecache.cache[file] = (len(CELL), None, CELL.splitlines(True), file)
    namespace: dict = {}
    exec(compile(CELL, file, "exec"), namespace)
    # The frames of this file would be the nearest ones; a Symbol's are inside the package and skipped.
    try:
        namespace["Net"]().hybrid_forward(None, Score())
    except HybridizeError as error:
        frame = error.__traceback__.tb_next
        from hybrid_lab.diagnostics import Location

        error.location = Location(frame.tb_frame.f_code, frame.tb_lasti)
        return error


def test_the_text(raised):
    assert str(raised) == (
        "HybridizeError HL121: `if` on the tensor `score` cannot become part of a graph.\n"
        "  cell 4, line 3, in Net.hybrid_forward (block net.head)\n"
        "      3 |         if score.max() > 0.5:\n"
        "        |            ^^^^^^^^^^^^^^^^^\n"
        "  A graph is traced once, before the values of tensors are known.\n"
        "  Instead:  F.where(score.max() > 0.5, a, b)      or      F.contrib.cond(...)"
    )


def test_the_fields(raised):
    assert (raised.code, raised.name, raised.block, raised.tensor) == ("HL121", "tensor-condition", "net.head", "score")
    assert raised.location.line == 3
    assert raised.reason == "A graph is traced once, before the values of tensors are known."
    assert raised.rewrite.startswith("F.where(")


def test_the_finding(raised):
    finding = raised.finding
    assert (
        str(finding) == "cell 4:3:12: HL121 `if` on the tensor `score` cannot become part of a graph. (block net.head)"
    )
    assert (finding.severity, finding.end_col) == (Severity.ERROR, 28)
    assert finding.to_json()["severity"] == "error"


def test_the_location_is_that_of_the_user():
    error = hybridize_error("HL101", tensor="x")
    assert error.location.file == __file__
    assert "hybridize_error(" in error.location.source_line


@pytest.mark.parametrize(
    ("code", "builtin"),
    [
        ("HL101", AttributeError),
        ("HL103", AttributeError),
        ("HL111", AttributeError),
        ("HL111", NotImplementedError),
        ("HL121", TypeError),
        ("HL123", TypeError),
        ("HL124", TypeError),
        ("HL141", TypeError),
    ],
)
def test_python_protocols_keep_working(code, builtin):
    error = hybridize_error(code, tensor="x")
    assert isinstance(error, HybridizeError) and isinstance(error, builtin)
    assert str(error).startswith(f"HybridizeError {code}: ")


def test_hasattr_and_getattr_do_not_blow_up():
    class Symbol:
        @property
        def shape(self):
            raise hybridize_error("HL101", tensor="x")

    assert not hasattr(Symbol(), "shape")
    assert getattr(Symbol(), "shape", None) is None
    with pytest.raises(HybridizeError, match="HL101"):
        _ = Symbol().shape


@pytest.mark.parametrize("record", rules.all(), ids=lambda record: record.code)
def test_every_rule_makes_an_error_without_facts(record):
    error = hybridize_error(record.code)
    assert error.code == record.code and error.finding.name == record.name
    assert "None" not in error.message.replace("is None", "") or record.code == "HL192"


def test_texts_can_be_replaced():
    error = hybridize_error("HL195", message="reshape to (32, 784) got 16 rows.", reason="Because.", rewrite="(0, -1)")
    assert (error.message, error.reason, error.rewrite) == ("reshape to (32, 784) got 16 rows.", "Because.", "(0, -1)")


def test_an_unknown_code():
    with pytest.raises(KeyError):
        hybridize_error("HL999")


def test_it_can_be_copied_to_another_process():
    error = pickle.loads(pickle.dumps(hybridize_error("HL101", tensor="x", block="net")))
    assert (error.code, error.block, error.tensor) == ("HL101", "net", "x")
    assert "HL101" in str(error)
