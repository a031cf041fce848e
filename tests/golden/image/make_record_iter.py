"""Writes what the real MXNet's ImageRecordIter makes of records.npz, beside this script."""

import mxnet as mx
import numpy as np
from record_passes import write_passes

files = np.load("records.npz")
for name in ("rec", "idx"):
    files[name].tofile("/tmp/images." + name)
mx.nd.save("/tmp/mean.nd", {"mean_img": mx.nd.arange(3 * 8 * 6).reshape((3, 8, 6))})
with open("/tmp/images.lst", "w") as lines:
    lines.writelines(f"{i}\t{20 + i}\tname{i}.png\n" for i in range(7))
SETTINGS = [
    {},
    {"path_imgidx": "/tmp/images.idx"},
    {"path_imglist": "/tmp/images.lst", "label_width": 1},
    {"resize": 12},
    {"resize": 12, "inter_method": 2},
    {"resize": 9, "inter_method": 9},
    {"data_shape": (3, 20, 16)},
    {"data_shape": (3, 8, 22)},
    {"data_shape": (1, 8, 6)},
    {"pad": 3, "fill_value": 7, "data_shape": (3, 24, 24)},
    {"mirror": True, "mean_r": 10.0, "mean_g": 20.0, "mean_b": 30.5, "std_r": 2.0, "std_g": 3.0, "std_b": 4.0},
    {"scale": 0.5, "mean_r": 3.0},
    {"mean_img": "/tmp/mean.nd", "scale": 0.25},
    {"min_crop_size": 9, "max_crop_size": 9},
    {"num_parts": 2, "part_index": 1, "batch_size": 2},
    {"num_parts": 3, "part_index": 1, "batch_size": 1, "path_imgidx": "/tmp/images.idx"},
    {"rotate": 30, "data_shape": (3, 12, 12), "fill_value": 9},
    {"rotate": 200, "data_shape": (3, 12, 12), "inter_method": 2},
    {"rotate": 77, "data_shape": (3, 12, 12), "inter_method": 3, "resize": 14},
    {"rotate": 45, "data_shape": (3, 12, 12), "inter_method": 4},
    {"min_random_scale": 0.7, "max_random_scale": 0.7},
    {"min_random_scale": 1.6, "max_random_scale": 1.6, "inter_method": 9},
    {"min_aspect_ratio": 1.3, "max_aspect_ratio": 1.3, "rotate": 10},
    {"min_img_size": 40.0},
    {"dtype": "uint8"},
    {"dtype": "uint8", "mean_r": 10.0, "std_g": 3.0, "scale": 0.5, "mirror": True},
    {"dtype": "int8", "mean_r": 100.5, "mean_g": 20.4, "mean_b": 250.0, "std_r": 2.0, "scale": 0.5, "mirror": True},
    {"dtype": "int8", "mean_img": "/tmp/mean.nd"},
]


def batches_of(setting):
    given = {"path_imgrec": "/tmp/images.rec", "data_shape": (3, 8, 6), "batch_size": 3, "label_width": 2, **setting}
    return mx.io.ImageRecordIter(preprocess_threads=1, verbose=False, **given)


write_passes("record_iter.npz", SETTINGS, batches_of)
