"""Vision operators where MXNet is no reference: torch's answers, sizes without elements, namespaces, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics.errors import AttributeSpecError, AutogradError, ShapeError
from hybrid_lab.ops import F, get
from hybrid_lab.ops.framework.run import run_kernel
from tests.ops.onnx_model import run_model

RANDOM = np.random.RandomState(0)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    ("stride", "dilate", "pad", "adj", "groups"), [(2, 2, 1, 1, 1), (3, 1, 2, 2, 2), (1, 3, 0, 0, 1)]
)
def test_deconvolution_equals_torch(rank, stride, dilate, pad, adj, groups):
    functional = pytest.importorskip("torch.nn.functional")
    import torch

    x = RANDOM.normal(0, 1, (2, 4, *(4, 3, 5)[:rank])).astype("float32")
    weight = RANDOM.normal(0, 1, (4, 3, *(3, 2, 3)[:rank])).astype("float32")
    many = {"stride": stride, "dilate": dilate, "pad": pad, "adj": adj}
    found = F.Deconvolution(
        x,
        weight,
        kernel=weight.shape[2:],
        num_filter=3 * groups,
        num_group=groups,
        **{name: (number,) * rank for name, number in many.items()},
    )
    transposed = getattr(functional, f"conv_transpose{rank}d")
    expected = transposed(torch.tensor(x), torch.tensor(weight), None, stride, pad, adj, groups, dilate)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("size", [(7, 5), (3, 2), (1, 1), (12, 4)])
def test_bilinear_resize_equals_torch(corners, size):
    functional = pytest.importorskip("torch.nn.functional")
    import torch

    x = RANDOM.normal(0, 1, (2, 3, 6, 4)).astype("float32")
    found = F._contrib_BilinearResize2D(x, height=size[0], width=size[1], align_corners=corners)
    expected = functional.interpolate(torch.tensor(x), size, mode="bilinear", align_corners=corners)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_pad_of_any_number_of_dimensions():
    x = RANDOM.normal(0, 1, (3, 4, 2)).astype("float32")
    for mode in ("constant", "edge", "reflect"):
        found = F.Pad(x, mode=mode, pad_width=(1, 2, 0, 3, 1, 0))
        np.testing.assert_array_equal(found, np.pad(x, ((1, 2), (0, 3), (1, 0)), mode=mode))


def test_empty_batches():
    images = np.zeros((0, 4, 6, 6), np.float32)
    assert F.Deconvolution(images, np.zeros((4, 2, 3, 3), np.float32), kernel=(3, 3), num_filter=2).shape == (
        0,
        2,
        8,
        8,
    )
    assert F._contrib_BilinearResize2D(images, height=3, width=9).shape == (0, 4, 3, 9)
    assert F._contrib_AdaptiveAvgPooling2D(images, output_size=2).shape == (0, 4, 2, 2)
    assert F.UpSampling(images, scale=2, sample_type="nearest").shape == (0, 4, 12, 12)
    assert F.Pad(images, mode="reflect", pad_width=(0, 0, 0, 0, 1, 1, 1, 1)).shape == (0, 4, 8, 8)
    vectors = np.ones(2, np.float32), np.zeros(2, np.float32)
    assert F.GroupNorm(images, *vectors, num_groups=2).shape == images.shape
    assert F.im2col(images, kernel=(2, 2)).shape == (0, 16, 25)
    rois = np.zeros((0, 5), np.float32)
    full = np.zeros((2, 4, 6, 6), np.float32)
    assert F.ROIPooling(full, rois, pooled_size=(2, 2), spatial_scale=1.0).shape == (0, 4, 2, 2)
    assert F._contrib_ROIAlign(full, rois, pooled_size=(2, 2), spatial_scale=1.0).shape == (0, 4, 2, 2)
    assert F._contrib_box_nms(np.zeros((2, 0, 6), np.float32)).shape == (2, 0, 6)


def brute_force_suppression(boxes: np.ndarray, threshold: float) -> list[int]:
    """Numbers of the boxes that are left, best first, one at a time. boxes : (n, 5), score and corners."""
    left = []
    for number in np.argsort(-boxes[:, 0], kind="stable"):
        overlap = [float(F._contrib_box_iou(boxes[[number], 1:], boxes[[kept], 1:])[0, 0]) for kept in left]
        if boxes[number, 0] > 0 and all(value <= threshold for value in overlap):
            left.append(int(number))
    return left


def test_suppression_of_many_boxes():
    corner = RANDOM.uniform(0, 1, (3, 60, 2))
    boxes = np.concatenate(
        [RANDOM.uniform(-0.1, 1, (3, 60, 1)), corner, corner + RANDOM.uniform(0.1, 0.4, (3, 60, 2))], 2
    )
    boxes = boxes.astype("float32")
    found = F._contrib_box_nms(boxes, overlap_thresh=0.3, coord_start=1, score_index=0)
    for batch, result in zip(boxes, found, strict=True):
        left = brute_force_suppression(batch, 0.3)
        np.testing.assert_array_equal(result[: len(left)], batch[left])
        assert (result[len(left) :] == -1).all()


def test_the_largest_of_every_region():
    data = RANDOM.normal(0, 1, (2, 3, 17, 23)).astype("float32")
    rois = np.array([[0, 1, 2, 20, 15], [1, 0, 0, 22, 16], [1, 5, 3, 5, 3], [0, 10, 4, 18, 30]], "float32")
    found = F.ROIPooling(data, rois, pooled_size=(3, 4), spatial_scale=1.0)
    for (image, x1, y1, x2, y2), result in zip(rois.astype(int), found, strict=True):
        height, width = (y2 - y1 + 1) / 3, (x2 - x1 + 1) / 4
        for row in range(3):
            for column in range(4):
                rows = slice(y1 + int(np.floor(row * height)), y1 + int(np.ceil((row + 1) * height)))
                columns = slice(x1 + int(np.floor(column * width)), x1 + int(np.ceil((column + 1) * width)))
                part = data[image, :, rows, columns]
                expected = part.max(axis=(1, 2)) if part.size else np.zeros(3)
                np.testing.assert_array_equal(result[:, row, column], expected)


def test_namespaces():
    x = nd.ones((1, 2, 4, 4))
    assert nd.contrib.BilinearResize2D(x, height=2, width=3).shape == (1, 2, 2, 3)
    symbol = mx.sym.contrib.AdaptiveAvgPooling2D(mx.sym.var("data"), output_size=(2, 1))
    assert symbol.infer_shape(data=(1, 2, 4, 4))[1] == [(1, 2, 2, 1)]
    assert {"ROIAlign", "box_nms", "MultiBoxPrior", "arange_like"} <= set(dir(nd.contrib))
    with pytest.raises(AttributeError):
        nd.contrib.NoSuchOperator  # noqa: B018
    with pytest.raises(AttributeError):
        mx.sym.image.no_such_operator  # noqa: B018


def test_random_slopes():
    record = get("LeakyReLU")
    op = record.bind(act_type="rrelu", lower_bound=0.2, upper_bound=0.6)
    assert op.bind_mode(False) is record.bind(act_type="leaky", slope=0.4, lower_bound=0.2, upper_bound=0.6)
    x = RANDOM.normal(0, 1, (50, 40)).astype("float32")
    y, factors = run_kernel(op.bind_mode(True), [x], rng=(1, 2))
    below = factors[x <= 0]
    assert (factors[x > 0] == 1).all() and 0.2 <= below.min() < 0.21 and 0.59 < below.max() < 0.6
    np.testing.assert_array_equal(y, x * factors)
    mx.random.seed(3)
    data = nd.array(x)
    data.attach_grad()
    with autograd.record():
        y = nd.LeakyReLU(data, act_type="rrelu")
    y.backward()
    np.testing.assert_allclose((data * data.grad).asnumpy(), y.asnumpy(), rtol=1e-6)


def test_gradients_of_a_samplers_gradients():
    x = nd.array(RANDOM.normal(0, 1, (1, 2, 4, 4)).astype("float32"))
    grid = nd.array(RANDOM.uniform(-0.8, 0.8, (1, 2, 3, 3)).astype("float32"))
    head = nd.array(RANDOM.normal(0, 1, (1, 2, 3, 3)).astype("float32"))
    for array in (x, grid):
        array.attach_grad()
    with autograd.record():
        (dx,) = autograd.grad([nd.BilinearSampler(x, grid)], [x], [head], create_graph=True)
        total = (dx * x).sum()
    total.backward()
    step, slope = 1e-2, np.zeros(grid.shape, np.float32)
    values = grid.asnumpy()
    for place in np.ndindex(values.shape):
        sides = []
        for sign in (1, -1):
            moved = values.copy()
            moved[place] += sign * step
            sides.append(float((nd.BilinearSampler(x, nd.array(moved)) * head).sum().asscalar()))
        slope[place] = (sides[0] - sides[1]) / (2 * step)
    near = np.abs((values + 1) * 1.5 % 1 - 0.5) < 0.45  # between two pixels on either side of the step
    np.testing.assert_allclose(grid.grad.asnumpy()[near], slope[near], atol=1e-3)
    with pytest.raises(AutogradError, match="the gradient of sampler_slope_data has no gradient"), autograd.record():
        (dgrid,) = autograd.grad([nd.BilinearSampler(x, grid)], [grid], create_graph=True)
        (mixed,) = autograd.grad([dgrid], [x], create_graph=True)
        mixed.backward()


def test_regions_that_are_nowhere_give_0():
    """Of an image that is not there, or with edges that are not finite; onnxruntime's own operator refuses them."""
    rois = np.full((7, 5), [0, 1, 1, 4, 4], "float32")
    rois[1:, 0] = -1, 3, np.nan, 0, 0, 0
    rois[4:, 1], rois[5, 3] = (np.nan, 1, np.inf), -np.inf
    data = RANDOM.normal(0, 1, (1, 2, 6, 6)).astype("float32")
    for ratio in (2, -1):
        op = get("_contrib_ROIAlign").bind(pooled_size=(2, 2), spatial_scale=1.0, sample_ratio=ratio)
        with np.errstate(invalid="ignore"):
            eager = op.numpy(data, rois)
        assert eager[0].all() and not eager[1:].any()
        np.testing.assert_allclose(run_model(op, [data, rois])[0], eager, rtol=1e-5)


REFUSED_SHAPES = [
    ("Deconvolution", {"kernel": (3, 3), "num_filter": 2}, [(1, 3, 4), (3, 2, 3, 3)], "needs 4 dimensions (NCHW)"),
    ("Deconvolution", {"kernel": (3,), "num_filter": 2}, [(1, 3, 4), (2, 3, 3)], "needs a weight of shape (3, 2, 3)"),
    ("Deconvolution", {"kernel": (2,), "num_filter": 2, "target_shape": 99}, [(1, 3, 4), (3, 2, 2)], "is larger than"),
    ("Pad", {"mode": "edge", "pad_width": (1, 1)}, [(2, 3)], "needs 4 numbers"),
    ("Crop", {"h_w": (3, 3), "offset": (2, 2)}, [(1, 1, 4, 4)], "has no part of (3, 3)"),
    ("depth_to_space", {"block_size": 2}, [(1, 6, 2, 2)], "must be a multiple of 4"),
    ("UpSampling", {"scale": 2, "sample_type": "nearest"}, [(1, 1, 2, 2), (1, 1, 3, 4)], "(4, 4) must be one multiple"),
    ("GroupNorm", {"num_groups": 2}, [(2, 3, 4), (2,), (2,)], "cannot be cut into num_groups=2"),
    ("InstanceNorm", {}, [(2, 3, 4), (2,), (3,)], "gamma has shape (2,)"),
    ("col2im", {"output_size": (4, 4), "kernel": (2, 2)}, [(1, 8, 5)], "has 9 windows"),
    ("ROIPooling", {"pooled_size": (2, 2), "spatial_scale": 1.0}, [(1, 1, 4, 4), (3, 4)], "(regions, 5) is needed"),
    ("BilinearSampler", {}, [(1, 2, 4, 4), (1, 3, 4, 4)], "(n, 2, height, width) are needed"),
    ("_contrib_box_iou", {}, [(3, 4), (2, 5)], "a box is four numbers"),
    ("_contrib_box_nms", {}, [(5,)], "k numbers for each of n boxes"),
    (
        "_contrib_box_nms",
        {},
        [(3, 5)],
        "coordinates from coord_start=2 on must be different ones of the numbers of a box",
    ),
    ("_contrib_box_nms", {"id_index": 1}, [(3, 6)], "the score at score_index=1, the class at id_index=1 and the four"),
    ("_contrib_MultiBoxDetection", {}, [(1, 2, 0), (1, 0), (1, 0, 4)], "there are no anchors, because anchor has"),
    ("_contrib_Proposal", {}, [(1, 24, 0, 3), (1, 48, 0, 3), (1, 3)], "there are no anchors, because cls_prob"),
    (
        "_contrib_Proposal",
        {},
        [(1, 6, 2, 3), (1, 12, 2, 3), (1, 3)],
        "(b, 24, h, w) is needed, two channels for each pair",
    ),
]


@pytest.mark.parametrize(("name", "attributes", "shapes", "text"), REFUSED_SHAPES)
def test_shapes_that_do_not_fit(name, attributes, shapes, text):
    with pytest.raises(ShapeError) as caught:
        get(name).bind(**attributes).infer_shape(*shapes)
    assert text in str(caught.value) and str(caught.value).startswith(name.removeprefix("_contrib_"))


REFUSED_ATTRIBUTES = [
    ("Deconvolution", {"kernel": (3, 3), "num_filter": 2, "adj": (1, 1)}, "adj=(1, 1) must be smaller than stride"),
    ("Pad", {"mode": "edge", "pad_width": (1, 1, -1, 0)}, "two numbers of at least 0"),
    ("UpSampling", {"scale": 2, "sample_type": "bilinear"}, "needs num_filter"),
    ("_contrib_BilinearResize2D", {"mode": "odd_scale"}, "needs scale_height and scale_width"),
    ("LRN", {"nsize": 4}, "an odd number"),
    ("GridGenerator", {"transform_type": "affine"}, "needs a height and a width"),
    ("ROIPooling", {"pooled_size": (2, 2), "spatial_scale": 0.0}, "must be positive"),
    ("LeakyReLU", {"act_type": "rrelu", "lower_bound": 0.5}, "lower_bound=0.5 and upper_bound=0.334"),
]


@pytest.mark.parametrize(("name", "attributes", "text"), REFUSED_ATTRIBUTES)
def test_attributes_that_do_not_fit(name, attributes, text):
    with pytest.raises(AttributeSpecError) as caught:
        get(name).bind(**attributes)
    assert text in str(caught.value)


def test_multi_box_target_takes_the_negatives_that_there_are():
    anchors = nd.array([[[0.1, 0.1, 0.5, 0.5], [0.1, 0.1, 0.5, 0.55], [0.6, 0.6, 0.9, 0.9]]])
    label = nd.array([[[3, 0.1, 0.1, 0.5, 0.5]]])
    scores = nd.array(RANDOM.normal(size=(1, 4, 3)))
    # Two are wanted; the second anchor overlaps the box too much to be background, and too little to be matched.
    *_, classes = nd.contrib.MultiBoxTarget(
        anchors, label, scores, overlap_threshold=0.95, negative_mining_ratio=2, negative_mining_thresh=0.5
    )
    np.testing.assert_array_equal(classes.asnumpy(), [[4, -1, 0]])


def test_dropout_of_everything():
    x = nd.ones((3, 4))
    x.attach_grad()
    with autograd.record():
        y = nd.Dropout(x, p=1.0)
    y.backward()
    assert not y.asnumpy().any() and not x.grad.asnumpy().any()


@pytest.mark.parametrize("shape", [(3, 5), (2, 1, 4)])
def test_fourier_transforms_are_inverse_up_to_the_length(shape):
    x = RANDOM.normal(size=shape).astype("float32")
    found = nd.contrib.ifft(nd.contrib.fft(nd.array(x))).asnumpy()
    np.testing.assert_allclose(found, x * shape[-1], rtol=1e-5, atol=1e-5)


def test_count_sketch_refuses_places_outside():
    with pytest.raises(ShapeError, match="outside of 0 to out_dim=2 - 1"):
        nd.contrib.count_sketch(nd.ones((1, 2)), nd.array([[0, 2]]), nd.array([[1, 1]]), out_dim=2)


@pytest.mark.parametrize("angle", [0, 30])
def test_rotated_regions_of_a_mirrored_image_are_mirrored(angle):
    """Also where a region reaches over a border, or a sample lies on the last line that counts, one pixel outside."""
    x = RANDOM.normal(0, 1, (1, 2, 6, 7)).astype("float32")
    height, width = x.shape[2:]
    regions = [(0, 0, 3, 3), (-1, -1, 1, 1), (width, height, 1, 1), (width, -1, 1, 1), (6.5, 3, 4, 6), (3, 5.5, 2, 3)]
    here = np.array([[0, *region, angle] for region in regions], "float32")
    there = here * np.float32([1, -1, 1, 1, 1, -1]) + np.float32([0, width - 1, 0, 0, 0, 0])
    settings = {"pooled_size": (1, 1), "spatial_scale": 1.0, "sampling_ratio": 1}
    found = F._contrib_RROIAlign(x, here, **settings)
    np.testing.assert_allclose(F._contrib_RROIAlign(x[..., ::-1].copy(), there, **settings), found, atol=1e-5)
    np.testing.assert_allclose(found[[1, 2]], np.float32([x[0, :, 0, 0], x[0, :, -1, -1]])[..., None, None])


def test_images_that_regions_name_must_be_there():
    rois = nd.array([[2, 0, 0, 3, 3]])
    with pytest.raises(IndexError, match="rois name images 2 to 2; data has 1"):
        nd.contrib.PSROIPooling(nd.ones((1, 4, 5, 5)), rois, spatial_scale=1, output_dim=1, pooled_size=2)


def test_image_flips_have_the_gradient_of_a_flip():
    x = nd.array(RANDOM.normal(size=(2, 3, 1)))
    x.attach_grad()
    with autograd.record():
        y = (nd.image.flip_left_right(x) * nd.array(np.arange(6).reshape(2, 3, 1))).sum()
    y.backward()
    np.testing.assert_array_equal(x.grad.asnumpy()[..., 0], [[2, 1, 0], [5, 4, 3]])


def test_random_image_operators_follow_the_seed():
    x = nd.array(RANDOM.uniform(0, 255, (4, 5, 3)), dtype="uint8")
    for draw in (
        lambda: nd.image.random_brightness(x, min_factor=0.5, max_factor=1.5),
        lambda: nd.image.random_color_jitter(x, brightness=0.3, contrast=0.3, saturation=0.3, hue=0.1),
        lambda: nd.image.random_lighting(x, alpha_std=0.5),
    ):
        mx.random.seed(3)
        first = draw().asnumpy()
        mx.random.seed(3)
        np.testing.assert_array_equal(draw().asnumpy(), first)
        assert (draw().asnumpy() != first).any()


def test_image_crop_outside():
    with pytest.raises(ShapeError, match="does not fit into an image of 4 x 5 pixels"):
        nd.image.crop(nd.ones((4, 5, 3)), x=3, y=0, width=3, height=2)


def test_image_random_flips():
    x = nd.array(np.arange(6).reshape(1, 6, 1))
    np.testing.assert_array_equal(nd.image.random_flip_left_right(x, p=1).asnumpy().ravel(), np.arange(6)[::-1])
    np.testing.assert_array_equal(nd.image.random_flip_left_right(x, p=0).asnumpy().ravel(), np.arange(6))


def test_multi_box_prior_gives_all_sizes_the_first_ratio():
    boxes = nd.contrib.MultiBoxPrior(nd.zeros((1, 1, 1, 1)), sizes=(0.4, 0.2), ratios=(4.0, 1.0)).asnumpy()[0]
    np.testing.assert_allclose(boxes[:, 2:] - boxes[:, :2], [[0.8, 0.2], [0.4, 0.1], [0.4, 0.4]], rtol=1e-6)
