"""ImageDetRecordIter beside the real one, whose batches tests/golden/image/make_det_record_iter.py wrote."""

import sys
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import recordio
from hybrid_lab.data.image.detection_record_iter import DetectionAugmenting
from hybrid_lab.diagnostics import SettingError

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "image"
sys.path.insert(0, str(GOLDEN))
from record_passes import read_settings, two_passes  # noqa: E402

EXPECTED = np.load(GOLDEN / "det_record_iter.npz")
SETTINGS = read_settings(EXPECTED, "/tmp")
OBJECTS = np.array([[1, 0.1, 0.2, 0.4, 0.5, 9], [2, 0.6, 0.6, 0.9, 1.0, 8]], "float32")


@pytest.fixture
def folder(tmp_path):
    EXPECTED["rec"].tofile(tmp_path / "objects.rec")
    lines = ("\t".join(map(str, [number, 2, 5, number, 0.125, 0.25, 0.5, 0.75, "name"])) for number in range(7))
    (tmp_path / "objects.lst").write_text("\n".join(lines) + "\n")
    return tmp_path


def batches_of(folder, **setting):
    given = {"data_shape": (3, 8, 6), "batch_size": 3, **setting}
    return mx.io.ImageDetRecordIter(path_imgrec=str(folder / "objects.rec"), **given)


@pytest.mark.parametrize("number", range(len(SETTINGS)), ids=lambda number: str(SETTINGS[number]))
def test_as_the_real_one(folder, number):
    batches = batches_of(folder, preprocess_threads=2, **read_settings(EXPECTED, str(folder))[number])
    data, label, pad = two_passes(batches)
    assert batches.provide_label[0].shape == label.shape[1:]
    assert pad.tolist() == EXPECTED[f"pad_{number}"].tolist()
    np.testing.assert_allclose(label, EXPECTED[f"label_{number}"], rtol=1e-6, atol=1e-6)
    real = EXPECTED[f"data_{number}"]
    for place in np.ndindex(label.shape[:2]):  # outside of a smaller image the real one leaves what was there
        rows, columns = label[place][1:3].astype(int)
        np.testing.assert_allclose(
            data[place][:, :rows, :columns], real[place][:, :rows, :columns], rtol=1e-6, atol=1e-4
        )


def picture():
    """Red tells the column, green the row, and the two objects are blue."""
    image = np.zeros((100, 200, 3), "uint8")
    image[..., 0], image[..., 1] = np.arange(200), np.arange(100)[:, None]
    for _, left, top, right, bottom, _ in OBJECTS:
        image[round(top * 100) : round(bottom * 100), round(left * 200) : round(right * 200), 2] = 255
    return image


@pytest.mark.parametrize(
    "setting",
    [
        {"rand_pad_prob": 1.0, "max_pad_scale": 2.0},
        {"rand_crop_prob": 1.0, "min_crop_scales": 0.5, "min_crop_object_coverages": 0.9},
        {"rand_crop_prob": 1.0, "num_crop_sampler": 2, "min_crop_scales": (0.3, 0.5), "crop_emit_mode": "overlap"},
        {
            "rand_mirror_prob": 1.0,
            "rand_pad_prob": 1.0,
            "max_pad_scale": 1.5,
            "rand_crop_prob": 0.5,
            "min_crop_scales": 0.6,
        },
    ],
)
def test_boxes_stay_on_their_objects(setting):
    augment = DetectionAugmenting((3, 200, 200), **setting)
    for _ in range(20):
        image, objects = augment(picture(), OBJECTS)
        assert image.shape == (200, 200, 3)
        assert len(objects) in (1, 2)
        for _, left, top, right, bottom, _ in objects:
            assert 0 <= left < right <= 1 and 0 <= top < bottom <= 1
            columns = slice(round(left * 200) + 6, max(round(right * 200) - 6, round(left * 200) + 7))
            rows = slice(round(top * 200) + 6, max(round(bottom * 200) - 6, round(top * 200) + 7))
            assert image[rows, columns, 2].min() > 200


def test_colors_change_and_boxes_stay():
    augment = DetectionAugmenting(
        (3, 100, 200), random_hue_prob=1.0, max_random_hue=20, random_contrast_prob=1.0, max_random_contrast=0.5
    )
    image, objects = augment(picture(), OBJECTS)
    assert not np.array_equal(image, picture())
    assert np.array_equal(objects, OBJECTS)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"rand_flip": True}, "ImageDetRecordIter has no argument 'rand_flip'; did you mean .*"),
        ({"label_pad_width": 8}, "label_pad_width=8 is less than the longest label, 21"),
        ({"label_width": 9}, "label_width is 9"),
        ({"resize_mode": "stretch"}, "resize_mode must be"),
        ({"num_crop_sampler": 2, "min_crop_scales": (0.1, 0.2, 0.3)}, "min_crop_scales has 3 numbers for 2"),
        ({"min_crop_scales": 1.0}, "0 <= min_crop_scales < max_crop_scales <= 1 is needed; got 1.0 and 1.0"),
        ({"aug_seq": "other"}, "one sequence of augmenters"),
        *(
            ({name: value}, f"^ImageDetRecordIter has no argument '{name}'; {hint}")
            for name, value, hint in [
                *(("rotate", 10, "see its docstring"), ("rand_crop", True, r"did you mean rand_crop_prob.*\?")),
                *(("mirror", True, "did you mean rand_mirror_prob"), ("pad", 2, ""), ("brightness", 0.1, "")),
                *(("random_resized_crop", True, ""), ("pca_noise", 0.1, ""), ("max_random_scale", 2.0, "")),
            ]
        ),
        ({"min_crop_scales": "a"}, "min_crop_scales must be a number, not 'a'"),
        ({"rand_crop_prob": "a"}, "rand_crop_prob must be a number, not 'a'"),
        ({"max_random_hue": 1.5}, "max_random_hue must be a whole number, not 1.5"),
        ({"num_crop_sampler": 0, "rand_crop_prob": 1}, "rand_crop_prob=1 needs num_crop_sampler of 1 or more, not 0"),
        ({"num_crop_sampler": -1, "rand_crop_prob": 1}, "rand_crop_prob=1 needs num_crop_sampler of 1 or more, not -1"),
        ({"min_crop_aspect_ratios": 2.0}, "<= max_crop_aspect_ratios is needed; got 2.0 and 1.0"),
        ({"data_shape": 16}, "data_shape is .*, not 16"),
        ({"label_pad_width": -1}, "label_pad_width must be a whole number of 0 or more, not -1"),
    ],
)
def test_what_is_refused(folder, setting, message):
    with pytest.raises(SettingError, match=message):
        next(batches_of(folder, **setting))


@pytest.mark.parametrize("label", [[np.nan, 5, 1, 0, 0, 1, 1], [2, np.inf, 1, 0, 0, 1, 1], [12, 5, 1, 0, 0, 1, 1]])
def test_a_label_whose_head_is_no_size_is_refused(tmp_path, label):
    records = recordio.MXRecordIO(str(tmp_path / "objects.rec"), "w")
    records.write(recordio.pack(recordio.IRHeader(0, np.array(label, "float32"), 3, 0), b"no image"))
    records.close()
    with pytest.raises(SettingError, match="the label of the record 3"):
        batches_of(tmp_path, batch_size=1)
