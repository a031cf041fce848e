"""What programs compute between their layers: a row for each expression or statement; loops are in `bodies`.

The slots are those of `writing.Body.fill`. A row without an assignment becomes a new variable.
"""

from __future__ import annotations

import re

#: In code that can become a graph, and elsewhere.
ANYWHERE = [
    "$F.${relu|tanh|sigmoid|softsign|abs|square|sin|cos|exp|erf|negative|sign|floor|round}($x)",
    "$F.Activation($x, act_type='${relu|softrelu|tanh}')",
    "$F.LeakyReLU($x, act_type='${leaky|elu|selu|gelu}')",
    "$F.${sqrt|log|rsqrt|cbrt}($F.abs($x) + ${0.1|1|0.5})",
    "$x ${+|-|*} $same",
    "$x / ($same * $same + 1)",
    "$x ${+|-|*|/} ${2|0.5|-1|3}",
    "${1|2|0.5} ${+|-|*} $x",
    "$x ** ${2|3}",
    "-$x",
    "$F.${broadcast_add|broadcast_mul|broadcast_maximum|broadcast_minimum|broadcast_sub}($x, $same)",
    "$F.${maximum|minimum}($x, ${0|0.5|-0.2})",
    "$F.${sum|mean|max|min|prod}($x, axis=$axis, keepdims=True)",
    "$F.${sum|mean|max|norm}($x, axis=$axis)",
    "$F.broadcast_${add|sub|mul}($x, $F.mean($x, axis=$axis, keepdims=True))",
    "$x - $x.${max|mean}(axis=$axis, keepdims=True)",
    "$F.${softmax|log_softmax}($x, axis=$axis)",
    "$F.softmax($x, axis=$axis, temperature=2.0)",
    "$F.concat($x, $same, dim=$axis)",
    "$F.stack($x, $same, axis=${0|1|-1})",
    "$F.add_n($x, $same, $x)",
    "$F.transpose($x, axes=(0, 2, 1))",
    "$F.swapaxes($x, dim1=${0|1}, dim2=$axis)",
    "$F.reshape($x, shape=${(0, -1)|(0, -1, 1)|(-1, 1)|(0, 0, -1)|(-3, -2)|(-1, 0)})",
    "$x.reshape(${(0, -1)|(0, 1, -1)|(-1,)})",
    "$F.flatten($x)",
    "$F.expand_dims($x, axis=${0|1|-1})",
    "$F.squeeze($F.expand_dims($x, axis=1), axis=1)",
    "$F.slice_axis($x, axis=$axis, begin=${0|-1}, end=None)",
    "$F.slice_axis($x, axis=$axis, begin=0, end=${1|2})",
    "$x[${:, 0|:, :1|0:1|:, ::-1|:, None|0|-1|..., 0|:, -1}]",
    "$x[${..., None|..., None, :|..., ::-1|..., ::2|..., -1, None|[0, -1, 0]|:, [0, -1]|..., [0, 0]|None, ..., :1}]",
    "$F.flip($x, axis=$axis)",
    "$F.tile($x, reps=(1, 2))",
    "$F.repeat($x, repeats=2, axis=$axis)",
    "$F.pad($x4, mode='${edge|constant|reflect}', pad_width=(0, 0, 0, 0, 1, 1, 1, 1))",
    "$F.clip($x, ${-0.5|0|-1}, ${0.5|1})",
    "$F.where($x > ${0|0.2|$same}, $x, $same * ${0|0.5|-1})",
    "$F.where($x > $same, $x, $same)",
    "$x * ($x ${>|<|>=} ${0|0.3})",
    "$F.dot($x2, $F.transpose($x2))",
    "$F.batch_dot($x3, $x3, transpose_b=True)",
    "$F.batch_dot($x3, $F.softmax($x3), transpose_a=True)",
    "$F.linalg.gemm2($x3, $x3, transpose_b=True)",
    "$F.${argmax|argmin}($x, axis=$axis)",
    "$F.topk($x, axis=$axis, k=1, ret_typ='value')",
    "$F.sort($x, axis=$axis)",
    "$F.one_hot($F.argmax($x, axis=$axis), $size)",
    "$F.pick($x, $F.argmax($x, axis=$axis), axis=$axis)",
    "$F.take($x, $F.zeros_like($F.argmax($x, axis=$axis)), axis=0)",
    "$F.L2Normalization($x)",
    "$F.smooth_l1($x, scalar=1.0)",
    "$F.cumsum($x, axis=$axis)",
    "$F.zeros_like($x) + $F.ones_like($same)",
    "$F.BlockGrad($x)",
    "$F.stop_gradient($x) * $same",
    "$F.identity($x)",
    "$F.cast($F.cast($x, dtype='float64'), dtype='float32')",
    "$x.astype('float32')",
    "$F.Dropout($x, p=${0.5|0.2})",
    "$x + $F.random.uniform(${0|-1}, 1, shape=(1,))",
    "$F.random.normal_like($x) * $same",
    "$F.gamma($F.abs($x) + 1)",
    "$F.diag($x2)",
    "$F.space_to_depth($x4, 2)",
    "$F.UpSampling($x4, scale=2, sample_type='nearest')",
    "$F.contrib.BilinearResize2D($x4, height=${2|5}, width=3)",
    "$F.contrib.AdaptiveAvgPooling2D($x4, output_size=${1|2})",
    "$F.Pooling($x4, kernel=(2, 2), pool_type='${max|avg|sum|lp}', p_value=2, stride=(1, 1))",
    "$F.SequenceReverse($x3)",
    "$F.SequenceMask($x3)",
    "$F.LRN($x4, nsize=3)",
    "$F.SoftmaxOutput($x2, $F.argmax($x2, axis=1))",
    "$F.LinearRegressionOutput($x, $same)",
    "$F.make_loss($F.square($x))",
    "$F.contrib.arange_like($x, axis=$axis)",
    "$x + $F.arange(0, ${1|1.5})",
    "$F.linalg.sumlogdiag($F.abs($F.batch_dot($x3, $x3, transpose_b=True)) + 1)",
    # statements
    "$new1, $new2 = $F.split($x, num_outputs=2, axis=$axis)",
    "$new1, $new2 = $F.split($x, num_outputs=2, axis=$axis, squeeze_axis=${True|False})",
    "$new1, $new2 = $F.topk($x, axis=$axis, k=1, ret_typ='both')",
    "$new1, $new2 = $F.moments($x, axes=($axis,))",
    "$new = [$x, $same]\n$new1 = $new[0] * $new[1]",
    "$new = {'a': $x, 'b': $same}\n$new1 = $new['a'] + $new.get('b')",
    "$new = $x\nfor i in range(${1|2|3}):\n    $new = $F.tanh($new) + i",
    "$new = $x\nfor k in (${0.5, 1.5|2, 3}):\n    $new = $new * k - $same",
    "$new = sum($F.sin($x * k) for k in (1, 2))",
    "$new = $F.add_n(*[$x * k for k in range(1, 4)])",
    "def inner(a, b=2):\n    return a * b\n$new = inner($x) - inner($same, b=0.5)",
]

#: On whole numbers and masks.
WHOLE = [
    "$F.cast($i, dtype='float32') * ${2|0.5}",
    "$i ${+|-|*} ${1|2|$i}",
    "$i ${==|>|<=|!=} ${1|0|$i}",
    "$i ${/|//|%} 2",
    "$F.one_hot($i, 4)",
    "$F.where($i ${>|==} 1, $F.cast($i, dtype='float32') * 2, $F.cast($i, dtype='float32') - 1)",
    "$F.where($i, $i, $F.zeros_like($i))",
    "$F.take($x, $F.clip($i, 0, 0), axis=0)",
    "$F.broadcast_mul($x, $F.cast($i, dtype='float32'))",
    "$F.broadcast_mul($x, $F.mean($F.cast($i, dtype='float32')))",
    "$F.${sum|max|min|prod}($i, axis=1)",
    "$F.${sum|max}($i)",
    "$F.${sort|argsort}($i)",
    "$F.argmax($i, axis=1)",
    "$F.${reverse|flip}($i, axis=0)",
    "$F.logical_not($i)",
    "$F.${abs|sign|square|relu}($i)",
    "$F.concat($i, $i, dim=0)",
    "$F.cast($i, dtype='${int32|int64|uint8|float16|float64|bool}')",
    "$F.cast($x > 0, dtype='${bool|int32|uint8}')",
    "$F.SequenceMask($x3, $F.cast($F.sum($i > 1), dtype='float32'), use_sequence_length=True)",
    "$new1, $new2 = $F.contrib.foreach(lambda a, b: (a + b, b + a), $i, $F.zeros_like($i[0]))",
    "$new = $F.contrib.cond($F.sum($i) > 2, lambda: $i + 1, lambda: $i * 2)",
]

#: On arrays of rank 0, and what is large.
SIZES = [
    "$F.broadcast_mul($x, $x0)",
    "$x ${+|*} $x0",
    "$x0 ${*|-} ${2|$x0}",
    "$F.${tanh|exp|identity|sum}($x0)",
    "$F.reshape($F.sum($x), shape=())",
    "$F.broadcast_add($x, $F.reshape($F.mean($x), shape=()))",
    "$x * $F.mean($F.sin($F.arange(0, ${3000|5000})))",
    "$F.broadcast_add($x, $F.slice_axis($F.arange(0, 6000) * 0.5, axis=0, begin=1, end=2))",
    "$F.sum($F.tile($x, reps=(1, ${300|700})), axis=-1)",
    "$F.mean($F.tanh($F.broadcast_mul($F.expand_dims($x, axis=-1), $F.ones((1000,)))), axis=-1)",
]

#: What gives infinities and NaN.
NOT_FINITE = [
    "$F.${log|sqrt|rsqrt|arccosh|arcsin|log1p}($x)",
    "$x / $F.relu($x)",
    "${1|$x} / $F.floor($x)",
    "$F.exp($x * 200)",
    "$F.where($x > 0, $x, $x / 0)",
    "$x * $F.log($F.abs($same) * 0)",
    "$F.${sum|max|min|mean|prod}($F.log($x), axis=$axis)",
    "$F.${softmax|log_softmax}($F.${log|rsqrt}($x), axis=$axis)",
    "$F.${maximum|minimum}($F.sqrt($x), $same)",
    "$F.${broadcast_maximum|broadcast_div}($x, $F.log($same))",
    "$F.clip($F.log($x), -1, 1)",
    "$F.${sort|argmax|argmin|cumsum}($F.rsqrt($F.relu($x)), axis=$axis)",
    "$F.dot($F.sqrt($x2), $F.transpose($x2))",
]

#: Sums with weights of 0, in which NaN and infinities may be lost; docs/differences.md names these operators.
ZERO_WEIGHTS = re.compile(r"Conv|Pool|LRN|Norm|Resize|linalg|softmax")

#: Where a Block has numbers in attributes.
WITH_ATTRIBUTES = [
    "$x * self.scale",
    "$F.clip($x, -self.scale, self.scale)",
    "if self.flag:\n    $new = $F.tanh($x)\nelse:\n    $new = $x * 2",
    "$new = $F.relu($x) if self.flag else $x",
    "$new = $x\nfor i in range(self.times):\n    $new = $new * self.scale + i",
    "if self.fail:\n    raise ${ValueError|KeyError|RuntimeError}('asked for')\n$new = $x + 1",
    "$new = $x\nfor k in self.numbers:\n    $new = $new + k * $same",
    "$new = self.mixed($F, $x, k=${2|0.5})",
]

#: Where arrays are arrays: in a plain Block.
ON_ARRAYS = [
    "$new = $x.copy()\n$new[:] = $same * 2",
    "$new = $x * 1\n$new += $same",
    "$new = $x + 0\n$new[:, 0] = ${0|1|$x[:, 0]}",
    "$new = $x * float($x.sum().asscalar() > 0)",
    "if $x.mean().asscalar() > ${0|0.1}:\n    $new = $x * 2\nelse:\n    $new = $x - 1",
    "$new = $x.reshape(($x.shape[0], -1))",
    "$new = nd.array($x.asnumpy()) + $x",
    "$new = nd.concat(*[part for part in $x], dim=0)",
    "with autograd.pause():\n    $new1 = $x * 2\n$new2 = $new1 + $x",
    "with autograd.predict_mode():\n    $new = nd.Dropout($x, p=0.5)",
    "$new = $x.detach() * $same",
    "$new = $x[$x.argmax(axis=0)[0:1].reshape((-1,)) * 0]",
    "$new = Scaled()($x)",
    "$new1, $new2 = Crossed()($x, $same)",
]

#: 2.x style in a HybridBlock: shapes may be read, which the graph then holds for.
IN_TRACES = [
    "$x.reshape(($x.shape[0], -1))",
    "$x / $x.shape[-1]",
    "if $x.ndim > 2:\n    $new = $x.mean(axis=1)\nelse:\n    $new = $x * 1",
    "if autograd.is_training():\n    $new = $x * 2\nelse:\n    $new = $x - 1",
]

#: The classes of autograd.Function that rows and parts name.
FUNCTIONS = {
    "Scaled": """class Scaled(autograd.Function):
    def forward(self, x):
        self.save_for_backward(x)
        return x * 2

    def backward(self, dy):
        (x,) = self.saved_tensors
        return dy * 2 + x""",
    "Crossed": """class Crossed(autograd.Function):
    def forward(self, x, y):
        return x * 0.5 + y, y - x

    def backward(self, da, db):
        return da * 0.5 - db, da + db""",
}
