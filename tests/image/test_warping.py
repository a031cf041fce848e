"""Changes of hue, lightness and saturation, with the values of OpenCV 4.8 to 4.14."""

import numpy as np

from hybrid_lab.ops.kernels.opencv import change_hls

COLORS = np.array([[[200, 30, 90], [12, 250, 130], [77, 77, 77], [0, 0, 0], [255, 255, 255], [10, 20, 240]]], "uint8")


def test_hue_lightness_and_saturation_as_opencv():
    assert change_hls(COLORS, 20, -30, 40).tolist() == [
        [[161, 9, 9], [0, 168, 202], [54, 49, 40], [0, 0, 0], [230, 227, 220], [120, 0, 190]]
    ]
    assert change_hls(COLORS, -50, 60, -80).tolist() == [
        [[141, 143, 209], [232, 219, 150], [137, 137, 137], [60, 60, 60], [255, 255, 255], [142, 228, 168]]
    ]
