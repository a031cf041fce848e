"""mx.image beside the real MXNet (golden/image): decoding, sizes, colors, borders, augmenters, ImageIter."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import recordio
from hybrid_lab.data.image.cropping import choose_interp
from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.image import ImageError
from hybrid_lab.ops.kernels import color

GOLDEN = dict(np.load(Path(__file__).parents[1] / "golden" / "image" / "image.npz"))
PHOTO = GOLDEN["photo"]


def cases(start):
    return [name for name in GOLDEN if name.startswith(start)]


@pytest.mark.parametrize("name", cases("decoded_"))
def test_decoded_images_are_those_of_mxnet(name):
    pytest.importorskip("cv2")
    _, file, flag = name.split("_")
    image = mx.image.imdecode(GOLDEN[f"file_{file}"].tobytes(), int(flag))
    assert image.dtype == np.uint8
    np.testing.assert_array_equal(image.asnumpy(), GOLDEN[name])


@pytest.mark.parametrize("name", cases("resized_"))
def test_resized_images_are_those_of_mxnet(name):
    _, dtype, interp, width, height = name.split("_")
    image = mx.image.imresize(mx.nd.array(PHOTO, dtype=dtype), int(width), int(height), int(interp))
    assert image.dtype == np.dtype(dtype)
    wrong = np.abs(image.asnumpy().astype(float) - GOLDEN[name])
    assert wrong.max() < 1e-4 if dtype == "float32" else not wrong.any()


@pytest.mark.parametrize("name", cases("color_"))
def test_colors_are_those_of_mxnet(name):
    _, kind, dtype, factor = name.split("_")
    change = {"brightness": color.brighten, "contrast": color.change_contrast, "hue": color.turn_hue}[kind]
    changed = change(PHOTO.astype(dtype), float(factor))
    np.testing.assert_allclose(changed.astype(float), GOLDEN[name], rtol=0, atol=1 if dtype == "uint8" else 1e-3)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_lighting_is_that_of_mxnet(dtype):
    changed = color.light(PHOTO.astype(dtype), np.array([0.1, -0.2, 0.3]))
    np.testing.assert_allclose(changed.astype(float), GOLDEN[f"lighting_{dtype}"], atol=1 if dtype == "uint8" else 1e-4)


def test_saturation_of_0_is_the_brightness_and_of_1_the_image():
    np.testing.assert_array_equal(color.saturate(PHOTO, 1.0), PHOTO)
    gray = color.saturate(PHOTO.astype("float32"), 0.0)
    np.testing.assert_allclose(gray, np.repeat(PHOTO @ [[0.299], [0.587], [0.114]], 3, 2), rtol=1e-5)


@pytest.mark.parametrize("kind", range(5))
def test_borders_are_those_of_mxnet(kind):
    image = mx.image.copyMakeBorder(mx.nd.array(PHOTO, dtype="uint8"), 1, 2, 3, 2, type=kind, values=(5, 6, 7))
    np.testing.assert_array_equal(image.asnumpy(), GOLDEN[f"border_{kind}"])


@pytest.mark.parametrize(
    ("name", "angle", "zoom"), [("none", 30, {}), ("in", 30, {"zoom_in": True}), ("out", -50, {"zoom_out": True})]
)
def test_rotated_images_are_those_of_mxnet(name, angle, zoom):
    image = mx.nd.array(PHOTO.transpose(2, 0, 1), dtype="float32")
    rotated = mx.image.imrotate(image, angle, **zoom)
    np.testing.assert_allclose(rotated.asnumpy(), GOLDEN[f"rotated_{name}"], atol=1e-3)
    both = mx.image.imrotate(mx.nd.stack(image, image), mx.nd.array([0, angle]), **zoom)
    np.testing.assert_allclose(both[1].asnumpy(), rotated.asnumpy(), atol=1e-4)


def test_augmenters_draw_and_compute_as_those_of_mxnet():
    random.seed(3)
    np.random.seed(3)
    augmenters = mx.image.CreateAugmenter(
        (3, 8, 7), resize=10, rand_crop=True, rand_resize=True, rand_mirror=True, mean=True, std=True, brightness=0.1,
        contrast=0.2, saturation=0.3, hue=0.1, pca_noise=0.1, rand_gray=0.3, inter_method=1,
    )  # fmt: skip
    assert [str(each.dumps()) for each in augmenters] == list(GOLDEN["dumped"])
    for number in range(4):
        image = mx.nd.array(PHOTO, dtype="uint8")
        for each in augmenters:
            image = each(image)
        np.testing.assert_allclose(image.asnumpy(), GOLDEN[f"augmented_{number}"], atol=1e-5)


def test_crops():
    image = mx.nd.array(PHOTO, dtype="uint8")
    assert mx.image.scale_down((640, 480), (720, 120)) == (640, 106)
    part, box = mx.image.center_crop(image, (5, 4))
    assert box == (7, 4, 5, 4)
    np.testing.assert_array_equal(part.asnumpy(), PHOTO[4:8, 7:12])
    assert mx.image.center_crop(image, (40, 20))[0].shape == (20, 40, 3)
    assert mx.image.resize_short(image, 6).shape == (6, 9, 3)
    assert mx.image.random_size_crop(image, (6, 5), 0.2, (0.5, 2))[0].shape == (5, 6, 3)


def test_automatic_interpolation():
    assert [choose_interp(9, sizes) for sizes in ((4, 4, 8, 8), (8, 8, 4, 4), (4, 8, 8, 4))] == [2, 3, 1]
    with pytest.raises(ValueError, match="is 0 to 4, 9 or 10, not 7"):
        choose_interp(7)


def test_missing_image_files_say_what_to_do(tmp_path):
    pytest.importorskip("cv2")
    (tmp_path / "cat.png").write_bytes(b"nothing")
    wanted = "there is no file '.*caat.png'; did you mean '.*cat.png'"
    iterator = mx.image.ImageIter(1, (3, 4, 4), imglist=[[0, "caat.png"]], path_root=str(tmp_path))
    for read in (lambda: mx.image.imread(tmp_path / "caat.png"), iterator.next):
        with pytest.raises(FileNotFoundError, match=wanted) as caught:
            read()
        assert isinstance(caught.value, mx.MXNetError) and caught.value.filename == str(tmp_path / "caat.png")
    with pytest.raises(IsADirectoryError, match="is a folder; give the path of a file"):
        mx.image.imread(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no file '.*images.lst'"):
        mx.image.ImageIter(1, (3, 4, 4), path_imglist=str(tmp_path / "images.lst"), path_root=str(tmp_path))


def test_wrong_images_say_so(tmp_path):
    pytest.importorskip("cv2")
    (tmp_path / "a.png").write_bytes(b"nothing")
    with pytest.raises(ImageError, match="a.png: 7 bytes cannot be decoded as an image"):
        mx.image.imread(tmp_path / "a.png")
    with pytest.raises(ImageError, match="0 bytes"):
        mx.image.imdecode(b"")
    with pytest.raises(ShapeError, match="the shape .height, width, channels., not .2, 3."):
        mx.image.imresize(mx.nd.ones((2, 3)), 4, 4)
    with pytest.raises(TypeError, match="float32 images, not uint8"):
        mx.image.imrotate(mx.nd.ones((3, 4, 4), dtype="uint8"), 4)


def records(folder, count):
    with recordio.MXIndexedRecordIO(folder / "a.idx", folder / "a.rec", "w") as file:
        for key in range(count):
            image = np.full((8, 9, 3), 10 * key, "uint8")
            file.write_idx(key, recordio.pack_img((0, float(key), key, 0), image, 1, ".png"))
    return str(folder / "a.rec"), str(folder / "a.idx")


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(
    ("last", "first", "second"),
    [
        ("pad", [[0, 1, 2], [3, 4, 0]], [[0, 1, 2], [3, 4, 0]]),
        ("discard", [[0, 1, 2]], [[0, 1, 2]]),
        ("roll_over", [[0, 1, 2]], [[3, 4, 0], [1, 2, 3]]),
    ],
)
def test_image_iter_over_records(tmp_path, indexed, last, first, second):
    pytest.importorskip("cv2")
    rec, idx = records(tmp_path, 5)
    batches = mx.image.ImageIter(3, (3, 8, 9), path_imgrec=rec, path_imgidx=idx if indexed else None,
                                 last_batch_handle=last)  # fmt: skip
    for labels in (first, second):
        seen = list(batches)
        assert [batch.label[0].asnumpy().tolist() for batch in seen] == labels
        assert all((batch.data[0].asnumpy()[:, 0, 0, 0] == 10 * batch.label[0].asnumpy()).all() for batch in seen)
        assert seen[-1].data[0].shape == (3, 3, 8, 9)
        batches.reset()


def test_image_iter_over_files(tmp_path):
    pytest.importorskip("cv2")
    from hybrid_lab.data.image_files import encode

    for number in range(2):
        (tmp_path / f"{number}.png").write_bytes(encode(np.full((8, 9, 3), number, "uint8"), 1, ".png"))
    (tmp_path / "a.lst").write_text("7\t1\t2\t0.png\n8\t3\t4\t1.png\n")
    settings = {"path_root": str(tmp_path), "label_width": 2}
    for source in ({"path_imglist": str(tmp_path / "a.lst")}, {"imglist": [[1, 2, "0.png"], [3, 4, "1.png"]]}):
        (batch,) = mx.image.ImageIter(2, (3, 8, 9), **settings, **source)
        np.testing.assert_array_equal(batch.label[0].asnumpy(), [[1, 2], [3, 4]])
    (tmp_path / "1.png").write_bytes(b"broken")
    with pytest.raises(ImageError, match="image 1.png: 6 bytes"):
        next(mx.image.ImageIter(2, (3, 8, 9), **settings, path_imglist=str(tmp_path / "a.lst")))
