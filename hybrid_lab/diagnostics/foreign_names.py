"""Operators and methods of PyTorch, TensorFlow and NumPy that are called otherwise here, with what to write instead."""

from __future__ import annotations

from typing import NamedTuple

from .rules.numpy_calls import SAME_OPERATOR


class Foreign(NamedTuple):
    """A name of another framework. instead : the equivalent here, in terms of `F` and a tensor `x`."""

    framework: str
    instead: str


_TORCH_OPERATORS = {
    "adaptive_avg_pool2d": "F.contrib.AdaptiveAvgPooling2D(x, output_size=(1, 1))",
    "adaptive_max_pool2d": "F.Pooling(x, pool_type='max', global_pool=True) for one value a channel",
    "affine_grid": "F.GridGenerator(theta, transform_type='affine', target_shape=(height, width))",
    "amax": "F.max(x, axis=1)",
    "amin": "F.min(x, axis=1)",
    "avg_pool1d": "F.Pooling(x, kernel=(2,), stride=(2,), pool_type='avg')",
    "avg_pool2d": "F.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type='avg')",
    "avg_pool3d": "F.Pooling(x, kernel=(2, 2, 2), stride=(2, 2, 2), pool_type='avg')",
    "baddbmm": "F.batch_dot(x, y) + z",
    "batch_norm": "F.BatchNorm(x, gamma, beta, running_mean, running_var), or the layer nn.BatchNorm",
    "binary_cross_entropy": "the loss gluon.loss.SigmoidBCELoss(from_sigmoid=True)",
    "binary_cross_entropy_with_logits": "the loss gluon.loss.SigmoidBCELoss()",
    "bmm": "F.batch_dot(x, y)",
    "cat": "F.concat(x, y, dim=1)",
    "celu": "F.LeakyReLU(x, act_type='elu', slope=1.0)",
    "chunk": "F.split(x, num_outputs=2, axis=1)",
    "clamp": "F.clip(x, 0, 1)",
    "conv1d": "F.Convolution(x, weight, bias, kernel=(3,), num_filter=8), or the layer nn.Conv1D",
    "conv2d": "F.Convolution(x, weight, bias, kernel=(3, 3), num_filter=8), or the layer nn.Conv2D",
    "conv3d": "F.Convolution(x, weight, bias, kernel=(3, 3, 3), num_filter=8), or the layer nn.Conv3D",
    "conv_transpose1d": "F.Deconvolution(x, weight, kernel=(2,), num_filter=8), or the layer nn.Conv1DTranspose",
    "conv_transpose2d": "F.Deconvolution(x, weight, kernel=(2, 2), num_filter=8), or the layer nn.Conv2DTranspose",
    "cosine_similarity": "F.sum(F.L2Normalization(x) * F.L2Normalization(y), axis=1)",
    "cross_entropy": "the loss gluon.loss.SoftmaxCrossEntropyLoss()",
    "cumprod": "F.exp(F.cumsum(F.log(x), axis=1)) for positive numbers",
    "dropout2d": "F.Dropout(x, p=0.5, axes=(2, 3))",
    "elu": "F.LeakyReLU(x, act_type='elu', slope=1.0)",
    "eq": "x == y, or F.broadcast_equal(x, y)",
    "fold": "F.col2im(x, output_size=(8, 8), kernel=(2, 2))",
    "gather": "F.pick(x, index, axis=1), F.take(x, index, axis=1) or F.gather_nd(x, index)",
    "ge": "x >= y, or F.broadcast_greater_equal(x, y)",
    "gelu": "F.LeakyReLU(x, act_type='gelu')",
    "glu": "a, b = F.split(x, num_outputs=2, axis=1), then a * F.sigmoid(b)",
    "grid_sample": "F.BilinearSampler(x, grid), with the grid as (batch, 2, height, width)",
    "group_norm": "F.GroupNorm(x, gamma, beta, num_groups=4), or the layer nn.GroupNorm",
    "gt": "x > y, or F.broadcast_greater(x, y)",
    "hardsigmoid": "F.hard_sigmoid(x)",
    "hardswish": "x * F.clip(x + 3, 0, 6) / 6",
    "hardtanh": "F.clip(x, -1, 1)",
    "huber_loss": "the loss gluon.loss.HuberLoss()",
    "index_select": "F.take(x, index, axis=1)",
    "instance_norm": "F.InstanceNorm(x, gamma, beta), or the layer nn.InstanceNorm",
    "interpolate": "F.contrib.BilinearResize2D(x, height=32, width=32)",
    "kl_div": "the loss gluon.loss.KLDivLoss()",
    "l1_loss": "the loss gluon.loss.L1Loss()",
    "layer_norm": "F.LayerNorm(x, gamma, beta), or the layer nn.LayerNorm",
    "le": "x <= y, or F.broadcast_lesser_equal(x, y)",
    "leaky_relu": "F.LeakyReLU(x, act_type='leaky', slope=0.01)",
    "linear": "F.FullyConnected(x, weight, bias, num_hidden=8), or the layer nn.Dense",
    "logsigmoid": "F.log(F.sigmoid(x)), or -F.Activation(-x, act_type='softrelu')",
    "logsumexp": "F.log(F.sum(F.exp(x), axis=1))",
    "lt": "x < y, or F.broadcast_lesser(x, y)",
    "masked_fill": "F.where(mask, F.ones_like(x) * value, x)",
    "masked_select": "F.contrib.boolean_mask(x, mask)",
    "matmul": "F.dot(x, y) for matrices, F.batch_dot(x, y) for batches of them",
    "max_pool1d": "F.Pooling(x, kernel=(2,), stride=(2,), pool_type='max')",
    "max_pool2d": "F.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type='max')",
    "max_pool3d": "F.Pooling(x, kernel=(2, 2, 2), stride=(2, 2, 2), pool_type='max')",
    "mish": "x * F.tanh(F.Activation(x, act_type='softrelu'))",
    "mm": "F.dot(x, y)",
    "movedim": "F.transpose(x, axes=(0, 2, 1))",
    "mse_loss": "the loss gluon.loss.L2Loss(), which is half of it",
    "mul": "x * y, or F.broadcast_mul(x, y)",
    "mv": "F.dot(x, y)",
    "narrow": "F.slice_axis(x, axis=1, begin=0, end=2)",
    "ne": "x != y, or F.broadcast_not_equal(x, y)",
    "neg": "-x",
    "nll_loss": "the loss gluon.loss.SoftmaxCrossEntropyLoss(from_logits=True)",
    "normalize": "F.L2Normalization(x)",
    "outer": "F.dot(x.reshape((-1, 1)), y.reshape((1, -1)))",
    "permute": "F.transpose(x, axes=(0, 2, 1))",
    "pixel_shuffle": "F.depth_to_space(x, block_size=2), or the layer contrib.nn.PixelShuffle2D",
    "prelu": "F.LeakyReLU(x, gamma, act_type='prelu'), or the layer nn.PReLU",
    "rand": "F.random.uniform(shape=(2, 3))",
    "rand_like": "F.random.uniform_like(x)",
    "randn": "F.random.normal(shape=(2, 3))",
    "randn_like": "F.random.normal_like(x)",
    "relu6": "F.clip(x, 0, 6)",
    "roll": "F.concat(F.slice_axis(x, axis=1, begin=1, end=None), F.slice_axis(x, axis=1, begin=0, end=1), dim=1)",
    "scaled_dot_product_attention": "F.batch_dot(F.softmax(F.batch_dot(q, k, transpose_b=True) * scale), v)",
    "scatter": "F.scatter_nd(values, indices, shape=(2, 3))",
    "selu": "F.LeakyReLU(x, act_type='selu')",
    "silu": "x * F.sigmoid(x)",
    "smooth_l1_loss": "F.smooth_l1(x - y, scalar=1.0), or the loss gluon.loss.HuberLoss()",
    "std": "F.sqrt(F.moments(x, axes=(1,))[1])",
    "sub": "x - y, or F.broadcast_sub(x, y)",
    "swish": "x * F.sigmoid(x)",
    "t": "F.transpose(x)",
    "threshold": "F.where(x > 0, x, F.zeros_like(x))",
    "unbind": "F.split(x, num_outputs=2, axis=1, squeeze_axis=True)",
    "unfold": "F.im2col(x, kernel=(2, 2))",
    "unsqueeze": "F.expand_dims(x, axis=1)",
    "upsample": "F.UpSampling(x, scale=2, sample_type='nearest')",
    "var": "F.moments(x, axes=(1,))[1]",
    "view": "F.reshape(x, shape=(0, -1))",
}  # fmt: skip

_TENSORFLOW_OPERATORS = {
    "avg_pool": "F.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type='avg')",
    "batch_normalization": "F.BatchNorm(x, gamma, beta, running_mean, running_var), or the layer nn.BatchNorm",
    "bias_add": "F.broadcast_add(x, bias)",
    "boolean_mask": "F.contrib.boolean_mask(x, mask)",
    "clip_by_value": "F.clip(x, 0, 1)",
    "conv2d_transpose": "F.Deconvolution(x, weight, kernel=(2, 2), num_filter=8), or the layer nn.Conv2DTranspose",
    "depthwise_conv2d": "F.Convolution(x, weight, kernel=(3, 3), num_filter=8, num_group=8, no_bias=True)",
    "embedding_lookup": "F.Embedding(x, weight, input_dim=10, output_dim=4)",
    "l2_normalize": "F.L2Normalization(x)",
    "max_pool": "F.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type='max')",
    "reduce_logsumexp": "F.log(F.sum(F.exp(x), axis=1))",
    "reduce_max": "F.max(x, axis=1)",
    "reduce_mean": "F.mean(x, axis=1)",
    "reduce_min": "F.min(x, axis=1)",
    "reduce_prod": "F.prod(x, axis=1)",
    "reduce_sum": "F.sum(x, axis=1)",
    "sigmoid_cross_entropy_with_logits": "the loss gluon.loss.SigmoidBCELoss()",
    "softmax_cross_entropy_with_logits": "the loss gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=False)",
    "sparse_softmax_cross_entropy_with_logits": "the loss gluon.loss.SoftmaxCrossEntropyLoss()",
}  # fmt: skip

_NUMPY_OPERATORS = {
    **{name: f"F.{operator}" for name, operator in SAME_OPERATOR.items()},
    "concatenate": "F.concat(x, y, dim=0)",
    "atleast_1d": "F.reshape(x, shape=(-1,))",
    "average": "F.mean(x, axis=1)",
    "hstack": "F.concat(x, y, dim=1)",
    "vstack": "F.concat(x, y, dim=0)",
    "inner": "F.sum(x * y)",
    "ravel": "F.reshape(x, shape=(-1,))",
    "rollaxis": "F.transpose(x, axes=(0, 2, 1))",
    "moveaxis": "F.transpose(x, axes=(0, 2, 1))",
    "float_power": "F.broadcast_power(x, y)",
    "remainder": "F.broadcast_mod(x, y)",
}  # fmt: skip

_TORCH_METHODS = {
    "add_": "x = x + y",
    "bmm": "F.batch_dot(x, y)",
    "bool": "x != 0",
    "chunk": "x.split(num_outputs=2, axis=1)",
    "clamp": "x.clip(0, 1)",
    "clamp_": "x = x.clip(0, 1)",
    "clone": "F.identity(x)",
    "contiguous": "x itself",
    "cpu": "x itself; `as_in_context` moves arrays outside of the network",
    "cuda": "x itself; `as_in_context` moves arrays outside of the network",
    "data_ptr": "x itself",
    "dim": "the number of dimensions, which the author of the network knows",
    "div": "x / y",
    "div_": "x = x / y",
    "double": "x.astype('float64')",
    "eq": "x == y",
    "expand": "x.broadcast_to((2, 3))",
    "expand_as": "x.broadcast_like(y)",
    "fill_": "F.ones_like(x) * value",
    "float": "x.astype('float32')",
    "ge": "x >= y",
    "gt": "x > y",
    "half": "x.astype('float16')",
    "index_select": "x.take(index, axis=1)",
    "int": "x.astype('int32')",
    "le": "x <= y",
    "long": "x.astype('int64')",
    "lt": "x < y",
    "masked_fill": "F.where(mask, F.ones_like(x) * value, x)",
    "masked_fill_": "x = F.where(mask, F.ones_like(x) * value, x)",
    "matmul": "F.dot(x, y) for matrices, F.batch_dot(x, y) for batches of them",
    "mm": "F.dot(x, y)",
    "mul": "x * y",
    "mul_": "x = x * y",
    "ndimension": "the number of dimensions, which the author of the network knows",
    "numel": "F.size_array(x)",
    "permute": "x.transpose((0, 2, 1))",
    "pow": "x ** y",
    "relu_": "x = F.relu(x)",
    "requires_grad": "`attach_grad()` on the input, or `grad_req` of the parameter",
    "requires_grad_": "`attach_grad()` on the input, or `grad_req` of the parameter",
    "squeeze_": "x = x.squeeze()",
    "std": "F.sqrt(F.moments(x, axes=(1,))[1])",
    "sub": "x - y",
    "t": "x.transpose()",
    "to": "x.astype('float16') for a type; `as_in_context` moves arrays outside of the network",
    "type": "x.astype('float32')",
    "type_as": "x.astype('float32')",
    "unbind": "x.split(num_outputs=2, axis=1, squeeze_axis=True)",
    "unsqueeze": "x.expand_dims(axis=1)",
    "unsqueeze_": "x = x.expand_dims(axis=1)",
    "var": "F.moments(x, axes=(1,))[1]",
    "view": "x.reshape((0, -1))",
    "view_as": "x.reshape_like(y)",
    "zero_": "F.zeros_like(x)",
}  # fmt: skip

_TENSORFLOW_METHODS = {
    "get_shape": "0 in a reshape for the batch, as in x.reshape((0, -1))",
    "set_shape": "x itself: sizes are inferred",
}

_NUMPY_METHODS = {
    "all": "F.min(x != 0)",
    "any": "F.max(x != 0)",
    "conj": "x itself",
    "nbytes": "the number of elements, which the author of the network knows",
    "ravel": "x.reshape((-1,))",
    "resize": "x.reshape((0, -1))",
    "tobytes": "x itself, and `asnumpy().tobytes()` outside of the network",
}


def _table(of: dict[str, dict[str, str]]) -> dict[str, Foreign]:
    return {name: Foreign(framework, text) for framework, texts in reversed(of.items()) for name, text in texts.items()}


OPERATORS = _table({"PyTorch": _TORCH_OPERATORS, "TensorFlow": _TENSORFLOW_OPERATORS, "NumPy": _NUMPY_OPERATORS})
"""By the last part of the name: `grid_sample` for `F.grid_sample`."""
METHODS = _table({"PyTorch": _TORCH_METHODS, "TensorFlow": _TENSORFLOW_METHODS, "NumPy": _NUMPY_METHODS})
"""Methods and attributes of tensors."""


def foreign_operator(name: str) -> Foreign | None:
    """What another framework calls by this name, for a name that `F` does not have."""
    return OPERATORS.get(name)


def foreign_method(name: str) -> Foreign | None:
    """What another framework calls by this name, for a name that tensors do not have."""
    return METHODS.get(name) or OPERATORS.get(name)
