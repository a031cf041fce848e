"""Images by OpenCV: types and channels, what is said without the package, and the switches of other code."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import nd, recordio
from hybrid_lab.data.image_files import ImageError, decode, encode
from hybrid_lab.diagnostics import MissingPackageError
from hybrid_lab.gluon.data.vision import transforms
from hybrid_lab.ops.kernels import opencv

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 5, 3)).astype("uint8")
IMAGE = nd.array(PIXELS, dtype="uint8")
DTYPES = ("uint8", "int8", "int32", "int64", "float16", "float32", "float64")


@pytest.mark.parametrize("interp", range(5))
@pytest.mark.parametrize("channels", [1, 3, 4, 5, 11, 600])
def test_every_number_of_channels(channels, interp):
    image = np.random.default_rng(1).integers(0, 256, (6, 7, channels)).astype("uint8")
    for width, height in ((3, 4), (9, 13), (3, 9)):
        resized = opencv.resize(image, width, height, interp)
        assert resized.shape == (height, width, channels)
        for number in {0, channels - 1}:
            alone = opencv.resize(image[:, :, number : number + 1], width, height, interp)
            np.testing.assert_array_equal(resized[:, :, number], alone[:, :, 0])


def test_halves_of_many_channels_are_rounded_as_in_mxnet():
    """Of 1, 3 and 4 channels OpenCV rounds the means of 2 x 2 pixels up at halves, of others to even numbers."""
    image = np.array([[2, 3], [2, 3]], "uint8")[:, :, None]
    for channels, wanted in ((1, 3), (3, 3), (4, 3), (5, 2), (8, 2)):
        many = np.repeat(image, channels, 2)
        assert opencv.resize(many, 1, 1, 1).tolist() == [[[wanted] * channels]]


@pytest.mark.parametrize("interp", range(5))
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype, interp):
    image = (PIXELS // 4).astype(dtype)
    resized = opencv.resize(image, 4, 9, interp)
    assert resized.dtype == dtype
    wanted = opencv.resize(image.astype("float64"), 4, 9, interp)
    wanted = wanted.clip(0, 255) if dtype == "uint8" else wanted
    np.testing.assert_allclose(resized.astype("float64"), wanted, atol=0.03 if "float" in dtype else 1)


def test_views_of_images():
    for view in (PIXELS[::-1], PIXELS[:, ::2], PIXELS[:, :, ::-1], np.broadcast_to(PIXELS[:1], PIXELS.shape)):
        np.testing.assert_array_equal(opencv.resize(view, 4, 9, 1), opencv.resize(view.copy(), 4, 9, 1))
        opencv.change_hls(view, 3, 4, 5)
        decode(encode(view, 3, ".png"))


def test_the_switch_of_ipp_stays_as_it_was():
    cv2 = pytest.importorskip("cv2")
    before = cv2.ipp.useIPP()
    for wanted in (True, False):
        cv2.ipp.setUseIPP(wanted)
        wanted = cv2.ipp.useIPP()  # without IPP in the package it is never on
        opencv.resize(PIXELS, 9, 9, 2)
        with pytest.raises(cv2.error):
            opencv.resize(PIXELS, 9, 9, 77)
        assert cv2.ipp.useIPP() == wanted
    cv2.ipp.setUseIPP(before)


def test_threads_give_what_one_gives():
    image = np.random.default_rng(2).integers(0, 256, (64, 80, 3)).astype("uint8")
    wanted, wrong = opencv.resize(image, 50, 70, 2), []

    def work():
        wrong.extend(1 for _ in range(50) if not np.array_equal(opencv.resize(image, 50, 70, 2), wanted))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


CALLS = {
    "imdecode": lambda: mx.image.imdecode(b"bytes"),
    "imresize": lambda: mx.image.imresize(IMAGE, 3, 3),
    "resize_short": lambda: mx.image.resize_short(IMAGE, 3),
    "nd.image.resize": lambda: nd.image.resize(IMAGE, size=3),
    "random_hue": lambda: nd.image.random_hue(IMAGE, 0.1, 0.2),
    "Resize": lambda: transforms.Resize(3)(IMAGE),
    "RandomHue": lambda: transforms.RandomHue(0.1)(IMAGE),
    "pack_img": lambda: recordio.pack_img((0, 1.0, 2, 0), PIXELS),
    "unpack_img": lambda: recordio.unpack_img(recordio.pack((0, 1.0, 2, 0), b"bytes")),
}


@pytest.mark.parametrize("name", CALLS)
def test_without_the_package_the_command_is_told(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingPackageError, match=r'pip install "hybrid-lab\[images\]"'):
        CALLS[name]()


@pytest.mark.parametrize("kind", [".png", ".jpg"])
def test_bytes_of_a_part_of_a_file_are_no_image(kind):
    data = encode(PIXELS, 9, kind)
    for size in range(0, len(data) - 2, 7):
        with pytest.raises(ImageError, match=f"{size} bytes cannot be decoded as an image"):
            decode(data[:size])


def test_what_the_image_is():
    gray = PIXELS[:, :, :1]
    np.testing.assert_array_equal(decode(encode(gray, 3, ".png"), None), gray)
    np.testing.assert_array_equal(decode(encode(PIXELS, 3, ".png"), None), PIXELS)
    assert decode(encode(gray, 3, ".png")).shape == PIXELS.shape
    with pytest.raises(ImageError, match="uint8 of shape"):
        encode(PIXELS[:0], 3, ".png")
