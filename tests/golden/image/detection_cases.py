"""Cases of detection augmenters that run in Hybrid Lab and in the real MXNet: random images, boxes and seeds."""

import random

import numpy as np


def augmenter(image, number):
    """The augmenter of a case. image : the module `mx.image`"""
    kinds = [
        lambda: image.DetHorizontalFlipAug(0.5),
        lambda: image.DetRandomCropAug(min_object_covered=0.2),
        lambda: image.DetRandomPadAug(),
        lambda: image.CreateMultiRandCropAugmenter([0.1, 0.5], area_range=[(0.1, 1.0), (0.3, 0.9)], skip_prob=0.2),
        lambda: image.DetRandomSelectAug(
            [image.DetRandomPadAug(pad_val=(1, 2, 3)), image.DetHorizontalFlipAug(1)], 0.1
        ),
        lambda: all_of(
            image.CreateDetAugmenter(
                (3, 24, 32), resize=30, rand_crop=0.7, rand_pad=0.7, rand_mirror=True, mean=True, std=True,
                brightness=0.1, contrast=0.1, saturation=0.1, pca_noise=0.05, hue=0.1, rand_gray=0.2, inter_method=0,
                min_object_covered=[0.1, 0.4],
            )
        ),
    ]  # fmt: skip
    return kinds[number % len(kinds)]()


def all_of(augmenters):
    def augment(pixels, label):
        for each in augmenters:
            pixels, label = each(pixels, label)
        return pixels, label

    return augment


def results(mx, count=48):
    """[shape, sum of the image, label] of each case."""
    draw = np.random.RandomState(0)
    found = []
    for number in range(count):
        height, width, objects = (int(draw.randint(low, high)) for low, high in ((20, 60), (20, 60), (1, 4)))
        pixels = mx.nd.array(draw.randint(0, 255, (height, width, 3)), dtype="uint8")
        corner = draw.uniform(0, 0.6, (objects, 2))
        boxes = [draw.randint(0, 5, (objects, 1)), corner, corner + draw.uniform(0.05, 0.4, (objects, 2))]
        random.seed(number)
        np.random.seed(number)
        image, label = augmenter(mx.image, number)(pixels, np.concatenate(boxes, 1).astype("float32"))
        values = image.asnumpy().astype("float64")
        found.append([list(values.shape), float(values.sum()), np.asarray(label, "float64").round(6).tolist()])
    return found
