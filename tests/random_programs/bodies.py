"""Loops and branches: a row for each, by what their bodies do.

The slots are those of `writing.Body.fill`. A loop runs over the batch, or over axis 1 if its body needs the batch.
"""

from __future__ import annotations

_STEPS = "$F.swapaxes($x, dim1=0, dim2=1)"
_WHILE = "max_iterations=${4|3})"

#: Bodies of operators alone.
LOOPS = [
    "$new1, $new2 = $F.contrib.foreach(lambda a, b: (a * b, ${a + b|b|$F.tanh(a - b)}), $x, $F.zeros_like($x[0]))",
    "$new1, $new2 = $F.contrib.foreach(lambda a, b: ([a, a + b[0]], [b[0] + a, b[1] * 0.5]), $x, [$x[0], $x[0]])",
    "$new1, $new2 = $F.contrib.while_loop(lambda i, s: i < 3, lambda i, s: (s * i, (i + 1, $F.sin(s))), "
    "($F.zeros((1,)), $x), max_iterations=4)",
    "$new = $F.contrib.cond($F.sum($x) > ${0|0.5|-1}, lambda: $x * 2, lambda: $F.sqrt($F.abs($x)))",
    "$new = $F.contrib.cond($F.sum($x) < $F.max($same), lambda: $x + $same, lambda: $x)",
    # values from outside the body
    "$new = $x * 0.5\n"
    "$new1, $new2 = $F.contrib.foreach(lambda a, b: ($F.broadcast_add(a, $F.mean($same)), b * 0.5 + a), "
    "$new, $F.zeros_like($x[0]))",
    # masks and draws
    "$new1, $new2 = $F.contrib.foreach(lambda a, b: ($F.Dropout(a, p=0.5), ${a + b|$F.Dropout(b, p=0.3) + a}), "
    "$x, $F.zeros_like($x[0]))",
    "$new1, $new2 = $F.contrib.foreach(lambda a, b: (a + $F.random.uniform(0, 1, shape=(1,)), b + 1), "
    "$x, $F.zeros((1,)))",
    "$new = $F.contrib.cond($F.mean($x) > ${0|-1}, lambda: $F.Dropout($x, p=0.5), lambda: $x * 0.5)",
    # in one another
    "$new1, $new2 = $F.contrib.foreach(lambda a, b: ($F.contrib.cond($F.sum(a) > 0, lambda: a * a, lambda: -a), "
    "b + a), $x, $F.zeros_like($x[0]))",
    "$new1, $new2 = $F.contrib.foreach(lambda a, b: ($F.contrib.foreach(lambda c, d: (c * d, d + c), a, "
    "$F.zeros_like(a[0]))[0], b + 1), $x3, $F.zeros((1,)))",
    "$new1, $new2 = $F.contrib.while_loop(lambda i, s: i < 2, lambda i, s: ($F.contrib.cond($F.sum(s) > i, "
    "lambda: s * 2, lambda: $F.square(s)), (i + 1, s - 0.5)), ($F.zeros((1,)), $x), max_iterations=3)",
]

#: Bodies that call $child, a layer of KEEPING.
WITH_BLOCKS = [
    f"$new1, $new2 = $F.contrib.foreach(lambda a, b: ($child(a), b + $F.mean(a)), {_STEPS}, $F.zeros((1,)))",
    f"$new1, $new2 = $F.contrib.foreach(lambda a, b: (a * b, $child(b) ${{* 0.5|+ a}}), {_STEPS}, $F.mean($x, axis=1))",
    f"def $new(a, b):\n    c = $child(a)\n    return [c, b[0]], [b[0] + c, b[1] * 0.5]\n"
    f"$new1, $new2 = $F.contrib.foreach($new, {_STEPS}, [$F.mean($x, axis=1), $F.max($x, axis=1)])",
    "$new1, $new2 = $F.contrib.while_loop(lambda i, s: i < ${3|1}, lambda i, s: ($child(s), (i + 1, s * 0.5)), "
    f"($F.zeros((1,)), $x), {_WHILE}",
    "$new1, $new2 = $F.contrib.while_loop(lambda i, s: i < 2, lambda i, s: (s * i, (i + 1, $child(s))), "
    f"($F.zeros((1,)), $x), {_WHILE}",
    "$new = $F.contrib.cond($F.sum($x) > ${0|0.5|-1}, lambda: $child($x), lambda: $child($x * ${2|-1}))",
    "$new1, $new2 = $F.contrib.foreach(lambda a, b: ($F.contrib.cond($F.sum(a) > 0, lambda: $child(a), "
    f"lambda: $child(-a)), b + 1), {_STEPS}, $F.zeros((1,)))",
]

#: Layers that keep the shape of their input, if a Dense happens to have as many units as its input.
KEEPING = [
    "nn.BatchNorm()",
    "nn.BatchNorm(momentum=0.5, scale=False)",
    "nn.BatchNorm(axis=-1, epsilon=0.1)",
    "nn.LayerNorm()",
    "nn.Dropout(0.5)",
    "nn.PReLU()",
    "nn.GELU()",
    "nn.Activation('tanh')",
    "nn.Dense(4, flatten=False)",
    "nn.Dense(5, flatten=False, activation='sigmoid')",
    "nn.Dense(1, flatten=False, use_bias=False)",
]

#: Bodies that read $w, a parameter or a constant.
WITH_PARAMETERS = [
    "$new1, $new2 = $F.contrib.foreach(lambda a, b: ($F.broadcast_mul(a, $w), $F.broadcast_add(b, $w)), "
    "$x, $F.zeros_like($x[0]))",
    "$new1, $new2 = $F.contrib.while_loop(lambda i, s: i < 3, lambda i, s: ($F.broadcast_mul(s, $w), "
    f"(i + 1, $F.sin(s))), ($F.zeros((1,)), $x), {_WHILE}",
    "$new = $F.contrib.cond($F.sum($x) > 0, lambda: $F.broadcast_mul($x, $w), lambda: $F.broadcast_add($x, $w))",
]

#: Bodies that make infinities and NaN.
NOT_FINITE = [
    "$new1, $new2 = $F.contrib.foreach(lambda a, b: (${$F.log(a)|a / $F.relu(a)|$F.sqrt(a)}, b + a), "
    "$x, $F.zeros_like($x[0]))",
    "$new1, $new2 = $F.contrib.foreach(lambda a, b: (a * 2, ${$F.log(b) + a|b / (a - a)|b * 1e30}), $x, $x[0])",
    "$new1, $new2 = $F.contrib.while_loop(lambda i, s: i < 3, lambda i, s: (s / i, (i + 1, ${$F.sqrt(s)|s * s})), "
    "($F.zeros((1,)), $x), max_iterations=4)",
    "$new = $F.contrib.cond($F.sum($x) > 0, lambda: $F.log($x), lambda: 1 / $F.relu($x))",
]
