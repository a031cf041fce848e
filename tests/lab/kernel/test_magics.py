"""%hybrid_save, %hybrid_load, %hybrid_explain, %hybrid_profile, %hybrid_compare, %%hybrid_lint: what they do, and what
they say when they cannot.
"""

import pytest
from IPython.core.error import UsageError

from hybrid_lab.lab.kernel.magics import CellFailed
from tests.lab.conftest import CLASS, IMPORTS, MAKE


@pytest.fixture
def model(run):
    run(IMPORTS, CLASS, MAKE)
    return run


@pytest.fixture
def usage(shell, model):
    """usage(cell) -> the message of the UsageError that it gives."""

    def fails(cell):
        error = shell.run_cell(cell).error_in_exec
        assert isinstance(error, UsageError), error
        return str(error)

    return fails


def test_save_change_load(model, tmp_path):
    assert model("%hybrid_save net") == str(tmp_path / "net.hlab")
    model("before = y.asnumpy(); net.fc.weight.set_data(net.fc.weight.data() * 0)")
    assert model("%hybrid_load net").parameters == 2
    assert model("np.array_equal(net(x).asnumpy(), before)")


def test_paths_quotes_and_parts_of_models(model, tmp_path):
    assert model("%hybrid_save net 'a b.hlab'") == str(tmp_path / "a b.hlab")
    assert model("%hybrid_load net 'a b.hlab' --graphs file").graphs == 2
    assert model("%hybrid_load net --graphs=code 'a b.hlab'").parameters == 2
    assert model("%hybrid_save net.fc part") == str(tmp_path / "part.hlab")


def test_save_replaces_archives_only(model, usage, tmp_path):
    for name in ("m.v2.hlab", "net.hlab"):
        (tmp_path / name).write_bytes(b"PK\3\4 mine")
        assert "not an intact archive" in usage(f"%hybrid_save net {name.removesuffix('.hlab')}")
        assert (tmp_path / name).read_bytes() == b"PK\3\4 mine"
    model("net.save('m.v2')")
    assert model("%hybrid_save net m.v2") == str(tmp_path / "m.v2.hlab")


def test_diff_says_what_changed_since_the_save(model, usage, tmp_path):
    model("%hybrid_save net")
    assert not model("%hybrid_diff net")
    model("net.fc.weight.set_data(net.fc.weight.data() + 1)")
    assert "tensor fc.weight: differs by up to 1 " in str(model("%hybrid_diff net"))
    model("%hybrid_save net")
    (kept,) = (tmp_path / ".hybrid_lab_history").glob("*.hlab")
    assert str(model(f"%hybrid_diff net '{kept}'")).count("~ tensor") == 1
    assert "nothing.hlab" in usage("%hybrid_diff net nothing")
    assert "one path at most" in usage("%hybrid_diff net a b")


def test_explain(model):
    assert "1 graph," in str(model("%hybrid_explain net x"))


def test_profile(model):
    found = model("%hybrid_profile net x")
    assert [call.mode for call in found.calls] == ["prediction"] and "FullyConnected" in str(found)
    assert [call.mode for call in model("%hybrid_profile net x --train").calls] == ["training, recorded"]


def test_compare(model):
    found = model("%hybrid_compare net x")
    assert found.equal and len(found.calls) == 2
    assert [call.mode for call in model("%hybrid_compare net --train x").calls] == ["training, recorded"]


@pytest.mark.parametrize(
    "cell, words",
    [
        ("%hybrid_save", "name a model"),
        ("%hybrid_save nix", "no variable nix"),
        ("%hybrid_save x", "x is a NDArray, not a Block"),
        ("%hybrid_save net.nix", "nix"),
        ("%hybrid_save net a b", "one path at most"),
        ("%hybrid_save net 'a", "quot"),
        ("%hybrid_save net /does/not/exist/a.hlab", "no folder '/does/not/exist'"),
        ("%hybrid_load", "name a model"),
        ("%hybrid_load net missing.hlab", "missing.hlab"),
        ("%hybrid_load net --graphs", "--graphs takes code or file"),
        ("%hybrid_load net --graphs both", "--graphs takes code or file"),
        ("%hybrid_load net --strict", "--strict"),
        ("%hybrid_profile", "name a model"),
        ("%hybrid_profile net", "give inputs to call net on"),
        ("%hybrid_profile net x --runs", "'--runs' is not understood"),
        ("%hybrid_compare x x", "x is a NDArray, not a Block"),
        ("%hybrid_compare net nix", "no variable nix"),
        ("%hybrid_explain", "name a model"),
        ("%hybrid_explain net nix", "no variable nix"),
        ("%%hybrid_lint mxnot\n1", "mxnot"),
    ],
)
def test_errors_are_one_line_that_says_how(usage, cell, words):
    message = usage(cell)
    assert words in message and "Traceback" not in message


def test_what_does_not_fit_is_listed_without_a_traceback(usage, model, shell, capsys):
    model("%hybrid_save net", "net.fc = nn.Dense(4); net.more = nn.Dense(2)")
    message = usage("%hybrid_load net")
    assert "fc" in message and "more" in message
    assert "Traceback" not in capsys.readouterr().out


# -- %%hybrid_lint -----------------------------------------------------------------------------------------------------

BAD = """class Bad(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x.reshape((x.shape[0], -1))
"""


def test_lint_shows_the_cell_s_own_lines_and_runs_it(model, capsys):
    model("%%hybrid_lint\n" + BAD + "made = Bad()")
    out = capsys.readouterr().out
    assert ":4:" in out and "HL101" in out
    assert model("type(made).__name__") == "Bad"


def test_lint_shows_the_call_of_a_function_with_a_finding(model, capsys):
    model("%%hybrid_lint\ndef wide(t):\n    return t.shape[1]\n" + BAD.replace("x.shape[0]", "wide(x)"))
    finding, call = capsys.readouterr().out.splitlines()[:2]
    assert ":3:" in finding and ":6:" in call and call.endswith("calls `wide`")


def test_lines_count_from_the_top_of_the_cell(shell, model, capsys):
    shell.run_cell("\n\n%%hybrid_lint\n" + BAD, store_history=True).raise_error()
    out = capsys.readouterr().out
    assert (":6:" if "\n\n%%hybrid_lint" in shell.history_manager.input_hist_raw[-1] else ":4:") in out


def test_errors_of_the_cell_name_the_same_lines(shell, model, capsys):
    result = shell.run_cell("%%hybrid_lint\na = 1\nb = 2\nraise ValueError('mine')", store_history=True)
    assert isinstance(result.error_in_exec, CellFailed)
    out = capsys.readouterr().out
    assert "ValueError: mine" in out and "4 raise ValueError" in out and out.count("Traceback") == 1


def test_tracebacks_and_places_name_the_cell_that_one_sees(shell, model, capsys):
    """IPython gives code that a magic runs the number of the next cell."""
    code = "from hybrid_lab.diagnostics.location import capture\nplace = capture(False)\nraise ValueError('mine')"
    cell = f"%%hybrid_lint\n{code}"
    number = shell.execution_count
    shell.run_cell(cell, store_history=True)
    out = capsys.readouterr().out
    assert f"In[{number}]" in out and f"In[{number + 1}]" not in out
    assert f"cell {number}, line" in str(shell.user_ns["place"].describe())
    assert "cache" not in vars(shell.compile)


def test_lint_knows_the_cells_before(model, capsys):
    model("class Base(gluon.HybridBlock):\n    pass")
    model("%%hybrid_lint\n" + BAD.replace("gluon.HybridBlock", "Base"))
    assert "HL101" in capsys.readouterr().out


def test_lint_has_portability_notes_on_demand(model, capsys):
    cell = "class A(gluon.HybridBlock):\n    def hybrid_forward(self, F, x):\n        return x[0]\n"
    model("%%hybrid_lint\n" + cell)
    assert "no findings" in capsys.readouterr().out
    model("%%hybrid_lint mxnet\n" + cell)
    assert "HL13" in capsys.readouterr().out


def test_a_second_magic_stays_on_top(model, capsys):
    model("%%hybrid_lint\n%%capture kept\nprint('inside')")
    assert "inside" not in capsys.readouterr().out
    assert model("kept.stdout") == "inside\n"


def test_the_last_expression_is_shown(model, capsys):
    model("%%hybrid_lint\n40 + 2")
    assert "42" in capsys.readouterr().out
