"""ImageRecordIter beside the real one, whose batches tests/golden/image/make_record_iter.py wrote."""

import sys
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import nd, recordio
from hybrid_lab.diagnostics import DTypeError, HybridLabError, SettingError

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "image"
sys.path.insert(0, str(GOLDEN))
from record_passes import read_settings, two_passes  # noqa: E402

EXPECTED = np.load(GOLDEN / "record_iter.npz")
SETTINGS = read_settings(EXPECTED, "/tmp")


@pytest.fixture
def folder(tmp_path):
    files = np.load(GOLDEN / "records.npz")
    for name in ("rec", "idx"):
        files[name].tofile(tmp_path / f"images.{name}")
    nd.save(str(tmp_path / "mean.nd"), {"mean_img": nd.arange(3 * 8 * 6).reshape((3, 8, 6))})
    (tmp_path / "images.lst").write_text("".join(f"{i}\t{20 + i}\tname{i}.png\n" for i in range(7)))
    return tmp_path


def batches_of(folder, **setting):
    given = {"data_shape": (3, 8, 6), "batch_size": 3, "label_width": 2, **setting}
    return mx.io.ImageRecordIter(path_imgrec=str(folder / "images.rec"), **given)


@pytest.mark.parametrize("number", range(len(SETTINGS)), ids=lambda number: str(SETTINGS[number]))
def test_as_the_real_one(folder, number):
    batches = batches_of(folder, preprocess_threads=2, **read_settings(EXPECTED, str(folder))[number])
    data, label, pad = two_passes(batches)
    assert data.dtype == EXPECTED[f"data_{number}"].dtype
    assert pad.tolist() == EXPECTED[f"pad_{number}"].tolist()
    assert np.array_equal(label, EXPECTED[f"label_{number}"])
    np.testing.assert_allclose(data, EXPECTED[f"data_{number}"], rtol=1e-6, atol=1e-4)


def test_older_names_of_whole_pixels(folder):
    setting = {"data_shape": (3, 8, 6), "batch_size": 3, "label_width": 2, "path_imgrec": str(folder / "images.rec")}
    for iterator, dtype in ((mx.io.ImageRecordUInt8Iter, "uint8"), (mx.io.ImageRecordInt8Iter, "int8")):
        (older,) = next(iterator(**setting)).data
        (newer,) = next(mx.io.ImageRecordIter(dtype=dtype, **setting)).data
        assert np.dtype(older.dtype) == np.dtype(newer.dtype) == dtype
        assert np.array_equal(older.asnumpy(), newer.asnumpy())


def test_the_first_versions(folder):
    """MXNet's give what the newer ones give, without dtype and path_imgidx."""
    setting = {"data_shape": (3, 8, 6), "batch_size": 1, "label_width": 2, "path_imgrec": str(folder / "images.rec")}
    for first, newer in (
        (mx.io.ImageRecordIter_v1, mx.io.ImageRecordIter),
        (mx.io.ImageRecordUInt8Iter_v1, mx.io.ImageRecordUInt8Iter),
    ):
        part = {"num_parts": 3, "part_index": 1}
        ours = two_passes(first(path_imgidx=str(folder / "images.idx"), **part, **setting))
        for value, other in zip(ours, two_passes(newer(**part, **setting)), strict=True):
            assert value.dtype == other.dtype and np.array_equal(value, other)
        assert len(ours[0]) == 4, "of 7 images, a third of the bytes of the file"
        with pytest.raises(SettingError, match="only, not int8; use mx.io.ImageRecordIter"):
            first(dtype="int8", **setting)


def test_iterators_over_files_are_of_the_class_that_mxnet_gives_them(folder, tmp_path):
    (tmp_path / "rows.csv").write_text("1,2\n3,4\n")
    assert isinstance(batches_of(folder), mx.io.MXDataIter)
    assert isinstance(mx.io.CSVIter(tmp_path / "rows.csv", (2,)), mx.io.MXDataIter)
    assert not isinstance(mx.io.NDArrayIter(np.zeros((2, 3))), mx.io.MXDataIter)
    with pytest.raises(SettingError, match="MXDataIter is the base of CSVIter"):
        mx.io.MXDataIter(1)


def test_without_rounding_the_last_batch_repeats_its_images(folder):
    # The real one leaves memory there that nobody has written, and its pad is 0.
    *_, last = batches_of(folder, round_batch=False)
    assert last.pad == 2
    assert last.label[0].asnumpy()[:, 0].tolist() == [6, 6, 6]
    assert np.array_equal(last.data[0][0].asnumpy(), last.data[0][2].asnumpy())


def test_a_shuffled_pass_has_every_image_once_in_a_new_order(folder):
    batches = batches_of(folder, shuffle=True, seed=3, batch_size=7)
    orders = []
    for _ in range(3):
        orders += [batch.label[0].asnumpy()[:, 0].tolist() for batch in batches]
        batches.reset()
    assert [sorted(order) for order in orders] == [[0, 1, 2, 3, 4, 5, 6]] * 3
    assert orders[0] != orders[1] != orders[2]


def test_random_images_of_one_seed_are_the_same_and_leave_other_random_numbers_alone(folder):
    drawn = {
        "rand_crop": True,
        "rand_mirror": True,
        "brightness": 0.2,
        "contrast": 0.2,
        "saturation": 0.2,
        "pca_noise": 0.1,
        "max_random_illumination": 5.0,
        "max_random_contrast": 0.1,
    }
    passes = []
    for seed in (4, 4, 5):
        np.random.seed(0)
        first = next(batches_of(folder, seed_aug=seed, **drawn)).data[0].asnumpy()
        passes.append((first, np.random.rand()))
    assert np.array_equal(passes[0][0], passes[1][0])
    assert not np.array_equal(passes[0][0], passes[2][0])
    assert len({number for _, number in passes}) == 1


def test_a_crop_of_random_area_has_the_shape_of_the_data(folder):
    batches = batches_of(folder, random_resized_crop=True, min_random_area=0.2, max_aspect_ratio=0.25, batch_size=7)
    data = next(batches).data[0].asnumpy()
    assert data.shape == (7, 3, 8, 6)
    assert data.std() > 10


def test_random_rotations_and_colors_differ_from_image_to_image(folder):
    drawn = {
        "max_rotate_angle": 10,
        "max_shear_ratio": 0.1,
        "min_random_scale": 0.8,
        "max_aspect_ratio": 0.25,
        "random_h": 36,
        "random_s": 50,
        "random_l": 50,
        "seed_aug": 3,
    }
    (first,), (again,), (plain,) = (
        next(batches_of(folder, batch_size=7, **setting)).data for setting in (drawn, drawn, {})
    )
    assert np.array_equal(first.asnumpy(), again.asnumpy())
    changes = np.abs(first.asnumpy() - plain.asnumpy()).mean((1, 2, 3))
    assert len(set(changes)) == 7
    assert changes.min() > 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"max_rotate_angle": 10, "inter_method": 0}, "need inter_method 1 to 4"),
        ({"random_h": 10, "data_shape": (1, 8, 6)}, "need images with 3 channels"),
        ({"random_resized_crop": True, "max_random_scale": 1.5}, "excludes rand_crop, crop sizes and random scales"),
        ({"rand_flip": True}, "no rand_flip=True"),
        ({"label_width": 1}, "has 2 labels, label_width is 1"),
        ({"batch_size": 8}, "has 7 images to read, less than a batch"),
        ({"data_shape": (8, 6)}, "data_shape is"),
        ({"num_parts": 2, "part_index": 2}, "part_index 2 is not one of 0 to 1"),
        ({"random_resized_crop": True, "rand_crop": True}, "random_resized_crop excludes"),
        ({"max_crop_size": 30, "min_crop_size": 30}, "is not within"),
        ({"max_rotate_angle": -10}, "max_rotate_angle must be a whole number of 0 or more, not -10"),
        ({"max_rotate_angle": 1.5}, "max_rotate_angle must be a whole number, not 1.5"),
        ({"brightness": -0.5}, "brightness must be a number of 0 or more, not -0.5"),
        ({"contrast": float("inf")}, "contrast must be finite, not inf"),
        ({"saturation": -1}, "saturation must be a number of 0 or more, not -1"),
        ({"pca_noise": -0.1}, "pca_noise must be a number of 0 or more"),
        ({"max_shear_ratio": -0.1}, "max_shear_ratio must be a number of 0 or more"),
        ({"std_g": 0}, "std_g must not be 0"),
        ({"resize": -5}, "resize must be -1, for none, or a whole number of 1 or more, not -5"),
        ({"resize": 10**6}, "resize must be at most 32767, not 1000000"),
        ({"pad": 10**9}, "pad must be at most 32767"),
        ({"inter_method": 7}, "inter_method must be 0 to 4, 9 or 10, not 7"),
        ({"min_random_scale": 1e6, "max_random_scale": 1e6}, "larger than 32767 rows or columns; set max_img_size"),
        ({"rotate": "a"}, "rotate must be a whole number, not 'a'"),
        ({"rotate": -10}, "rotate must be a whole number of -1 or more, not -10"),
        ({"scale": "a"}, "scale must be a number, not 'a'"),
        ({"min_random_scale": 0, "max_random_scale": 0}, "must be above 0, not 0 and 0"),
        ({"min_random_scale": -1.5}, "must be above 0, not -1.5 and 1.0"),
        ({"max_random_scale": float("nan")}, "max_random_scale must be a number, not nan"),
        ({"min_random_area": 2.0}, "0 < min_random_area <= max_random_area is needed; got 2.0 and 1.0"),
        ({"max_aspect_ratio": 1.5}, "0 <= max_aspect_ratio < 1 is needed without min_aspect_ratio; got 1.5"),
        ({"min_aspect_ratio": 2.0}, "0 < min_aspect_ratio <= max_aspect_ratio is needed; got 2.0 and 0.0"),
        ({"data_shape": 16}, "data_shape is .3 or 1, height, width., not 16"),
        ({"batch_size": 0}, "batch_size must be a whole number of 1 or more, not 0"),
        ({"rand_crop": "False"}, "rand_crop must be True or False, not 'False'"),
        ({"shuffle": 2}, "shuffle must be True or False, not 2"),
        ({"seed": "a"}, "seed must be a whole number, not 'a'"),
        ({"seed_aug": "a"}, "seed_aug must be a whole number, not 'a'"),
        ({"num_parts": 0}, "num_parts must be a whole number of 1 or more, not 0"),
    ],
)
def test_what_is_refused(folder, setting, message):
    with pytest.raises(SettingError, match=message):
        next(batches_of(folder, **setting))


def test_a_file_that_ends_early_is_named(folder):
    path = folder / "images.rec"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(recordio.RecordError, match="ends inside a record"):
        list(batches_of(folder))


def test_it_is_read_ahead_by_a_prefetching_iterator(folder):
    alone = [batch.data[0].asnumpy() for batch in batches_of(folder)]
    ahead = [batch.data[0].asnumpy() for batch in mx.io.PrefetchingIter(batches_of(folder))]
    assert len(ahead) == len(alone) == 3
    assert all(np.array_equal(one, other) for one, other in zip(alone, ahead, strict=True))


def test_a_dtype_and_a_path_that_are_none(folder):
    with pytest.raises(DTypeError, match="'foo' is not a dtype; use one of"):
        batches_of(folder, dtype="foo")
    for iterator in (mx.io.ImageRecordIter, mx.io.ImageDetRecordIter):
        with pytest.raises(FileNotFoundError, match="nope.rec'.*'images.rec'") as caught:
            iterator(str(folder / "nope.rec"), (3, 8, 6), 1)
        assert isinstance(caught.value, HybridLabError)
        with pytest.raises(FileNotFoundError, match="no file '.*nope.idx'; the folder has 'images.idx'") as caught:
            iterator(str(folder / "images.rec"), (3, 8, 6), 1, path_imgidx=str(folder / "nope.idx"))
        assert isinstance(caught.value, HybridLabError)
        with pytest.raises(SettingError, match="path_imgrec must be the path of a file, not None"):
            iterator(None, (3, 8, 6), 1)
