"""Writes files.npz, small images as files of several kinds. It needs Pillow, whose releases write different bytes."""

import io

import numpy as np
from PIL import Image

random_values = np.random.RandomState(0)
photo = np.add.outer(np.arange(12) * 9, np.arange(19) * 5)[..., None] + np.array([0, 40, 90])
photo = (photo + random_values.randint(0, 25, (12, 19, 3))).clip(0, 255).astype("uint8")
image = Image.fromarray(photo)
turned = Image.Exif()
turned[274] = 6
KINDS = {
    "jpeg": (image, {"format": "JPEG", "quality": 70, "subsampling": 2}),
    "progressive": (image, {"format": "JPEG", "progressive": True}),
    "turned": (image, {"format": "JPEG", "exif": turned}),
    "png": (image, {"format": "PNG"}),
    "gray": (image.convert("L"), {"format": "PNG"}),
    "palette": (image.convert("P"), {"format": "PNG"}),
    "alpha": (Image.fromarray(np.concatenate([photo, photo[..., :1]], 2)), {"format": "PNG"}),
    "deep": (Image.fromarray(photo[..., 0].astype("uint16") * 257 + 3), {"format": "PNG"}),
}
files = {"photo": photo}
for name, (source, options) in KINDS.items():
    written = io.BytesIO()
    source.save(written, **options)
    files[name] = np.frombuffer(written.getvalue(), "uint8")
np.savez_compressed("files.npz", **files)
