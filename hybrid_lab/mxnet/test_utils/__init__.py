"""mx.test_utils: comparing arrays, checking gradients, random data; for tests of models and operators.

MXNet's tests import all names of this module with `*`, including names of modules that it uses; so there is no
`__all__`.
"""

import os
import sys

import numpy as np
from numpy import random as rnd

import hybrid_lab as mx
from hybrid_lab.context import Context, current_context
from hybrid_lab.data.io import DataBatch, DataIter
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.mxnet.util import use_np
from hybrid_lab.ndarray import NDArray, array
from hybrid_lab.symbol import Symbol

from .comparing import (
    almost_equal,
    assert_allclose,
    assert_almost_equal,
    assert_almost_equal_ignore_nan,
    assert_almost_equal_with_err,
    checkShapes,
    default_atols,
    default_numeric_eps,
    default_rtols,
    effective_dtype,
    find_max_violation,
    get_atol,
    get_etol,
    get_rtol,
    get_tolerance,
    get_tols,
    locationError,
    same,
    same_array,
)
from .data_sets import download, get_cifar10, get_mnist, get_mnist_iterator, get_mnist_ubyte
from .executors import (
    check_consistency,
    check_numeric_gradient,
    check_speed,
    check_symbolic_backward,
    check_symbolic_forward,
    numeric_grad,
    simple_forward,
)
from .generators import chi_square_check, gen_buckets_probs_with_ppf, mean_check, var_check, verify_generator
from .random_data import (
    assign_each,
    assign_each2,
    collapse_sum_like,
    create_2d_tensor,
    create_vector,
    default_dtype,
    get_identity_mat,
    get_identity_mat_batch,
    new_matrix_with_real_eigvals_2d,
    new_matrix_with_real_eigvals_nd,
    new_orthonormal_matrix_2d,
    new_sym_matrix_with_real_eigvals_2d,
    new_sym_matrix_with_real_eigvals_nd,
    np_reduce,
    rand_coord_2d,
    rand_ndarray,
    rand_shape_2d,
    rand_shape_3d,
    rand_shape_nd,
    random_arrays,
    random_sample,
    random_uniform_arrays,
)
from .running import (
    assert_exception,
    default_context,
    discard_stderr,
    environment,
    has_tvm_ops,
    is_aarch64_run,
    is_cd_run,
    is_op_runnable,
    list_gpus,
    retry,
    set_default_context,
)
from .sparse_data import (
    create_sparse_array,
    create_sparse_array_zd,
    rand_sparse_ndarray,
    shuffle_csr_column_indices,
)
from .training import (
    DummyIter,
    check_gluon_hybridize_consistency,
    compare_ndarray_tuple,
    compare_optimizer,
    same_symbol_structure,
)

_suggest_names(__name__)
