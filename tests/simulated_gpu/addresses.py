"""python -m tests.simulated_gpu.addresses sm90 float32 int8: every way in which an address reaches a kernel, for these
dtypes, at odd addresses.

The simulated GPU refuses a launch with an address that the binary is not for. Prints, as JSON, the cases by name: what
went wrong, or "" for results that equal NumPy's; and how many bytes the addresses of all launches were off by.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from tests.simulated_gpu import start
from tests.simulated_gpu.plugin import stand_in

DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64")
FLOATING = DTYPES[:4]
ROWS = 34


def pieces(F: Any, x: Any) -> list[Any]:
    """More views, most of them at odd places, than one kernel reads through."""
    return [F.slice_axis(x, axis=0, begin=row, end=row + 1) for row in range(ROWS)]


def functions() -> dict[str, tuple[Callable[..., Any], tuple[str, ...]]]:
    """name -> a function of a (ROWS, 7) array, and for which dtypes."""
    return {
        "views of inputs": (lambda F, x: F.concat(*pieces(F, x), dim=0), DTYPES),
        "views of views": (lambda F, x: F.concat(*pieces(F, F.Reshape(x, (-1, 1))[1:]), dim=1), DTYPES),
        "views of a kernel's result": (lambda F, x: F.concat(*pieces(F, F.cumsum(x + x, axis=0) + x), dim=0), DTYPES),
        "views of torch's result": (lambda F, x: F.concat(*pieces(F, F.sort(x, axis=1)), dim=0), DTYPES),
        "a split": (lambda F, x: F.stack(*F.split(x, num_outputs=ROWS, axis=0)[::-1], axis=1), DTYPES),
        "views in a product": (lambda F, x: F.add_n(*[F.dot(a, a, transpose_a=True) for a in pieces(F, x)]), FLOATING),
        "views in a sum": (lambda F, x: F.concat(*[F.sum(F.exp(a), axis=1) for a in pieces(F, x)], dim=0), FLOATING),
        "views of a constant": (lambda F, x: F.concat(*pieces(F, F.arange(ROWS) + 1), dim=0) + F.sum(x), ("float32",)),
        "saved views": (lambda F, x: F.concat(*[F.tanh(F.sort(a)) * a for a in pieces(F, F.exp(x))], dim=0), FLOATING),
    }  # fmt: skip


def odd(mx: Any, array: Any, dtype: str) -> Any:
    """An array on the device that begins one element behind a multiple of 16 bytes."""
    array = np.asarray(array)
    memory = mx.nd.zeros((array.size + 1,), dtype=dtype, ctx=mx.gpu(0))
    view = memory[1:].reshape(array.shape)
    view[:] = mx.nd.array(array, dtype=dtype, ctx=mx.gpu(0))
    return view


def cases(mx: Any, wanted: Collection[str]) -> Iterator[tuple[str, Callable[[], tuple[Any, Any]]]]:
    """(name, a function that gives what the GPU computes and what the host does). wanted : dtypes"""
    import torch

    from hybrid_lab import autograd, gluon, nd
    from hybrid_lab.gluon import nn

    random = np.random.RandomState(0)
    numbers = random.randint(1, 5, (ROWS, 7)) / 2
    gpu, cpu = mx.gpu(0), mx.cpu()

    def recorded(function: Any, x: Any, grad: Any = None, static_shape: bool = False, calls: int = 1) -> list[Any]:
        net = nn.HybridLambda(function)
        if x.context == gpu:
            net.hybridize(engine="triton", static_alloc=static_shape, static_shape=static_shape)
        floating = np.dtype(x.dtype).kind not in "iu"
        if floating:
            grad = nd.zeros(x.shape, dtype=x.dtype, ctx=x.context) if grad is None else grad
            autograd.mark_variables([x], [grad])
        for _ in range(calls):
            with autograd.record():
                y = net(x)
            if floating:
                y.backward()
        return [y.asnumpy(), *([x.grad.asnumpy()] if floating else [])]

    for title, (function, dtypes) in functions().items():
        for dtype in filter(wanted.__contains__, dtypes):
            x = nd.array(numbers, dtype=dtype)
            expected = lambda function=function, x=x: recorded(function, x)
            aligned = nd.array(numbers, dtype=dtype, ctx=gpu)
            yield f"{title}, {dtype}", lambda f=function, x=aligned, e=expected: (recorded(f, x), e())
            yield (
                f"{title}, of an odd input, {dtype}",
                lambda f=function, d=dtype, e=expected: (recorded(f, odd(mx, numbers, d)), e()),
            )

    def squared(F: Any, x: Any) -> Any:
        return F.square(x) * x

    for dtype in filter(wanted.__contains__, FLOATING):
        x = nd.array(numbers, dtype=dtype)
        yield (
            f"gradients in odd memory, {dtype}",
            lambda x=x, d=dtype: (recorded(squared, x.as_in_context(gpu), odd(mx, numbers, d)), recorded(squared, x)),
        )
        yield (
            f"captured, all odd, {dtype}",
            lambda x=x, d=dtype: (
                recorded(squared, odd(mx, numbers, d), odd(mx, numbers, d), static_shape=True, calls=4),
                recorded(squared, x),
            ),
        )  # fmt: skip
    for dtype in filter(wanted.__contains__, DTYPES):
        x = nd.array(numbers, dtype=dtype)
        yield f"eager calls, {dtype}", lambda x=x, d=dtype: ([(odd(mx, numbers, d) * 2).asnumpy()], [(x * 2).asnumpy()])

        def into(x: Any = x, dtype: str = dtype) -> tuple[Any, Any]:
            out, on_gpu = odd(mx, numbers, dtype), x.as_in_context(gpu)
            nd.elemwise_add(on_gpu, on_gpu, out=out)
            return [out.asnumpy()], [(x + x).asnumpy()]

        yield f"eager calls into out=, {dtype}", into

    def trained(ctx: Any, shifted: bool, name: str, static_shape: bool) -> list[Any]:
        mx.random.seed(3)
        net = nn.HybridSequential()
        net.add(nn.Dense(5, in_units=7, use_bias=False), nn.BatchNorm(in_channels=5), nn.Dense(3, in_units=5))
        net.initialize(mx.init.Xavier(), ctx=ctx)
        if ctx == gpu:
            net.hybridize(engine="triton", static_alloc=static_shape, static_shape=static_shape)
        parameters = list(net.collect_params().values())
        x = nd.array(numbers, ctx=ctx)
        options = {"epsilon": 0.1} if name == "adam" else {}  # else a gradient near 0 decides by its rounding
        trainer = gluon.Trainer(parameters, name, {"learning_rate": 0.01, **options})
        for step in range(5):
            for parameter in parameters if shifted and step == 1 else ():
                grads = [parameter.grad(ctx)] if parameter.grad_req != "null" else []
                for array in (parameter.data(ctx), *grads):
                    flat = array.raw(array.buffer.device.device).reshape(-1)
                    array.buffer.device = torch.cat([flat[:1], flat])[1:]
            with autograd.record():
                loss = (net(x) ** 2).sum()
            loss.backward()
            trainer.step(ROWS)
        return [parameter.data(ctx).asnumpy() for parameter in parameters]

    for name in ("sgd", "adam"):
        for static_shape in (False, True):
            yield (
                f"parameters, states and gradients of {name}{', captured' * static_shape}",
                lambda n=name, s=static_shape: (trained(gpu, True, n, s), trained(cpu, False, n, s)),
            )

    def looped(F: Any, x: Any) -> Any:
        outputs, _ = F.contrib.foreach(lambda row, state: (F.tanh(row + state), state + row), x, F.sum(x, axis=0) * 0)
        return outputs

    yield "rows of a loop", lambda: (
        recorded(looped, nd.array(numbers, ctx=gpu)), recorded(looped, nd.array(numbers))
    )  # fmt: skip

    def recurrent(ctx: Any) -> list[Any]:
        mx.random.seed(3)
        net = gluon.rnn.LSTM(3, num_layers=2, input_size=7, bidirectional=True)
        net.initialize(mx.init.Xavier(), ctx=ctx)
        if ctx == gpu:
            net.hybridize(engine="triton")
        x = nd.array(numbers.reshape(17, 2, 7), ctx=ctx)
        x.attach_grad()
        with autograd.record():
            y = net(x)
        y.backward()
        return [y.asnumpy(), x.grad.asnumpy(), *(p.grad(ctx).asnumpy() for p in net.collect_params().values())]

    yield "packed weights of a recurrent layer", lambda: (recurrent(gpu), recurrent(cpu))


def main(target: str, *dtypes: str) -> None:
    gpu = start(target)
    stand_in()
    import hybrid_lab as mx

    odds: Counter[int] = Counter()
    plain = gpu._arguments

    def counting(compiled: Any, source: Any, given: Any) -> list[Any]:
        found = plain(compiled, source, given)
        odds.update(item.data_ptr() % 16 for item in found if hasattr(item, "data_ptr"))
        return found

    gpu._arguments = counting  # type: ignore[method-assign]
    found: dict[str, str] = {}
    for title, case in cases(mx, dtypes or DTYPES):
        gpu.problems.clear()
        try:
            results, expected = case()
            away = max(
                float(np.abs(one.astype("float64") - other.astype("float64")).max())
                for one, other in zip(results, expected, strict=True)
            )
            scale = max(float(np.abs(other.astype("float64")).max()) for other in expected)
            close = 0.02 if "float16" in title else 1e-4
            found[title] = "" if away <= close * max(scale, 1.0) else f"{away} away"
        except Exception as error:
            found[title] = f"{type(error).__name__}: {str(error)[:400]}"
        found[title] = "; ".join([*gpu.problems, found[title]]) if gpu.problems else found[title]
    print(json.dumps({"cases": found, "odd": odds, "launches": sum(gpu.launches.values())}))


if __name__ == "__main__":
    main(*sys.argv[1:])
