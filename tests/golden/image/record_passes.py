"""Two passes over an iterator of image records, in Hybrid Lab and in the real MXNet."""

import json

import numpy as np


def two_passes(batches):
    """The data, labels and pads of all batches of two passes, each stacked."""
    passes = []
    for _ in range(2):
        passes += [(batch.data[0].asnumpy(), batch.label[0].asnumpy(), batch.pad) for batch in batches]
        batches.reset()
    return [np.stack(values) for values in zip(*passes)]


def write_passes(file, settings, batches_of, **others):
    """Write every setting and what `batches_of(setting)` gives. others : further arrays of the file"""
    for number, setting in enumerate(settings):
        others[f"setting_{number}"] = np.array(json.dumps(setting))
        for key, values in zip(("data", "label", "pad"), two_passes(batches_of(setting))):
            others[f"{key}_{number}"] = values
    np.savez_compressed(file, **others)


def read_settings(file, folder):
    """The settings of such a file, with files in `folder` in place of /tmp."""
    count = sum(name.startswith("setting_") for name in file)
    settings = [json.loads(str(file[f"setting_{number}"])) for number in range(count)]
    return [
        {key: value.replace("/tmp", folder) if isinstance(value, str) else value for key, value in setting.items()}
        for setting in settings
    ]
