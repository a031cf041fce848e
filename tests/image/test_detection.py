"""Detection: augmenters beside the real MXNet (golden/image), and ImageDetIter."""

import json
import logging
import random
import sys
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import recordio
from hybrid_lab.data.image.detecting import LabelError
from hybrid_lab.data.image_files import encode

GOLDEN = Path(__file__).parents[1] / "golden" / "image"
sys.path.insert(0, str(GOLDEN))
from detection_cases import results  # noqa: E402

pytest.importorskip("cv2")


def test_augmenters_draw_and_move_boxes_as_mxnet_does():
    wanted = json.loads((GOLDEN / "detection.json").read_text())
    for number, (found, case) in enumerate(zip(results(mx), wanted, strict=True)):
        assert found[0] == case[0], number
        np.testing.assert_allclose(found[1], case[1], rtol=1e-4, atol=1e-2, err_msg=str(number))
        np.testing.assert_allclose(found[2], case[2], atol=1e-5, err_msg=str(number))


def label(*objects, extra=()):
    return np.array([2 + len(extra), 5, *extra, *(number for each in objects for number in each)], "float32")


LABELS = [
    label((0, 0.1, 0.2, 0.5, 0.6)),
    label((1, 0, 0, 1, 1), (2, 0.5, 0.5, 0.9, 0.7), extra=(7,)),
    label((3, 0.25, 0.25, 0.5, 0.75), (0, 0.5, 0.5, 0.5, 0.9)),  # the second box has no area
]


@pytest.fixture
def images(tmp_path):
    draw = np.random.default_rng(0)
    for number in range(3):
        pixels = draw.integers(0, 255, (20 + number, 30, 3), np.uint8)
        (tmp_path / f"{number}.png").write_bytes(encode(pixels, 3, ".png"))
    return {
        "imglist": [[each, f"{number}.png"] for number, each in enumerate(LABELS)],
        "path_root": str(tmp_path),
    }


def test_batches_have_the_objects_of_each_image_and_rows_of_minus_one(images):
    batches = mx.image.ImageDetIter(2, (3, 16, 24), **images)
    assert batches.provide_data == [("data", (2, 3, 16, 24))]
    assert batches.provide_label == [("label", (2, 2, 5))]
    for _ in range(2):
        found = list(batches)
        assert [batch.pad for batch in found] == [0, 1]
        assert [batch.data[0].shape for batch in found] == [(2, 3, 16, 24)] * 2
        absent = [-1] * 5
        wanted = [[LABELS[0][2:], absent], [LABELS[1][3:8], LABELS[1][8:]], [LABELS[2][2:7], absent]]
        labels = np.concatenate([batch.label[0].asnumpy() for batch in found])
        np.testing.assert_array_equal(labels, np.array([*wanted, wanted[0]], "float32"))
        batches.reset()


def test_records_are_read_shuffled_and_augmented(images, tmp_path):
    files = str(tmp_path / "a.idx"), str(tmp_path / "a.rec")
    record = recordio.MXIndexedRecordIO(*files, "w")
    for number, each in enumerate(LABELS):
        header = recordio.IRHeader(0, each, number, 0)
        record.write_idx(number, recordio.pack(header, (tmp_path / f"{number}.png").read_bytes()))
    record.close()
    random.seed(1)
    batches = mx.image.ImageDetIter(
        3,
        (3, 16, 24),
        path_imgidx=files[0],
        path_imgrec=files[1],
        shuffle=True,
        rand_mirror=True,
        rand_crop=0.5,
        mean=True,
    )
    (batch,) = batches
    assert batch.label[0].shape == (3, 2, 5)
    assert sorted(set(batch.label[0].asnumpy()[:, 0, 0].tolist())) == [0, 1, 3]


def test_shapes_of_labels_can_be_changed_and_made_equal(images):
    one = mx.image.ImageDetIter(2, (3, 16, 24), **images)
    other = mx.image.ImageDetIter(1, (3, 16, 24), imglist=images["imglist"][:1], path_root=images["path_root"])
    assert other.label_shape == (1, 5)
    assert one.sync_label_shape(other) is other
    assert other.label_shape == (2, 5)
    assert next(other).label[0].shape == (1, 2, 5)
    one.reshape(data_shape=(3, 8, 8), label_shape=(4, 5))
    assert one.provide_label[0][1] == (2, 4, 5)
    assert one.provide_data[0][1] == (2, 3, 8, 8)
    with pytest.raises(ValueError, match=r"label_shape must be \(4 or more, 5\), not \(3, 5\)"):
        one.reshape(label_shape=(3, 5))
    with pytest.raises(TypeError, match="needs another ImageDetIter"):
        one.sync_label_shape([])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([2, 5, 0, 0, 0, 1], "at least 7 numbers, not 6"),
        ([2, 4, 0, 0, 0, 1, 1], "2 and 4 do not fit 7 numbers"),
        ([2, 5, 0, 0, 0, 1, 1, 3], "2 and 5 do not fit 8 numbers"),
        ([1, 5, 0, 0, 0, 1, 1], "1 and 5 do not fit"),
        ([2, 5, 0, 0.5, 0, 0.5, 1], "needs an object with left < right"),
    ],
)
def test_labels_of_another_form_are_told(given, message, images):
    with pytest.raises(LabelError, match=message):
        mx.image.ImageDetIter(1, (3, 16, 24), imglist=[[given, "0.png"]], path_root=images["path_root"])


def test_images_without_an_object_are_left_out(images, caplog):
    class Dropping(mx.image.DetAugmenter):
        def __call__(self, src, label):
            return src, label[label[:, 0] != 0]

    resize = mx.image.DetBorrowAug(mx.image.ForceResizeAug((24, 16)))
    batches = mx.image.ImageDetIter(1, (3, 16, 24), aug_list=[resize, Dropping()], **images)
    with caplog.at_level(logging.DEBUG, "hybrid_lab"):
        assert [batch.label[0].asnumpy()[0, 0, 0] for batch in batches] == [1, 3]
    assert "image 0.png is left out: the augmenters left no object" in caplog.text


def test_boxes_are_drawn(images):
    batches = mx.image.ImageDetIter(1, (3, 16, 24), **images)
    drawn = list(batches.draw_next(color=(255, 0, 0), thickness=1, id2labels={1: "cat"}))
    assert [(image.shape, image.dtype) for image in drawn] == [((16, 24, 3), np.dtype("uint8"))] * 3
    np.testing.assert_array_equal(drawn[0][int(0.2 * 16), int(0.1 * 24)], [0, 0, 255])  # blue first
    with pytest.raises(mx.base.MXNetError, match="leave out waitKey"):
        next(batches.draw_next(waitKey=0))


def test_augmenters_check_their_arguments():
    with pytest.raises(TypeError, match=r"DetBorrowAug needs an mx.image.Augmenter, not 3"):
        mx.image.DetBorrowAug(3)
    with pytest.raises(ValueError, match="DetRandomSelectAug needs augmenters for detection"):
        mx.image.DetRandomSelectAug([mx.image.CastAug()])
    with pytest.raises(ValueError, match="a range is a number or a pair of numbers"):
        mx.image.DetRandomCropAug(area_range="0.5")
    with pytest.raises(ValueError, match="lists of arguments must be of equal length, not of 2, 1, 3, 1, 1"):
        mx.image.CreateMultiRandCropAugmenter([0.1, 0.2], area_range=[(0.1, 1)] * 3)
    with pytest.warns(UserWarning, match="DetRandomCropAug leaves all images as they are: no region"):
        unchanged = mx.image.DetRandomCropAug(area_range=(0.5, 0.1))
    pixels, boxes = mx.nd.ones((8, 8, 3)), np.array([[0, 0, 0, 1, 1]], "float32")
    assert unchanged(pixels, boxes) == (pixels, boxes)


def test_images_of_another_shape_are_told_by_name(images):
    batches = mx.image.ImageDetIter(2, (3, 16, 24), **images)
    batches.reshape(data_shape=(3, 8, 8))
    with pytest.raises(ValueError, match=r"image 0.png has the shape \(3, 16, 24\) .*ForceResizeAug\(\(8, 8\)\)"):
        next(batches)
    with pytest.raises(ValueError, match=r"image 0.png has the shape \(3, 20, 30\) after the augmenters"):
        next(mx.image.ImageIter(2, (3, 16, 24), aug_list=[], imglist=[[1, "0.png"]], path_root=images["path_root"]))
    named = [*images["imglist"], [[2, 5, 0, 0, 0, 0, 0], "1.png"]]
    with pytest.raises(LabelError, match="image 1.png: a label for detection needs an object"):
        mx.image.ImageDetIter(2, (3, 16, 24), imglist=named, path_root=images["path_root"])


def test_kept_labels_follow_a_new_shape_and_padding_ends(images):
    batches = mx.image.ImageDetIter(2, (3, 16, 24), last_batch_handle="roll_over", **images)
    assert len(list(batches)) == 1
    batches.reshape(label_shape=(4, 5))
    batches.reset()
    assert [batch.label[0].shape for batch in batches] == [(2, 4, 5)] * 2

    class Once(mx.image.DetAugmenter):
        calls = 0

        def __call__(self, src, label):
            self.calls += 1
            return src, label[: 1 if self.calls <= 3 else 0]

    resize = mx.image.DetBorrowAug(mx.image.ForceResizeAug((24, 16)))
    batches = mx.image.ImageDetIter(2, (3, 16, 24), aug_list=[resize, Once()], **images)
    next(batches)
    with pytest.raises(mx.image.ImageError, match="no image is left to fill the last batch"):
        next(batches)


def test_lists_of_images_are_shuffled_as_by_mxnet(images):
    random.seed(3)
    batches = mx.image.ImageDetIter(3, (3, 16, 24), shuffle=True, **images)
    order = list("123")
    random.seed(3)
    for _ in range(3):  # when it is made, before and after it has read the labels
        random.shuffle(order)
    assert batches.seq == order


def test_one_number_pads_all_channels():
    random.seed(1)
    padded, _ = mx.image.DetRandomPadAug(pad_val=7)(mx.nd.ones((8, 8, 3)), np.array([[0, 0, 0, 1, 1.0]]))
    assert padded.shape == (12, 11, 3)
    assert padded.asnumpy()[0, 0].tolist() == [7, 7, 7]
