"""Writes det_record_iter.npz: records of images with objects, and what the real ImageDetRecordIter makes of them.

The images are those of records.npz. Settings with random changes are those that change every image in the same way.
"""

import mxnet as mx
import numpy as np
from record_passes import write_passes

np.load("records.npz")["rec"].tofile("/tmp/images.rec")
source, target = mx.recordio.MXRecordIO("/tmp/images.rec", "r"), mx.recordio.MXRecordIO("/tmp/objects.rec", "w")
draw = np.random.RandomState(3)
for number in range(7):
    _, image = mx.recordio.unpack(source.read())
    objects = []
    for _ in range(number % 3 + 1):
        left, top = draw.uniform(0, 0.5, 2)
        width, height = draw.uniform(0.2, 0.5, 2)
        objects += [draw.randint(5), left, top, left + width, top + height, 0.5]
    label = np.array([3, 6, number, *objects], "float32")
    target.write(mx.recordio.pack(mx.recordio.IRHeader(0, label, number, 0), image))
target.close()
with open("/tmp/objects.lst", "w") as lines:
    for number in range(7):
        lines.write("\t".join(map(str, [number, 2, 5, number, 0.125, 0.25, 0.5, 0.75, f"name{number}.png"])) + "\n")
SETTINGS = [
    {},
    {"path_imglist": "/tmp/objects.lst"},
    {"label_pad_width": 30, "label_pad_value": 7.0},
    {"resize": 12, "inter_method": 2},
    {"resize_mode": "shrink", "data_shape": (3, 40, 9)},
    {"resize_mode": "fit", "data_shape": (3, 30, 40)},
    {"rand_mirror_prob": 1.0},
    {"data_shape": (1, 8, 6)},
    {"mean_r": 10.0, "mean_g": 20.0, "mean_b": 30.5, "std_r": 2.0, "std_g": 3.0, "std_b": 4.0, "scale": 0.5},
    {"num_parts": 2, "part_index": 1, "batch_size": 2},
]


def batches_of(setting):
    given = {"path_imgrec": "/tmp/objects.rec", "data_shape": (3, 8, 6), "batch_size": 3, **setting}
    return mx.io.ImageDetRecordIter(preprocess_threads=1, verbose=False, **given)


write_passes("det_record_iter.npz", SETTINGS, batches_of, rec=np.fromfile("/tmp/objects.rec", "uint8"))
