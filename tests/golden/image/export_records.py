"""Writes records.npz: seven small images as a file of image records, and its index. It needs Pillow and the package."""

import io
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from hybrid_lab import recordio

rng = np.random.RandomState(1)
with tempfile.TemporaryDirectory() as folder:
    rec, idx = Path(folder) / "images.rec", Path(folder) / "images.idx"
    with recordio.MXIndexedRecordIO(idx, rec, "w") as records:
        for number in range(7):
            height, width = rng.randint(9, 25, 2)
            values = np.add.outer(np.arange(height) * 9, np.arange(width) * 5)[..., None] + np.array([0, 40, 90])
            values = (values + rng.randint(0, 60, (height, width, 3))).clip(0, 255).astype("uint8")
            written = io.BytesIO()
            Image.fromarray(values).save(written, "PNG")
            header = recordio.IRHeader(0, np.array([number, 10.0 + number], "float32"), number, 0)
            records.write_idx(number, recordio.pack(header, written.getvalue()))
    np.savez_compressed(
        "records.npz", rec=np.frombuffer(rec.read_bytes(), "uint8"), idx=np.frombuffer(idx.read_bytes(), "uint8")
    )
