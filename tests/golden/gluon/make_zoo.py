"""Names, shapes and outputs of every network in the real MXNet's model zoo -> zoo.json."""

import json
import sys
from pathlib import Path

import mxnet as mx
from mxnet.gluon.model_zoo import vision

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
from zoo_weights import digest, image, size_of, weight  # noqa: E402

MODELS = (
    "alexnet densenet121 densenet161 densenet169 densenet201 inceptionv3 mobilenet1.0 mobilenet0.75 mobilenet0.5 "
    "mobilenet0.25 mobilenetv2_1.0 mobilenetv2_0.75 mobilenetv2_0.5 mobilenetv2_0.25 resnet18_v1 resnet34_v1 "
    "resnet50_v1 resnet101_v1 resnet152_v1 resnet18_v2 resnet34_v2 resnet50_v2 resnet101_v2 resnet152_v2 "
    "squeezenet1.0 squeezenet1.1 vgg11 vgg13 vgg16 vgg19 vgg11_bn vgg13_bn vgg16_bn vgg19_bn "
).split()


def main():
    found = {}
    for name in MODELS:
        net = vision.get_model(name, classes=10)
        net.initialize()
        x = mx.nd.array(image(size_of(name)))
        net(x)
        parameters = net._collect_params_with_prefix()
        for key, parameter in parameters.items():
            parameter.set_data(mx.nd.array(weight(key, parameter.shape)))
        full = [f"{key[len(net.prefix) :]} {value.shape}" for key, value in net.collect_params().items()]
        found[name] = {
            "parameters": len(full),
            "names": digest(f"{key} {value.shape}" for key, value in parameters.items()),
            "full_names": digest(full),
            "output": [float(number) for number in net(x).asnumpy()[0]],
        }
        print(name, found[name]["output"][:3], flush=True)
    (FOLDER / "zoo.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
