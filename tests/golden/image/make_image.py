"""Writes what the real MXNet makes of the image files in files.npz, beside this script."""

import random

import mxnet as mx
import numpy as np

files = np.load("files.npz")
photo = files["photo"]
out = {}
for name in files:
    if name != "photo":
        out[f"file_{name}"] = files[name]
        for flag in (0, 1):
            out[f"decoded_{name}_{flag}"] = mx.image.imdecode(files[name].tobytes(), flag=flag).asnumpy()

out["photo"] = photo
for dtype in ("uint8", "float32"):
    source = mx.nd.array(photo, dtype=dtype)
    for interp in range(5):
        for width, height in ((19, 24), (33, 6), (9, 6), (25, 31), (38, 24), (5, 4)):
            resized = mx.image.imresize(source, width, height, interp=interp).asnumpy()
            out[f"resized_{dtype}_{interp}_{width}_{height}"] = resized
    for factor in (0.4, 1.7):
        for name in ("brightness", "contrast", "hue"):
            changed = getattr(mx.nd.image, f"random_{name}")(source, factor, factor).asnumpy()
            out[f"color_{name}_{dtype}_{factor}"] = changed
    out[f"lighting_{dtype}"] = mx.nd.image.adjust_lighting(source, alpha=(0.1, -0.2, 0.3)).asnumpy()
source = mx.nd.array(photo, dtype="uint8")
for kind in range(5):
    out[f"border_{kind}"] = mx.image.copyMakeBorder(source, 1, 2, 3, 2, type=kind, values=(5, 6, 7)).asnumpy()
tensor = mx.nd.transpose(source.astype("float32"), (2, 0, 1))
out["rotated_none"] = mx.image.imrotate(tensor, 30).asnumpy()
out["rotated_in"] = mx.image.imrotate(tensor, 30, zoom_in=True).asnumpy()
out["rotated_out"] = mx.image.imrotate(tensor, -50, zoom_out=True).asnumpy()

random.seed(3)
np.random.seed(3)
augmenters = mx.image.CreateAugmenter(
    (3, 8, 7), resize=10, rand_crop=True, rand_resize=True, rand_mirror=True, mean=True, std=True, brightness=0.1,
    contrast=0.2, saturation=0.3, hue=0.1, pca_noise=0.1, rand_gray=0.3, inter_method=1,
)  # fmt: skip
out["dumped"] = np.array([str(augmenter.dumps()) for augmenter in augmenters])
for number in range(4):
    changed = source
    for augmenter in augmenters:
        changed = augmenter(changed)
    out[f"augmented_{number}"] = changed.asnumpy()
np.savez_compressed("image.npz", **out)
