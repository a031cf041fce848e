"""Runs the tests of one file of MXNet's tests: called by mxnet_tests.py, with the Python of this package or of MXNet.

    python mxnet_test_worker.py FILE RESULTS --seconds 60 [--compat] [TEST ...]

Each test runs in a forked process of its own, for at most so many seconds, and RESULTS (JSON) is written after each:
{"test_name": "passed" | "skipped: ..." | "failed: ErrorType: message"}. `--compat` makes `import mxnet` hybrid_lab.
nose, which MXNet's tests import and which no longer runs, is replaced by the few names that they use. Names that NumPy
has removed since (np.int, np.NaN, np.round_) are set.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import json
import os
import random
import re
import signal
import sys
import traceback
import types
import unittest
from pathlib import Path


class Skipped(unittest.SkipTest):
    """nose's SkipTest."""


def install_nose():
    """Put modules `nose` and `nose.tools` into sys.modules."""
    case = unittest.TestCase("__init__")
    tools = types.ModuleType("nose.tools")
    for name in dir(case):
        if name.startswith("assert") and name != "assert_":
            # nose has assertEqual as assert_equal.
            setattr(tools, re.sub("([A-Z])", lambda found: "_" + found[1].lower(), name), getattr(case, name))
    tools.ok_, tools.eq_, tools.SkipTest = case.assertTrue, case.assertEqual, Skipped
    tools.raises, tools.make_decorator = raises, functools.wraps
    tools.with_setup = lambda *functions: lambda test: test
    tools.nottest = lambda function: setattr(function, "__test__", False) or function
    nose = types.ModuleType("nose")
    nose.tools, nose.SkipTest, nose.runmodule = tools, Skipped, lambda *arguments, **keywords: None
    sys.modules.update({"nose": nose, "nose.tools": tools})


def restore_numpy_names():
    """Set the names of NumPy 1 that MXNet's tests use and NumPy 2 does not have."""
    import numpy as np

    for name, value in {"int": int, "NaN": np.nan, "round_": np.round}.items():
        if name not in vars(np):
            setattr(np, name, value)


def install_private_modules():
    """Stand in for a private module of MXNet that a file of tests imports: it finds functions by MXNet's names."""
    module = types.ModuleType("mxnet.numpy_op_signature")
    module._get_builtin_op = lambda name: getattr(importlib.import_module("mxnet").np, name.removeprefix("_np_"), None)
    sys.modules[module.__name__] = module


def raises(*errors):
    """nose's decorator of a test that must raise one of the errors."""

    def decorate(test):
        @functools.wraps(test)
        def run(*arguments, **keywords):
            try:
                test(*arguments, **keywords)
            except errors:
                return
            raise AssertionError(f"did not raise {errors}")

        return run

    return decorate


def tests_of(module):
    """(name, function without arguments) of each test that nose would find."""
    for name, item in list(vars(module).items()):
        if getattr(item, "__module__", None) != module.__name__ or not getattr(item, "__test__", True):
            continue
        if inspect.isclass(item):
            is_case = issubclass(item, unittest.TestCase)
            methods = unittest.TestLoader().getTestCaseNames(item) if is_case else ()
            if not is_case and name.startswith("Test"):
                methods = [method for method in dir(item) if method.startswith("test")]
            for method in methods:
                yield f"{name}.{method}", functools.partial(run_method, item, method)
        elif callable(item) and re.search(r"(?:^|_)test", name):
            yield name, functools.partial(run_function, module, item)


def run_method(kind, method):
    if not issubclass(kind, unittest.TestCase):
        getattr(kind(), method)()
        return
    result = unittest.TestResult()
    kind(method).run(result)
    for _, reason in result.skipped:
        raise Skipped(reason)
    for _, text in result.failures + result.errors:
        raise AssertionError(text)


def run_function(module, test):
    for name in ("setup_module", "setup"):
        if hasattr(module, name):
            getattr(module, name)()
            break
    made = test()
    if inspect.isgenerator(made):
        for function, *arguments in made:
            function(*arguments)
    for name in ("teardown", "teardown_module"):
        if hasattr(module, name):
            getattr(module, name)()
            break


def outcome(run):
    """What one test gave, as a line."""
    try:
        run()
    except unittest.SkipTest as reason:
        return f"skipped: {reason}"
    except BaseException as error:
        traceback.print_exc()
        last = str(error).strip().splitlines() or [""]
        return f"failed: {type(error).__name__}: {last[-1 if isinstance(error, AssertionError) else 0][:300]}"
    return "passed"


def forked(run, seconds):
    """The outcome of a test in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(seconds)
        text = outcome(run)
        os.write(writer, text.encode("utf-8", "replace"))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode("utf-8", "replace")
    number = os.waitpid(child, 0)[1] & 127
    if text:
        return text
    name = signal.Signals(number).name if number else "the process ended"
    return f"failed: not done in {seconds} s" if name == "SIGALRM" else f"failed: {name}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--compat", action="store_true")
    arguments = parser.parse_intermixed_args()  # names of tests may come behind options
    install_nose()
    restore_numpy_names()
    if arguments.compat:
        importlib.import_module("hybrid_lab.compat")
        install_private_modules()
    sys.path[:0] = [str(arguments.file.parent), str(arguments.file.parent.parent / "common")]
    sys.argv = [str(arguments.file)]
    results = {}

    def write():
        part = arguments.results.with_suffix(".part")
        part.write_text(json.dumps(results, indent=1), encoding="utf-8")
        part.replace(arguments.results)

    try:
        module = importlib.import_module(arguments.file.stem)
    except BaseException as error:
        traceback.print_exc()
        results["(import)"] = f"failed: {type(error).__name__}: {error}"
        write()
        return
    for name, run in tests_of(module):
        if not arguments.tests or name in arguments.tests:
            random.seed(0)
            results[name] = forked(run, arguments.seconds)
            write()
    write()


if __name__ == "__main__":
    main()
