"""Public functions and constructors refuse a switch that is neither on nor off: `strict="no"` would count as on."""

import inspect

import pytest

import hybrid_lab as mx
from hybrid_lab.diagnostics import SettingError
from hybrid_lab.gluon import contrib, data, loss, nn, rnn

MODULES = (
    mx, mx.gluon, nn, rnn, loss, data, data.vision, contrib.estimator, contrib.nn, contrib.rnn, mx.gluon.utils, mx.onnx,
    mx.torch, mx.lint, mx.autograd, mx.optimizer, mx.metric, mx.init, mx.io, mx.image, mx.mod, mx.model, mx.kv, mx.viz,
    mx.profiler,
)  # fmt: skip
#: `hybridize` has a message of its own (test_flags.py), these take what MXNet's operators take, or ask a question.
OTHERS = {"hybridize", "_", "check_label_shapes", "short_tracebacks"}


def _members():
    seen = set()
    for module in MODULES:
        for name in dir(module) if not name_of_all(module) else name_of_all(module):
            item = getattr(module, name, None)
            if name.startswith("_") or inspect.ismodule(item) or not callable(item):
                continue
            kinds = item.__mro__ if inspect.isclass(item) else ()
            methods = [(item, each, f) for kind in kinds for each, f in vars(kind).items() if inspect.isfunction(f)]
            for owner, each, function in methods or [(None, name, item)]:
                if not str(getattr(function, "__module__", "")).startswith("hybrid_lab") or id(function) in seen:
                    continue
                seen.add(id(function))
                if owner is mx.gluon.Block and each == "compile_for":  # it only raises
                    continue
                if function.__module__.endswith("record_iter"):  # tests/image has its settings
                    continue
                if each in OTHERS or (each.startswith("_") and each != "__init__"):
                    continue
                try:
                    parameters = inspect.signature(function).parameters
                except (TypeError, ValueError):
                    continue
                for switch, parameter in parameters.items():
                    if isinstance(parameter.default, bool):
                        yield pytest.param(
                            owner,
                            function,
                            parameters,
                            switch,
                            id=f"{function.__module__}.{function.__qualname__}.{switch}",
                        )


def name_of_all(module):
    return getattr(module, "__all__", ())


@pytest.mark.parametrize(("owner", "function", "parameters", "switch"), list(_members()))
def test_a_switch_is_on_or_off(owner, function, parameters, switch):
    named = [each for each in parameters.values() if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    args = ["none" for each in named if each.default is each.empty]
    if owner is not None:
        args[:1] = [object.__new__(owner)]
    with pytest.raises((SettingError, NotImplementedError), match=f"{switch}|does not define"):
        result = function(*args, **{switch: "no"})
        if inspect.isgenerator(result):
            next(result)


@pytest.mark.parametrize("value", [True, False, 1, 0, None])
def test_what_counts_as_on_or_off(value):
    assert nn.Dense(2, use_bias=value).bias is None or value


def test_the_options_of_states_have_names():
    for function, options in (
        (mx.gluon.Block.save_states, {"inputs", "trainer", "overwrite"}),
        (mx.gluon.Block.load_states, {"strict", "graphs", "map", "subtree", "trainer", "classes"}),
    ):
        assert options < set(inspect.signature(function).parameters)
