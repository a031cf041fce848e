"""Run the calls of calls.txt with the real MXNet 1.9.1 and write what it answers.

    MXNET_MKLDNN_ENABLED=0 .oracle/bin/python tests/golden/numpy_front/make_numpy_front.py

Keys: <number of the call>/y the result; <number>/d<name> the gradient of the sum of a floating result.
"""

from pathlib import Path

import mxnet as mx
import numpy
from mxnet import autograd, np, npx

FOLDER = Path(__file__).resolve().parent


def inputs():
    """The arrays of the calls, by name."""
    draw = numpy.random.RandomState(7)
    a, b = (numpy.round(draw.uniform(-2, 2, (2, 3)), 2).astype("float32") for _ in range(2))
    wide = draw.uniform(-1, 1, (3, 3))
    return {
        "a": a,
        "b": b,
        "p": numpy.round(draw.uniform(0.3, 2, (2, 3)), 2).astype("float32"),
        "c": numpy.round(draw.uniform(-1, 1, (2, 3, 4)), 2).astype("float32"),
        "s": (wide @ wide.T + numpy.eye(3)).astype("float32"),
        "v": numpy.array([0.5, -1.25, 2.0], "float32"),
        "i": numpy.array([[3, -1, 0], [2, 2, 5]], "int32"),
        "l": numpy.array([1, 0], "int64"),
        "m": numpy.array([[True, False, True], [False, False, True]]),
    }


def answer(text, values, np, npx, autograd):
    """The result of a call, and the gradients of its sum with respect to the floating arrays."""
    arrays = {name: np.array(value, dtype=value.dtype) for name, value in values.items()}
    for array in arrays.values():
        if array.dtype == numpy.float32:
            array.attach_grad()
    space = {"np": np, "npx": npx, **arrays}
    try:
        with autograd.record():
            result = eval(text, space)
            total = result.sum() if result.dtype == numpy.float32 else None
    except Exception:  # functions that run in NumPy have no gradient
        result, total = eval(text, space), None
    gradients = {}
    if total is not None:
        try:
            total.backward()
        except Exception:  # a result that depends on nothing, or a function without a gradient
            return result.asnumpy(), gradients
        gradients = {name: array.grad.asnumpy() for name, array in arrays.items() if array.grad is not None}
    return result.asnumpy(), {name: value for name, value in gradients.items() if value.any()}


def calls():
    """The calls of calls.txt."""
    return [line for line in (FOLDER / "calls.txt").read_text().splitlines() if line and not line.startswith("#")]


def main():
    npx.set_np()
    made = {}
    for number, text in enumerate(calls()):
        try:
            result, gradients = answer(text, inputs(), np, npx, autograd)
            mx.nd.waitall()
        except Exception as error:
            print(text, "->", type(error).__name__, str(error).splitlines()[0])
            continue
        made[f"{number}/y"] = result
        made |= {f"{number}/d{name}": value for name, value in gradients.items()}
    numpy.savez_compressed(FOLDER / "answers.npz", **made)


if __name__ == "__main__":
    main()
