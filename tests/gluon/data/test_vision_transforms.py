"""Transforms of images: shapes, values, random draws from the seed."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.gluon.data.vision import transforms

IMAGE = np.random.RandomState(0).randint(0, 256, (12, 20, 3)).astype("uint8")


@pytest.mark.parametrize(
    ("transform", "shape"),
    [
        (transforms.Resize(6), (6, 6, 3)),
        (transforms.Resize((8, 5)), (5, 8, 3)),
        (transforms.Resize(6, keep_ratio=True), (6, 10, 3)),
        (transforms.CropResize(1, 2, 8, 6), (6, 8, 3)),
        (transforms.CropResize(1, 2, 8, 6, (4, 5)), (5, 4, 3)),
        (transforms.CenterCrop((8, 5)), (5, 8, 3)),
        (transforms.CenterCrop(30), (30, 30, 3)),
        (transforms.RandomResizedCrop(7), (7, 7, 3)),
        (transforms.RandomFlipLeftRight(), (12, 20, 3)),
        (transforms.RandomFlipTopBottom(), (12, 20, 3)),
        (transforms.RandomBrightness(0.5), (12, 20, 3)),
        (transforms.RandomContrast(0.5), (12, 20, 3)),
        (transforms.RandomSaturation(0.5), (12, 20, 3)),
        (transforms.RandomHue(0.5), (12, 20, 3)),
        (transforms.RandomColorJitter(0.5, 0.4, 0.3, 0.2), (12, 20, 3)),
        (transforms.RandomColorJitter(), (12, 20, 3)),
        (transforms.RandomLighting(0.5), (12, 20, 3)),
        (transforms.RandomApply(transforms.Resize(6), p=1), (6, 6, 3)),
        (transforms.RandomApply(transforms.Resize(6), p=-1), (12, 20, 3)),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_shapes_dtypes_and_seeds(transform, shape, dtype):
    image = mx.nd.array(IMAGE, dtype=dtype)
    results = []
    for _ in range(2):
        mx.random.seed(5)
        random.seed(5)
        results.append(transform(image))
    assert (results[0].shape, results[0].dtype) == (shape, np.dtype(dtype))
    np.testing.assert_array_equal(results[0].asnumpy(), results[1].asnumpy())
    np.testing.assert_array_equal(image.asnumpy(), IMAGE)


def test_batches_of_images():
    batch = mx.nd.array(np.stack([IMAGE, IMAGE[::-1]]), dtype="uint8")
    for transform in (transforms.Resize(6), transforms.CropResize(0, 0, 5, 4)):
        np.testing.assert_array_equal(transform(batch)[1].asnumpy(), transform(batch[1]).asnumpy())
    with pytest.raises(ShapeError, match="width=5, height=4. .*12 x 20"):
        transforms.CropResize(18, 0, 5, 4)(batch)


def test_flips_happen_half_of_the_time():
    mx.random.seed(0)
    flip = transforms.RandomFlipLeftRight()
    flipped = [bool((flip(mx.nd.array(IMAGE)).asnumpy() == IMAGE[:, ::-1]).all()) for _ in range(60)]
    assert 15 < sum(flipped) < 45


def test_rotation():
    image = mx.nd.array(IMAGE.transpose(2, 0, 1), dtype="float32")
    np.testing.assert_allclose(transforms.Rotate(180)(image).asnumpy(), image.asnumpy()[:, ::-1, ::-1], atol=0.1)
    assert transforms.RandomRotation((-10, 10), zoom_in=True)(image).shape == image.shape
    assert transforms.RandomRotation((-10, 10), rotate_with_proba=0.0)(image) is image
    with pytest.raises(ValueError, match="the smaller one"):
        transforms.RandomRotation((10, -10))
    with pytest.raises(ValueError, match="is a probability"):
        transforms.RandomRotation((-10, 10), rotate_with_proba=2)
    with pytest.raises(TypeError, match="float32 images, not uint8"):
        transforms.Rotate(10)(mx.nd.array(IMAGE, dtype="uint8"))


def test_a_usual_pipeline():
    pipeline = transforms.Compose([
        transforms.RandomResizedCrop(8),
        transforms.RandomFlipLeftRight(),
        transforms.RandomColorJitter(0.4, 0.4, 0.4),
        transforms.RandomLighting(0.1),
        transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ])  # fmt: skip
    result = pipeline(mx.nd.array(IMAGE, dtype="uint8"))
    assert (result.shape, result.dtype) == ((3, 8, 8), np.float32)
    assert -3 < result.asnumpy().min() < result.asnumpy().max() < 3


def test_neighbors_that_are_graphs_become_one_graph():
    chain = transforms.Compose(
        [
            transforms.Resize(8),
            transforms.CropResize(1, 2, 5, 4),
            transforms.RandomFlipLeftRight(),
            transforms.ToTensor(),
            transforms.Cast("float64"),
            transforms.Normalize([0.1, 0.2, 0.3], 0.5),
            lambda x: x * 2,
        ]
    )
    assert [type(child).__name__ for child in chain] == [
        "HybridSequential",
        "RandomFlipLeftRight",
        "HybridSequential",
        "Lambda",
    ]
    mx.random.seed(3)
    eager = chain(mx.nd.array(IMAGE, dtype="uint8"))
    chain.hybridize()
    mx.random.seed(3)
    np.testing.assert_array_equal(chain(IMAGE).asnumpy(), eager.asnumpy())
    assert eager.shape == (3, 4, 5)


@pytest.mark.parametrize(
    ("transform", "shape"),
    [
        (transforms.Normalize(0.1, 0.2), (1, 2, 3, 4, 5)),
        (transforms.Normalize(0.1, 0.2), (4, 5, 6)),
        (transforms.Resize(-3), (8, 8, 3)),
        (transforms.Resize((2, 3, 4)), (8, 8, 3)),
        (transforms.CropResize(0, 0, 4, 4, (-2, 2)), (8, 8, 3)),
        (transforms.CropResize(0, 0, -4, -4), (8, 8, 3)),
    ],
)
def test_what_the_operators_refuse_the_transforms_refuse(transform, shape):
    with pytest.raises(mx.MXNetError):
        transform(mx.nd.ones(shape))
