"""mx.profiler: what it records, its file in Chrome's trace format, its statistics, the user's own events."""

import json
import sys
import threading
import time

import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd, profiler
from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.gluon import nn


@pytest.fixture(autouse=True)
def fresh(tmp_path):
    before = sys.getprofile()  # coverage tools may be there
    sys.setprofile(None)
    profiler.set_config(profile_all=True, filename=tmp_path / "profile.json")
    profiler.dumps(reset=True)
    yield
    profiler.set_state("stop")
    profiler.dumps(reset=True)
    sys.setprofile(before)


def statistics():
    return json.loads(profiler.dumps(format="json"))["Time"]


def test_operators_and_backward_are_counted_and_timed():
    x = nd.ones((300, 300))
    x.attach_grad()
    nd.dot(x, x)
    profiler.set_state("run")
    with autograd.record():
        y = (nd.dot(x, x) + x).sum()
    y.backward()
    profiler.set_state("stop")
    nd.dot(x, x)
    found = statistics()
    assert {name: each["Count"] for name, each in found["operator"].items()} == {"dot": 1, "broadcast_add": 1, "sum": 1}
    dot = found["operator"]["dot"]
    assert 0 < dot["Min"] == dot["Max"] == dot["Total"] < 10_000
    assert found["backward"]["backward"]["Count"] == 1


def test_compiled_calls_and_executors():
    net = nn.Dense(4, prefix="net_")
    net.initialize()
    net.hybridize(engine="numpy")
    x = nd.ones((2, 3))
    net(x)
    executor = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc").simple_bind(mx.cpu(), data=(2, 3))
    profiler.set_config(profile_symbolic=True)
    profiler.set_state("run")
    net(x)
    executor.forward()
    nd.exp(x)
    profiler.set_state("stop")
    found = statistics()
    assert found["compiled graph"]["net"]["Count"] == 1
    assert found["executor"]["fc.forward"]["Count"] == 1
    assert "operator" not in found


def test_the_file_is_in_chrome_trace_format(tmp_path):
    profiler.set_state("run")
    domain = profiler.Domain("mine")
    with domain.new_task("load"):
        time.sleep(0.01)
    counter = domain.new_counter("seen", 5)
    counter += 2
    counter -= 1
    domain.new_marker("epoch").mark("thread")
    with profiler.scope("encoder"):
        nd.exp(nd.ones((2,)))
    profiler.dump()
    events = json.loads((tmp_path / "profile.json").read_text())["traceEvents"]
    load = next(event for event in events if event["name"] == "load")
    assert load["ph"] == "X" and load["cat"] == "mine" and load["dur"] >= 10_000
    assert [event["args"]["seen"] for event in events if event["ph"] == "C"] == [5, 7, 6]
    assert next(event for event in events if event["name"] == "epoch")["s"] == "t"
    exp = next(event for event in events if event["name"] == "encoder:exp")
    assert exp["ts"] > load["ts"] + load["dur"]
    assert sys.getprofile() is None
    assert statistics() == {}


def test_pause_and_resume():
    x = nd.ones((2,))
    profiler.set_state("run")
    profiler.pause()
    nd.exp(x)
    profiler.resume()
    nd.log(x)
    profiler.set_state("stop")
    assert list(statistics()["operator"]) == ["log"]


def test_other_threads():
    profiler.set_state("run")
    thread = threading.Thread(target=lambda: nd.exp(nd.ones((2,))))
    thread.start()
    thread.join()
    profiler.set_state("stop")
    assert statistics()["operator"]["exp"]["Count"] == 1


@pytest.mark.parametrize("order", ["total", "avg", "min", "max", "count"])
def test_order_of_the_statistics(order):
    profiler.set_state("run")
    for count in (1, 3, 2):
        for _ in range(count):
            with profiler.Event(f"event{count}"):
                pass
    text = json.loads(profiler.dumps(format="json", sort_by=order, ascending=True))["Time"]["event"]
    values = [each[order.title()] for each in text.values()]
    assert values == sorted(values)
    table = profiler.dumps(sort_by="count")
    assert table.index("event3") < table.index("event2") < table.index("event1")


def test_wrong_use():
    with pytest.raises(SettingError, match="profile_al"):
        profiler.set_config(profile_al=True)
    with pytest.raises(SettingError, match="sort_by"):
        profiler.dumps(sort_by="name")
    with pytest.raises(SettingError, match="run"):
        profiler.set_state("on")
    with pytest.raises(profiler.ProfilerError, match="not started"):
        profiler.Event("e").stop()
    sys.setprofile(lambda *args: None)
    try:
        with pytest.raises(profiler.ProfilerError, match="cProfile"):
            profiler.set_state("run")
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(("mode", "recorded"), [("all", True), ("imperative", True), ("symbolic", False)])
def test_older_names_warn_and_do_the_same(mode, recorded, tmp_path):
    with pytest.warns(DeprecationWarning, match="use mx.profiler.set_config"):
        profiler.profiler_set_config(mode=mode, filename=tmp_path / "old.json")
    with pytest.warns(DeprecationWarning, match="use mx.profiler.set_state"):
        profiler.profiler_set_state("run")
    nd.ones((2,)) + 1
    profiler.set_state("stop")
    assert any("operator" in kind.lower() for kind in statistics()) == recorded
    with pytest.warns(DeprecationWarning, match="use mx.profiler.dump"):
        profiler.dump_profile()
    assert (tmp_path / "old.json").is_file()
    with pytest.raises(SettingError, match="some"):
        profiler.profiler_set_config(mode="some")
