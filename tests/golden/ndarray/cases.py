"""Small programs about arrays, run by the real MXNet (make_behaviour.py) and by this package (test_golden.py).

A case is a name and a program; the program leaves its answer in `result`: arrays, numbers, strings, and lists of them.
`x` is a (2, 3, 4) array of 0 ... 23, `i` an int32 array [1, 2, 3], `v` a float32 array [1, 2, 3]. A case that MXNet
refuses has the answer "error".
"""

from __future__ import annotations

from collections.abc import Iterator


def _expressions(group: str, text: str) -> Iterator[tuple[str, str]]:
    for line in text.strip().splitlines():
        yield f"{group}: {line.strip()}", f"result = {line.strip()}"


def _programs(group: str, text: str) -> Iterator[tuple[str, str]]:
    for block in text.strip().split("\n\n"):
        yield f"{group}: {block.splitlines()[0].strip()}", block


_MAKE = """
nd.array([1, 2])
nd.array([[1, 2], [3, 4]])
nd.array(np.array([1.0, 2.0]))
nd.array(np.array([1, 2]))
nd.array(np.array([1, 2], dtype='uint8'))
nd.array(np.array([True, False]))
nd.array(3)
nd.array(i)
nd.array(i, dtype='float16')
nd.array([i.asnumpy(), i.asnumpy()])
nd.array('abc')
nd.zeros((2, 3))
nd.zeros(3)
nd.ones((2,), dtype='int32')
nd.full((2, 2), 7)
nd.full((2, 2), 7.5, dtype='int32')
nd.empty((2, 5)).shape
nd.arange(3)
nd.arange(1, 7, 2)
nd.arange(1, 4, repeat=2)
nd.arange(3, dtype='int32')
nd.arange(5, 0, -2)
nd.linspace(0, 1, 5)
nd.linspace(0, 1, 5, endpoint=False)
nd.eye(3)
nd.eye(2, 3, k=1)
nd.zeros_like(i)
nd.ones_like(x[0])
"""

_READ = """
x[0]
x[-1]
x[1, 2]
x[1, 2, 3]
x[0:1]
x[:, 1]
x[:, 1:3]
x[..., 0]
x[None]
x[:, None]
x[0, None]
x[::2]
x[::-1]
x[:, ::-1, ::2]
x[nd.array([0, 1, 0])]
x[nd.array([0, 1]), nd.array([1, 2])]
x[[0, 1]]
x[[0, 1], [1, 2]]
x[np.array([0, 1])]
x[:, [0, 2]]
x[:, [0, 2], 1]
x[0, :, [1, 2]]
x[[[0, 1], [1, 0]]]
x[nd.array([1])[0]]
x[np.int64(1)]
x[()]
x[...]
x[5:7].shape
x[2]
x[-3]
x[1.0]
x['a']
x[0, 0, 0, 0]
x[[0, 5]]
i[0]
[row.shape for row in x]
[each.asscalar() for each in i]
len(x)
"""

_ARITHMETIC = """
i + 1
i * 0.5
i / 2
i + 1.7
i % 2
i ** 2
2 ** i
1 - i
1 / i
5 % i
-i
abs(-i)
i == 2
i > 1.5
i >= 2
i != i
x > 5
v / 2
7 / v
7 % v
-7 % v
v ** 0.5
np.float32(2) * i
i * np.float32(2)
nd.ones((2, 3)) + nd.ones((3,))
nd.ones((2, 1)) * nd.ones((1, 3))
i + v
v > i
nd.ones((2, 3)) + nd.ones((2,))
nd.array([1, 2]) == nd.array([1, 2, 3])
v + np.ones(3)
v == None
v == 'a'
nd.add(2, 3)
nd.add(i, 1)
nd.subtract(1, i)
nd.maximum(2, i)
nd.maximum(2, 3)
nd.power(2, i)
nd.greater(2, i)
nd.equal(i, 2)
nd.modulo(i, 2)
nd.true_divide(i, 2)
nd.logical_and(i, 0)
bool(nd.ones((1,)))
bool(nd.zeros((1, 1)))
bool(nd.ones((2,)))
nd.ones((1,)).asscalar()
nd.ones((2, 3)).asscalar()
x.dtype.__name__
i.dtype.__name__
x.size
x.ndim
x.stype
x.T
"""

_RESHAPE = """
x.reshape(4, 6).shape
x.reshape((4, 6)).shape
x.reshape((-1,)).shape
x.reshape(-1).shape
x.reshape((0, -1)).shape
x.reshape((-2,)).shape
x.reshape((0, -3)).shape
x.reshape((-4, 1, 2, -2)).shape
x.reshape((-4, -1, 2, 0, 0)).shape
x.reshape(0, 0, -4, 2, -1).shape
x.reshape(shape=(4, 6)).shape
x.reshape((0, -1), reverse=True).shape
x.reshape((-1, 0)).shape
x.reshape((-1, 0), reverse=True).shape
x.reshape((2, 3, 4, 1)).shape
x.reshape((5, 6)).shape
x.reshape((-1, -1)).shape
x.reshape(()).shape
nd.reshape(x, shape=(0, -1)).shape
x.expand_dims(1).shape
x.transpose().shape
x.transpose((1, 0, 2)).shape
x.transpose(1, 0, 2).shape
x.swapaxes(0, 2).shape
x.flatten().shape
nd.moveaxis(x, 0, 2).shape
nd.concat(i, i, dim=0)
nd.concatenate([i, i])
nd.stack(i, i)
nd.split(x, num_outputs=2, axis=2)
x.astype('int32')
x.astype(np.float16).dtype.__name__
x.astype('float32', copy=False) is x
x.astype('float32') is x
x.broadcast_to((2, 3, 4)).shape
x.slice_axis(axis=1, begin=0, end=2)
x.clip(3, 7)
x.sum()
x.sum(axis=0)
x.mean(axis=(0, 1))
x.max(axis=1, keepdims=True)
x.argmax(axis=1)
x.relu().shape
x.softmax(axis=1).shape
x.take(nd.array([1, 0]))
x.foo
"""

_PRINT = """
repr(x)
repr(i)
str(v)
repr(nd.ones((1,)))
repr(nd.ones((2, 3), dtype='float16'))
repr(nd.array([1e10, 1.23456789, -0.001]))
repr(nd.array([1e-10, 1]))
repr(nd.array([float('nan'), float('inf')]))
repr(nd.array(np.random.RandomState(0).randn(40, 40)))
repr(nd.array([1, 0]).astype('bool'))
repr(nd.array([1, 2, 3], dtype='uint8'))
repr(nd.ones((2,), ctx=mx.cpu(1)))
repr(nd.zeros((2, 1, 3)))
repr(mx.cpu())
str(mx.gpu(1))
mx.cpu() == mx.cpu(0)
mx.cpu(1) == mx.cpu(0)
mx.Context('cpu', 2).device_id
mx.cpu().device_typeid
"""

_SHARE = """
y = x[0]

y = x[0:1]

y = x[0, 1]

y = x[1, 2, 3]

y = x[1, 1:3]

y = x[0:1, 0:2]

y = x[0:2, :]

y = x[...]

y = x[:]

y = x[None]

y = x[:, 1]

y = x[::2]

y = x[::-1]

y = x[[0]]

y = x.reshape((4, 6))

y = x.reshape((-1,))

y = nd.reshape(x, (4, 6))

y = x.T

y = x.expand_dims(0)

y = x.flatten()

y = x.detach()

y = x.copy()

y = x.astype('float32', copy=False)

y = x.as_in_context(mx.cpu(0))

y = x.as_in_context(mx.cpu(1))

y = x.slice_axis(axis=0, begin=0, end=1)

y = x.reshape_like(nd.ones((4, 6)))
"""

_WRITE = """
x[0] = 5; x[1, 2] = 7; result = x

x[:, 1] = nd.array([1, 2, 3, 4]); result = x

x[:, 1:] = np.ones((2, 2, 4)); result = x

x[:] = [1, 2, 3, 4]; result = x

x[[0, 1], [1, 2]] = 9; result = x

x[nd.array([1])] = 9; result = x

x[nd.array([0, 1]), nd.array([0, 2])] = 3; result = x

x[0] = nd.ones((1, 3, 4)); result = x

x[::-1] = nd.array([[[1]], [[2]]]); result = x

x[0][1] = 4; result = x

x[:, 0] += 4; result = x

x[0] += 4; result = x

x[:] = nd.ones((3, 2)); result = x

x[5] = 1; result = x

i[:] = 1.7; result = i

i[0:2] = nd.array([1.7, 2.2]); result = i

y = v; y += 1; y *= 2; y /= 4; y -= 1; y %= 2; result = [v, y is v]

v **= 2; result = v

i += 1.5; result = i

i += v; result = i

v += nd.ones((2, 3)); result = v

y = nd.zeros((2, 3)); y += nd.ones((1, 3)); result = y

y = nd.zeros((3,)); result = [nd.exp(v, out=y) is y, y]

y = nd.zeros((2,)); nd.exp(v, out=y); result = y

nd.relu(v, out=i); result = i

y = nd.zeros((3,), dtype='int32'); result = [v.copyto(y) is y, y]

v.copyto(nd.zeros((2,))); result = v
"""

_AUTOGRAD = """
y = v * v + 2 * v; y.backward(); result = v.grad

y = (v * v).sum(); y.backward(); result = v.grad

y = v * 2; y.backward(nd.array([1, 2, 3])); result = v.grad

y = v * 2; z = v * v; autograd.backward([y, z]); result = v.grad

y = v * 2; z = v * v; autograd.backward([y, z], [nd.ones((3,)), None]); result = v.grad

y = v * 2; y.backward(retain_graph=True); y.backward(); result = v.grad

y = v * 2; y.backward(); y.backward(); result = v.grad

v.attach_grad('add'); y = v * 2; y.backward(retain_graph=True); y.backward(); result = v.grad

y = v * v * v; result = autograd.grad(y, [v]) + [v.grad]

y = nd.sin(v); g = autograd.grad(y, [v], create_graph=True, retain_graph=True)[0]; g.backward(); result = v.grad

y = v * 2; y.attach_grad(); z = y * 3; z.backward(); result = [v.grad, y.grad]

y = v * 2; z = y.detach() * v; z.backward(); result = v.grad

y = nd.BlockGrad(v * 2) * v; y.backward(); result = v.grad

y = v[0] * 2; y.backward(); result = v.grad

y = x[[0, 0], [1, 1]] * 2; y.backward(); result = x.grad

y = x[nd.array([0, 0, 1])] * 2; y.backward(); result = x.grad

y = x[:, 1:, ::2] * x[:, :2, ::2]; y.backward(); result = x.grad

y = x.reshape((4, 6)) * 3; y.backward(); result = x.grad

y = v.astype('float64') * 3; y.backward(); result = v.grad

y = v.copy() * 3; y.backward(); result = v.grad

y = v.as_in_context(mx.cpu(1)) * 3; y.backward(); result = v.grad

y = nd.zeros((3,)); v.copyto(y); z = y * 2; z.backward(); result = v.grad

y = nd.zeros((2, 3)); y[:] = v; z = y * 2; z.backward(); result = v.grad

y = v > 2; y.backward(); result = v.grad

y = v.argmax(); y.backward(); result = v.grad

y = v * 2; v.grad[:] = 7; z = nd.ones((3,)) * x[0, 0, 0:3]; z.backward(); result = v.grad

v.backward(); result = v.grad

y = v * 2; y += 1; result = y

v += 1; result = v

y = v * 2; y[:] = 1; result = y

y = nd.ones((3,)); y += 1; y[0] = 5; result = y

y = nd.ones((3,)) * 2; y.backward(); result = y

with autograd.pause(): y = v * 2
y.backward(); result = y

y = v * 2; y.backward(); z = y * 3; z.backward(); result = v.grad

w = nd.ones((3,)); w.attach_grad(); y = v * 2; result = autograd.grad(y, [v, w])

y = nd.where(v > 1, v * v, v * 3); y.backward(); result = v.grad

y = v.max(); y.backward(); result = v.grad

y = nd.split(x, num_outputs=2, axis=2); z = y[0] * 2; z.backward(); result = x.grad
"""

_MODES = """
[autograd.is_recording(), autograd.is_training()]
[autograd.set_recording(True), autograd.set_recording(False), autograd.set_training(True), autograd.set_training(False)]
"""


def all_cases() -> list[tuple[str, str]]:
    """(name, program) of every case."""
    cases = [*_expressions("make", _MAKE), *_expressions("read", _READ), *_expressions("arithmetic", _ARITHMETIC)]
    cases += [*_expressions("reshape", _RESHAPE), *_expressions("print", _PRINT), *_expressions("modes", _MODES)]
    cases += [
        (name.replace("share: y = ", "share: "), f"{program}\ny[:] = -1\nresult = x")
        for name, program in _programs("share", _SHARE)
    ]
    cases += _programs("write", _WRITE)
    for name, program in _programs("autograd", _AUTOGRAD):
        body = "\n".join(f"    {line}" for line in program.splitlines())
        cases.append((name, f"x.attach_grad(); v.attach_grad()\nwith autograd.record():\n{body}"))
    return cases


def answer(program: str, mx: object, np: object) -> object:
    """Run a program on a package (`mx`); its answer as JSON values."""
    nd, autograd = mx.nd, mx.autograd
    names = {"mx": mx, "nd": nd, "np": np, "autograd": autograd}
    names["x"] = nd.array(np.arange(24).reshape((2, 3, 4)))
    names["i"] = nd.array([1, 2, 3], dtype="int32")
    names["v"] = nd.array([1, 2, 3])
    try:
        exec(program, names)
        return _plain(names["result"], np)
    except Exception:
        return "error"
    finally:
        autograd.set_recording(False)
        autograd.set_training(False)


def _plain(value: object, np: object) -> object:
    if hasattr(value, "asnumpy"):
        numbers = value.asnumpy()
        return {
            "dtype": str(numbers.dtype),
            "shape": list(numbers.shape),
            "values": numbers.astype("float64").ravel().tolist(),
        }
    if isinstance(value, (list, tuple)):
        return [_plain(item, np) for item in value]
    if isinstance(value, (np.generic,)):
        return value.item()
    return value
