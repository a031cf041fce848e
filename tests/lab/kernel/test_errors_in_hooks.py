"""What the lab does when code that it cannot vouch for raises: faults of its own, of the user and of IPython."""

import asyncio
import functools
import json
import logging
from types import SimpleNamespace

import pytest

from hybrid_lab import gluon
from hybrid_lab.cli import environment
from hybrid_lab.lab import diagnostics
from hybrid_lab.lab.kernel import hooks
from hybrid_lab.lab.models.rows import Rows
from hybrid_lab.lab.saving import archives
from hybrid_lab.system import logger
from tests.lab.conftest import make_net


def fault(*_, **__):
    raise ArithmeticError("a fault")


def test_a_fault_of_the_linter_gives_no_findings_and_a_line_in_the_log(monkeypatch, caplog, net):
    monkeypatch.setattr(diagnostics, "check_blocks", fault)
    rows = Rows()
    rows.look(net)
    assert diagnostics.lint_rows(rows, "net") == []
    assert "net could not be checked: ArithmeticError: a fault" in caplog.text


def test_code_that_fails_on_symbols_has_no_graph_yet(page, namespace):
    class Odd(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return 1 / 0

    namespace["net"] = make_net(Odd, called=False)
    missing = page.ok("graph", model="m1", path="", program="traced")["missing"]
    assert "no graph yet (ZeroDivisionError without data)" in missing


@pytest.mark.parametrize(
    ("error", "problem"), [(ArithmeticError("a fault"), "ArithmeticError: a fault"), (OSError(), "OSError")]
)
def test_an_archive_that_fails_anywhere_is_listed_with_the_reason(monkeypatch, namespace, tmp_path, error, problem):
    def failing(path):
        raise error

    (tmp_path / "net.hlab").write_bytes(b"")
    monkeypatch.setattr(archives, "inspect", failing)
    assert [row["problem"] for row in archives.listing()] == [problem]


def test_a_fault_of_a_hook_does_not_fail_the_cell(monkeypatch, shell, caplog):
    caplog.set_level(logging.DEBUG, "hybrid_lab")
    monkeypatch.setattr(hooks.Lab, "_drop_stale", fault)
    assert shell.run_cell("1 + 1").result == 2
    assert "after_cell failed" in caplog.text


def test_a_shell_without_events_leaves_the_import_working(monkeypatch, caplog):
    monkeypatch.delenv(hooks.OPT_OUT, raising=False)
    monkeypatch.setattr("IPython.get_ipython", object)
    hooks.register_when_interactive()
    assert "not connected to this notebook: AttributeError" in caplog.text


def test_a_line_that_cannot_be_displayed_goes_to_the_stream(monkeypatch):
    monkeypatch.setattr("IPython.display.display", fault)
    assert logger.displayed("text") is False


def test_messages_without_a_standard_error_are_lost_without_an_error(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    handler = logging.StreamHandler(logger._STANDARD_ERROR)
    monkeypatch.setattr(handler, "handleError", lambda record: pytest.fail("could not be written"))
    handler.emit(logging.makeLogRecord({"msg": "text"}))
    handler.flush()


@pytest.mark.parametrize(("name", "item"), [("default", "default engine"), ("get", "engine numpy")])
def test_a_broken_engine_is_an_item_of_the_report(monkeypatch, name, item):
    from hybrid_lab import engines

    monkeypatch.setattr(engines, name, fault)
    assert f"{item}: broken: ArithmeticError: a fault" in [
        f"{each.name}: {each.found}" for each in environment._engines()
    ]


def test_a_fault_in_the_server_is_an_error_of_the_protocol(monkeypatch):
    server = pytest.importorskip("hybrid_lab.lab.server", exc_type=ImportError)
    monkeypatch.setattr(server, "lint", fault)
    sent = []
    handler = SimpleNamespace(
        current_user="ada",
        request=SimpleNamespace(body=b"{}"),
        log=logging.getLogger("server"),
        set_status=sent.append,
        finish=lambda text: sent.append(json.loads(text)),
    )
    handler.reply = functools.partial(server.LintHandler.reply, handler)
    asyncio.run(server.LintHandler.post(handler))
    assert sent[0] == 500 and sent[1]["code"] == "failed" and sent[1]["message"] == "ArithmeticError: a fault"
