"""Expressions about sparse arrays, run by the real MXNet (make_sparse.py) and by this package (test_sparse_golden.py).

`c` is a csr and `r` a row_sparse array of the matrix `x`, 4 x 3, whose rows 1 and 3 are 0; `c2` and `r2` are such
arrays of `y`, whose rows 0 and 3 are 0. `w` is a dense 3 x 2 matrix, `v` a dense 4 x 2 one. An expression that MXNet
refuses has the answer "error". Statements leave their answer in `result`.
"""

from __future__ import annotations

from typing import Any

UNARY = (
    "abs sign round rint ceil floor trunc fix square sqrt cbrt log1p expm1 sin cos tan arcsin arctan sinh cosh tanh "
    "arcsinh arctanh degrees radians relu sigmoid exp negative zeros_like ones_like identity BlockGrad make_loss"
).split()

EXPRESSIONS = """
2 * {a}
{a} * 2
{a} / 2
2 / ({a} + 3)
{a} + 0
{a} - 0
{a} + 1
1 - {a}
{a} ** 2
{a} == 0
{a} == 1.5
{a} != 0
{a} > 0
{a} >= 0
{a} < 0
{a} < 1
{a} <= -1
0 < {a}
1 > {a}
-{a}
abs({a})
{a} + {b}
{a} - {b}
{a} * {b}
{a} + {a}
{a} - {a}
{a} * {a}
nd.elemwise_add({a}, {b})
nd.elemwise_sub({a}, {b})
nd.elemwise_mul({a}, {b})
nd.elemwise_mul({a}, y)
nd.elemwise_mul(y, {a})
nd.elemwise_add({a}, y)
nd.elemwise_div({a}, y + 9)
nd.sparse.add({a}, {b})
nd.sparse.subtract({a}, {b})
nd.sparse.multiply({a}, {b})
nd.sparse.multiply({a}, y)
nd.add_n({a}, {b})
nd.add_n({a}, y)
nd.clip({a}, -0.5, 1.0)
nd.clip({a}, 0.25, 1.0)
nd.dot({a}, w)
nd.dot({a}, v, transpose_a=True)
nd.dot(w, {a}, transpose_a=True, transpose_b=True)
nd.dot(nd.ones((2, 4)), {a})
nd.dot({a}, {b}, transpose_b=True)
nd.dot({a}, w.tostype('row_sparse'))
nd.dot({a}, v.tostype('row_sparse'), transpose_a=True)
{a}.sum()
{a}.sum(axis=0)
{a}.sum(axis=1)
{a}.sum(axis=1, keepdims=True)
{a}.mean(axis=0)
{a}.mean(axis=1)
{a}.norm()
{a}.norm(axis=0)
{a}.T
{a}.copy()
{a}.astype('float64')
{a}.astype('int32')
{a}.tostype('default')
{a}.tostype('csr')
{a}.tostype('row_sparse')
{a}.as_in_context(mx.cpu())
{a}.copyto(mx.cpu())
{a}.copyto(nd.zeros((4, 3)))
{a}.copyto(nd.sparse.zeros('csr', (4, 3)))
{a}.copyto(nd.sparse.zeros('row_sparse', (4, 3)))
{a}.copyto(nd.sparse.zeros('row_sparse', (2, 3)))
{a}[:]
{a}[1]
{a}[-1]
{a}[1:3]
{a}[:2]
{a}[::2]
{a}[0, 1]
{a}.slice(begin=(1, 0), end=(3, 2))
nd.slice({a}, begin=(0, 1), end=(4, 3))
{a}.reshape((3, 4))
{a}.size
{a}.data
{a}.indices
{a}.shape
{a}.ndim
{a}.stype
{a}.dtype.__name__
repr({a})
str({a}.context)
len({a})
nd.concat({a}, {b}, dim=0)
nd.where({a}, x, y)
nd.zeros((2, 3), stype={a}.stype)
nd.empty((2, 3), stype={a}.stype)
nd.sparse.zeros({a}.stype, (2, 3), dtype='float64')
nd.array({a})
nd.sparse.array({a})
nd.sparse.array({a}, dtype='int32')
nd.broadcast_add({a}, nd.array([1, 2, 3]))
nd.sparse.multiply({a}, nd.array([1, 2, 3]))
nd.sparse.divide({a}, nd.array([1, 2, 4]))
nd.sparse.divide({a}, nd.array([[1], [2], [4], [8]]))
nd.take({a}, nd.array([2, 0, 2]))
nd.softmax({a})
nd.maximum({a}, 0)
""".strip().splitlines()

PLAIN = """
c.indptr
r.indptr
nd.sparse.csr_matrix(x)
nd.sparse.csr_matrix(x, dtype='float64')
nd.sparse.csr_matrix(x, shape=(3, 4))
nd.sparse.csr_matrix([[0, 1], [2, 0]])
nd.sparse.csr_matrix(np.array([[0, 1], [2, 0]]))
nd.sparse.csr_matrix((2, 3))
nd.sparse.csr_matrix((2, 3), shape=(2, 4))
nd.sparse.csr_matrix(([7, 8], [2, 0], [0, 1, 1, 2]))
nd.sparse.csr_matrix(([7, 8], [2, 0], [0, 1, 1, 2]), shape=(3, 5))
nd.sparse.csr_matrix(([7, 8], [[2, 0]], [0, 1, 1, 2]), shape=(3, 5))
nd.sparse.csr_matrix(([], [], [0, 0, 0]))
nd.sparse.csr_matrix(([], [], [0, 0, 0]), shape=(2, 2))
nd.sparse.csr_matrix(([1, 2, 3], ([0, 2, 2], [1, 1, 0])), shape=(3, 2))
nd.sparse.csr_matrix(([1, 2, 3], ([0, 2, 2], [1, 1, 1])), shape=(3, 2))
nd.sparse.csr_matrix(([1, 2, 3], ([0, 2, 2], [1, 1, 0])))
nd.sparse.csr_matrix(r)
nd.sparse.csr_matrix(c, dtype='float16')
nd.sparse.csr_matrix((1, 2, 3, 4))
nd.sparse.csr_matrix(nd.ones((2, 2, 2)))
nd.sparse.row_sparse_array(x)
nd.sparse.row_sparse_array([[0, 0], [2, 0]])
nd.sparse.row_sparse_array((2, 3))
nd.sparse.row_sparse_array((2, 3, 4))
nd.sparse.row_sparse_array((2, 3), shape=(3, 3))
nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [1, 4]))
nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [1, 4]), shape=(6, 2))
nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [1, 4]), shape=(6, 3))
nd.sparse.row_sparse_array((np.ones((2, 2, 2)), np.array([0, 2])), shape=(3, 2, 2), dtype='float32')
nd.sparse.row_sparse_array(c)
nd.sparse.zeros('default', (2,))
nd.sparse.zeros('dense', (2, 2))
nd.sparse.zeros('csr', (2, 2, 2))
nd.sparse.array(x)
x.tostype('dense')
x.tostype('csr')
x.tostype('row_sparse')
nd.ones((2,)).tostype('csr')
nd.ones((2,)).tostype('row_sparse')
nd.ones((2, 2, 2)).tostype('csr')
nd.ones((2, 2, 2)).tostype('row_sparse')
nd.cast_storage(x, 'csr')
nd.cast_storage(r, stype='default')
nd.cast_storage(c, stype='csr')
nd.sparse.retain(r, nd.array([0]))
nd.sparse.retain(r, nd.array([1, 2]))
nd.sparse.retain(r, nd.array([]))
nd.sparse.retain(c, nd.array([0]))
nd.contrib.quadratic(c, a=1, b=2, c=0)
nd.contrib.quadratic(c, a=1, b=2, c=1)
nd.dot(c, w, forward_stype='csr')
nd.dot(c, v, transpose_a=True, forward_stype='default')
nd.dot(nd.ones((2, 4)), c, forward_stype='default')
nd.take(c, nd.array([5, -1]), mode='wrap')
nd._internal._square_sum(r, axis=0)
nd._internal._square_sum(r, axis=1)
nd._internal._square_sum(r, axis=1, keepdims=True)
nd.contrib.getnnz(c)
nd.contrib.getnnz(c, axis=1)
nd.contrib.getnnz(r)
""".strip().splitlines()

PROGRAMS = {
    "assign dense to csr": "c[:] = y; result = c",
    "assign dense to row_sparse": "r[:] = y; result = r",
    "assign row_sparse": "r[:] = r2; result = r",
    "assign csr to row_sparse": "r[:] = c; result = r",
    "assign a number to row_sparse": "r[:] = 2; result = r",
    "assign a number to csr": "c[:] = 2; result = c",
    "assign NumPy": "c[:] = np.eye(4, 3); result = c",
    "assign a part": "c[0:1] = 2; result = c",
    "assign sparse to dense": "x[:] = c; result = x",
    "add in place": "c += c2; result = c",
    "multiply in place": "r *= 3; result = r",
    "add a dense array in place": "r += y; result = r",
    "a dense array in place": "x += r; result = x",
    "a result in a dense array": "nd.dot(c, w, out=v); result = v",
    "a result in a csr array": "nd.broadcast_add(x, y, out=c); result = c",
    "a copy is apart": "d = c.copy(); d[:] = y; result = c",
    "data is a copy": "d = c.data; d[:] = 0; result = c",
    "pickle": "import pickle; result = pickle.loads(pickle.dumps(c))",
    "save and load": (
        "nd.save('sparse.params', {'c': c, 'r': r}); l = nd.load('sparse.params'); result = [l['c'], l['r']]"
    ),
    "gradient of dot": (
        "w.attach_grad(stype='row_sparse')\nwith autograd.record():\n    l = nd.dot(c, w).sum()\n"
        "l.backward(); result = w.grad"
    ),
    "gradient of a sparse array": (
        "r.attach_grad()\nwith autograd.record():\n    l = (nd.square(r) * 3).sum()\nl.backward(); result = r.grad"
    ),
    "gradients that add up": (
        "w.attach_grad('add', stype='row_sparse')\nfor _ in range(2):\n    with autograd.record():\n"
        "        l = nd.dot(c, w).sum()\n    l.backward()\nresult = w.grad"
    ),
    "gradient of an embedding": (
        "w.attach_grad(stype='row_sparse')\nwith autograd.record():\n    l = nd.Embedding(nd.array([2, 0, 2]), w, "
        "input_dim=3, output_dim=2, sparse_grad=True).sum()\nl.backward(); result = w.grad"
    ),
    "check_format": "nd.sparse.csr_matrix(([7, 8], [2, 0], [0, 5, 2]), shape=(2, 3)).check_format(); result = 1",
    "check_format of unsorted columns": (
        "nd.sparse.csr_matrix(([7, 8], [2, 0], [0, 2, 2]), shape=(2, 3)).check_format(); result = 1"
    ),
    "quick check_format of unsorted columns": (
        "nd.sparse.csr_matrix(([7, 8], [2, 0], [0, 2, 2]), shape=(2, 3)).check_format(full_check=False); result = 1"
    ),
    "check_format of rows": (
        "nd.sparse.row_sparse_array(([[1.0], [2.0]], [1, 0]), shape=(3, 1)).check_format(); result = 1"
    ),
    "check_format of a row too many": (
        "nd.sparse.row_sparse_array(([[1.0], [2.0]], [1, 3]), shape=(3, 1)).check_format(); result = 1"
    ),
}


OPTIMIZERS = {
    "SGD": "SGD(learning_rate=0.5, wd=0.1)",
    "SGD with momentum": "SGD(learning_rate=0.5, wd=0.1, momentum=0.9, rescale_grad=0.5)",
    "SGD, clipped": "SGD(learning_rate=0.5, wd=0.1, clip_gradient=0.4)",
    "SGD of all rows": "SGD(learning_rate=0.5, wd=0.1, momentum=0.9, lazy_update=False)",
    "Adam": "Adam(learning_rate=0.1, wd=0.1)",
    "Adam of all rows": "Adam(learning_rate=0.1, wd=0.1, lazy_update=False)",
    "AdaGrad": "AdaGrad(learning_rate=0.1)",
    "Ftrl": "Ftrl(learning_rate=0.1, wd=0.1)",
    "RMSProp": "RMSProp(learning_rate=0.1, wd=0.1)",
}
STEPS = """
o = mx.optimizer.{optimizer}
s = o.create_state(0, {weight})
for g in (r, r2, r):
    o.update(0, {weight}, g, s)
result = [{weight}, *(s if isinstance(s, tuple) else [] if s is None else [s])]
""".strip()
PROGRAMS |= {
    f"{name} on a {kind} weight": (
        ("" if kind == "dense" else "x = (nd.ones((4, 3)) * 2).tostype('row_sparse')\n")
        + STEPS.format(optimizer=optimizer, weight="x")
    )
    for name, optimizer in OPTIMIZERS.items()
    for kind in ("dense", "row_sparse")
    if (name, kind) != ("RMSProp", "row_sparse")  # whose state is a row_sparse array there
}
PROGRAMS |= {
    "row_sparse_pull": (
        "kv = mx.kv.create('local'); kv.init('a', r); o = nd.sparse.zeros('row_sparse', (4, 3))\n"
        "kv.row_sparse_pull('a', out=o, row_ids=nd.array([[2, 1]])); result = o"
    ),
    "pull leaves sparse arrays": ("kv = mx.kv.create('local'); kv.init('a', x); kv.pull('a', out=r2); result = r2"),
    "sums of several devices": (
        "kv = mx.kv.create('local'); kv.init('a', r); kv.push('a', [r, r2]); kv.pull('a', out=r, ignore_sparse=False)\n"
        "result = r"
    ),
    "an embedding and its trainer": (
        "e = mx.gluon.nn.Embedding(4, 2, sparse_grad=True); e.initialize(mx.init.One())\n"
        "t = mx.gluon.Trainer(e.collect_params(), 'sgd', {'learning_rate': 1.0, 'wd': 0.5})\n"
        "with autograd.record():\n    l = e(nd.array([2, 0, 2])).sum()\n"
        "l.backward(); t.step(1); result = [e.weight.grad(), e.weight.data()]"
    ),
    "rows of a parameter": (
        "p = mx.gluon.Parameter('p', shape=(4, 2), stype='row_sparse', grad_stype='row_sparse')\n"
        "p.initialize(mx.init.One()); t = mx.gluon.Trainer([p], 'sgd', {'learning_rate': 1.0})\n"
        "i = nd.array([3, 1])\nwith autograd.record():\n"
        "    l = nd.Embedding(i, p.row_sparse_data(i), input_dim=4, output_dim=2, sparse_grad=True).sum()\n"
        "l.backward(); t.step(1); result = [p.grad(), p.row_sparse_data(nd.arange(4))]"
    ),
    "clip_global_norm": "result = [float(mx.gluon.utils.clip_global_norm([r, r2], 1.0)), r, r2]",
    "split_and_load": "result = mx.gluon.utils.split_and_load(c, [mx.cpu(0), mx.cpu(0)])",
    "a bound Symbol": (
        "a, b = mx.sym.var('a', stype='csr'), mx.sym.var('b')\n"
        "e = mx.sym.sparse.dot(a, b).bind(mx.cpu(), {'a': c, 'b': w}, {'b': nd.sparse.zeros('row_sparse', (3, 2))},"
        " {'a': 'null', 'b': 'write'})\n"
        "e.forward(is_train=True); e.backward(nd.ones((4, 2))); result = [e.outputs[0], e.grad_dict['b']]"
    ),
    "a bound Symbol with sparse outputs": (
        "a = mx.sym.var('a', stype='row_sparse')\n"
        "e = (mx.sym.square(a) * 2).bind(mx.cpu(), {'a': r}, {'a': nd.sparse.zeros('row_sparse', (4, 3))})\n"
        "e.forward(is_train=True); e.backward(r); result = [e.outputs[0], e.grad_dict['a']]"
    ),
    "simple_bind": (
        "a, b = mx.sym.var('a'), mx.sym.var('b', stype='row_sparse')\n"
        "s = mx.sym.sparse.Embedding(a, b, input_dim=4, output_dim=2, sparse_grad=True)\n"
        "e = s.simple_bind(mx.cpu(), a=(3,), grad_req={'a': 'null', 'b': 'write'})\n"
        "result = [e.arg_dict['b'], e.grad_dict['b'], e.arg_dict['a']]"
    ),
}


def all_cases() -> dict[str, str]:
    """Name -> program."""
    cases = {}
    for a, b in (("c", "c2"), ("r", "r2")):
        for name in UNARY:
            cases[f"{name}({a})"] = f"result = nd.{name}({a})"
        for expression in EXPRESSIONS:
            text = expression.format(a=a, b=b)
            cases[text] = f"result = {text}"
    cases |= {text: f"result = {text}" for text in PLAIN}
    return cases | PROGRAMS


def answer(program: str, mx: Any, np: Any) -> Any:
    """The result of a program as JSON data; "error" where it raises."""
    nd = mx.nd
    x = nd.array([[0, 1.5, 0], [0, 0, 0], [-0.25, 0, 0.5], [0, 0, 0]])
    y = nd.array([[0, 0, 0], [0, -3, 0.5], [2, 0, 1], [0, 0, 0]])
    names = {
        "mx": mx, "nd": nd, "np": np, "autograd": mx.autograd, "x": x, "y": y,
        "c": x.tostype("csr"), "r": x.tostype("row_sparse"), "c2": y.tostype("csr"), "r2": y.tostype("row_sparse"),
        "w": nd.array([[1, 2], [3, 4], [5, 6]]), "v": nd.array([[1, 2], [3, 4], [5, 6], [7, 8]]),
    }  # fmt: skip
    try:
        exec(program, names)
        return _plain(names["result"], mx)
    except Exception:
        return "error"


def _plain(value: Any, mx: Any) -> Any:
    if isinstance(value, mx.nd.NDArray):
        made = {
            "stype": value.stype,
            "dtype": value.dtype.__name__,
            "shape": list(value.shape),
            "values": value.asnumpy().tolist(),
        }
        if value.stype == "row_sparse":
            made["indices"] = value.indices.asnumpy().tolist()
        elif value.stype == "csr":  # MXNet's kernels leave columns unsorted, and memory behind the last that is used
            columns, starts = value.indices.asnumpy().tolist(), value.indptr.asnumpy().tolist()
            made["columns"] = [sorted(columns[first:last]) for first, last in zip(starts, starts[1:])]
        return made
    return [_plain(item, mx) for item in value] if isinstance(value, (list, tuple)) else value
