"""The parameter shapes whose updates are measured; imported in every peer's environment."""

MLP = [(256, 784), (256,), (10, 256), (10,)]


def resnet18() -> list[tuple[int, ...]]:
    """ResNet-18 (v1) for 1000 classes: 62 arrays, 11,689,512 numbers."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    before = 64
    for stage, channels in enumerate((64, 128, 256, 512)):
        for block in range(2):
            inputs = before if block == 0 else channels
            for size, source in ((3, inputs), (3, channels)):
                shapes += [(channels, source, size, size), (channels,), (channels,)]
            if block == 0 and stage:
                shapes += [(channels, inputs, 1, 1), (channels,), (channels,)]
        before = channels
    return [*shapes, (1000, 512), (1000,)]


SIZES = {"MLP 784-256-10": MLP, "ResNet-18": resnet18()}
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.01, "momentum": 0.9, "wd": 1e-4},
    "adam": {"learning_rate": 0.001, "wd": 1e-4},
}
