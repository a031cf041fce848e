"""Tables of names: Gluon's modules, Block classes, operators with several outputs, usual names of arguments."""

from __future__ import annotations

from hybrid_lab.aliases import older_name

# A lone cell often leaves its imports to another one; these names have their meaning from every Gluon book.
CONVENTIONAL = {
    "mx": "mx", "mxnet": "mx", "hybrid_lab": "mx", "nd": "mx.nd", "sym": "mx.sym", "gluon": "mx.gluon",
    "nn": "mx.gluon.nn", "rnn": "mx.gluon.rnn", "autograd": "mx.autograd", "init": "mx.init",
    "HybridBlock": "mx.gluon.HybridBlock", "Block": "mx.gluon.Block", "NDArray": "mx.nd.NDArray",
    "np": "numpy", "numpy": "numpy", "onp": "numpy", "math": "math", "random": "random", "time": "time", "os": "os",
    "logging": "logging", "warnings": "warnings", "npx": "mx.npx",
}  # fmt: skip

_MODULES = {
    "mx.ndarray": "mx.nd", "mx.ndarray.ndarray": "mx.nd", "mx.symbol": "mx.sym", "mx.symbol.symbol": "mx.sym",
    "mx.gluon.block": "mx.gluon", "mx.initializer": "mx.init", "mx.context": "mx", "mx.gluon.parameter": "mx.gluon",
}  # fmt: skip


# Modules whose functions are known by name, or keep no tensor; functions of other modules are looked into.
KNOWN_MODULES = (
    "builtins.", "numpy.", "mx.", "math.", "random.", "logging.", "warnings.", "copy.", "functools.", "itertools.",
    "time.", "os.", "collections.", "operator.", "typing.", "pprint.", "IPython.", "contextlib.", "dataclasses.",
)  # fmt: skip


def canonical(dotted: str) -> str:
    """`mxnet.ndarray.array` and `hybrid_lab.nd.array` are both `mx.nd.array`."""
    root, _, rest = older_name(dotted).partition(".")
    if root in ("mxnet", "hybrid_lab"):
        dotted = f"mx.{rest}" if rest else "mx"
    if dotted.startswith("mx."):
        parts = dotted.split(".")
        for length in range(min(len(parts), 3), 1, -1):
            if (short := _MODULES.get(".".join(parts[:length]))) is not None:
                return ".".join([short, *parts[length:]])
    return dotted


# By the last part of the name, below mx.gluon.
PLAIN_BLOCKS = {
    "Block", "Sequential", "Lambda", "Concurrent", "Concatenate", "SequentialRNNCell", "RecurrentCell",
    "SparseEmbedding",
    "Compose",
}  # fmt: skip

_HYBRID_BASES = {"HybridBlock", "SymbolBlock", "Loss"}

_BLOCK_MODULES = (
    "mx.gluon.nn.", "mx.gluon.rnn.", "mx.gluon.loss.", "mx.gluon.contrib.nn.", "mx.gluon.contrib.rnn.",
    "mx.gluon.contrib.cnn.", "mx.gluon.model_zoo.", "mx.gluon.data.vision.transforms.",
)  # fmt: skip

PARAMETERS = {"mx.gluon.Parameter", "mx.gluon.Constant", "mx.gluon.nn.Parameter"}

# Layers that give one tensor for one tensor.
SINGLE_OUTPUT_LAYERS = {
    "Dense", "Dropout", "BatchNorm", "BatchNormReLU", "SyncBatchNorm", "InstanceNorm", "LayerNorm", "GroupNorm",
    "Embedding", "Flatten", "Activation", "LeakyReLU", "PReLU", "ELU", "SELU", "GELU", "Swish", "SiLU", "Identity",
    "ReflectionPad2D", "PixelShuffle1D", "PixelShuffle2D", "PixelShuffle3D", "DeformableConvolution",
    "SeparableConv2D", "DepthwiseConv2D",
    *(f"Conv{n}D{t}" for n in (1, 2, 3) for t in ("", "Transpose")),
    *(f"{g}{k}Pool{n}D" for g in ("", "Global") for k in ("Max", "Avg") for n in (1, 2, 3)),
    "L2Loss", "L1Loss", "SoftmaxCrossEntropyLoss", "SoftmaxCELoss", "SigmoidBinaryCrossEntropyLoss", "SigmoidBCELoss",
    "KLDivLoss", "CTCLoss", "HuberLoss", "HingeLoss", "SquaredHingeLoss", "LogisticLoss", "TripletLoss",
    "PoissonNLLLoss", "CosineEmbeddingLoss", "SDMLLoss",
}  # fmt: skip


def is_block_class(dotted: str) -> bool | None:
    """True: a HybridBlock; False: a plain Block; None: no Block class of Gluon that is known by this name."""
    if not dotted.startswith("mx.gluon."):
        return None
    last = dotted.rpartition(".")[2]
    if last in PLAIN_BLOCKS:
        return False
    if last in _HYBRID_BASES or (dotted.startswith(_BLOCK_MODULES) and last[:1].isupper() and last != "Parameter"):
        return True
    return None


OPERATOR_NAMESPACES = ("mx.nd", "mx.sym")

# Operators with several outputs, always or by an attribute; an unlisted one gives a single tensor.
MULTIPLE_OUTPUTS = {
    "split", "SliceChannel", "slice_channel", "split_v2", "moments", "linalg.gelqf", "linalg.syevd", "linalg.slogdet",
    "linalg_gelqf", "linalg_syevd", "linalg_slogdet", "amp_multicast", "multi_all_finite", "multi_sum_sq", "meshgrid",
    "array_split", "hsplit", "vsplit", "dsplit", "contrib.MultiBoxTarget", "contrib.bipartite_matching", "histogram",
    "contrib.box_encode", "contrib.mrcnn_mask_target", "contrib.MultiBoxPrior2", "broadcast_arrays", "nonzero",
}  # fmt: skip

# One or several outputs, depending on attributes that are not looked at.
PERHAPS_MULTIPLE = {
    "RNN", "contrib.cond", "cond", "contrib.Proposal", "contrib.MultiProposal", "contrib.quantize",
    "contrib.quantize_v2",
    "Custom", "random.multinomial", "sample_multinomial", "unique", "contrib.requantize", "contrib.quantized_conv",
}  # fmt: skip

# The result has the shape of the first tensor.
ELEMENTWISE = {
    "relu", "sigmoid", "tanh", "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "cbrt", "square",
    "abs",
    "sign", "floor", "ceil", "round", "rint", "trunc", "fix", "clip", "negative", "reciprocal", "sin", "cos", "tan",
    "sinh", "cosh", "arcsin", "arccos", "arctan", "erf", "softmax", "log_softmax", "softmin", "Activation", "LeakyReLU",
    "Dropout", "zeros_like", "ones_like", "identity", "BlockGrad", "stop_gradient", "make_loss", "cast", "Cast",
    "astype",
    "LayerNorm", "BatchNorm", "InstanceNorm", "L2Normalization", "smooth_l1", "logical_not", "softsign", "hard_sigmoid",
    "gamma", "gammaln", "copy", "detach", "cumsum", "reverse", "flip", "sort", "argsort", "broadcast_like",
    "reshape_like", "gelu", "softplus", "degrees", "radians",
}  # fmt: skip

# Operators without a tensor among their arguments.
CREATION = {"zeros", "ones", "full", "empty", "eye", "arange", "linspace", "array"}

# The result lacks axes of the first tensor, or has them with length 1.
REDUCTIONS = {
    "sum", "mean", "max", "min", "prod", "nansum", "nanprod", "norm", "argmax", "argmin", "sum_axis", "max_axis",
    "min_axis",
}  # fmt: skip

# The result has an axis of length 1 if the first tensor has one, perhaps in another place.
REARRANGING = {"transpose", "swapaxes", "slice_axis", "slice"}

LIKE_SECOND = {"broadcast_like", "reshape_like"}

# Arguments that are, by Gluon's habit, a list of tensors.
LIST_ARGUMENTS = {
    "states", "begin_state", "begin_states", "hidden_states", "features", "feats", "feat", "feature_maps", "xs", "args",
    "layers", "tensors", "arrays", "outs", "outputs", "levels", "preds", "targets", "masks", "losses", "xx",
}  # fmt: skip

LIST_ARGUMENT_ENDINGS = ("_states", "_features", "_feats", "_list", "_layers", "_outputs", "_outs", "_tensors", "_maps")

TENSOR_ANNOTATIONS = {"NDArray", "Symbol", "ndarray", "Tensor"}
PYTHON_ANNOTATIONS = {"bool", "int", "float", "str", "Callable", "type", "bytes"}
LIST_ANNOTATIONS = {
    "list",
    "List",
    "tuple",
    "Tuple",
    "Sequence",
    "Iterable",
    "dict",
    "Dict",
    "Mapping",
    "Any",
    "object",
}

TENSOR_PYTHON_ATTRIBUTES = {"name", "grad", "grad_req", "stype", "handle", "attr", "list_arguments", "list_outputs",
                            "list_attr", "attr_dict", "tojson", "infer_shape", "infer_type", "get_internals",
                            "get_children", "list_auxiliary_states", "__class__", "__len__"}  # fmt: skip
