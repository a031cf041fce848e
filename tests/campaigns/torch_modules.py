"""Modules of torchvision, timm and transformers beside the Blocks that they become: `make test-torch`.

    python tests/campaigns/torch_modules.py                a table of all: errors, operators, seconds
    python tests/campaigns/torch_modules.py --only bert    those whose names contain a word

The packages are installed into an environment of their own, .versions/torch, which uses the torch of this one. Fails
if a module differs by more than 1e-4 (outputs) or 1e-3 (gradients), or does not open in a process without torch. Then
weights of these packages are loaded by name maps.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".versions" / "torch"
PACKAGES = ("timm", "transformers")
SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"
OF_TORCH = {"2.8": "0.23.0", "2.9": "0.24.1", "2.10": "0.25.0", "2.11": "0.26.0", "2.12": "0.27.1", "2.13": "0.28.0"}
"""torch -> the torchvision that belongs to it."""
FORWARD, GRADIENT = 1e-4, 1e-3
OPEN = """
import sys
sys.modules["torch"] = None
import numpy as np
from hybrid_lab import gluon, nd
stored = np.load(sys.argv[1] + ".npz")
x, y = stored["x"], stored["y"]
net = gluon.load(sys.argv[1] + ".hlab")
found = net(nd.array(x, dtype=x.dtype))
while isinstance(found, (list, tuple, dict)):
    found = list(found.values() if isinstance(found, dict) else found)[0]
assert np.abs(found.asnumpy() - y).max() <= 1e-4 * np.abs(y).max()
"""


def enter() -> None:
    """Go on in an environment that has the packages; it is made once, and sees the packages of this one."""
    if Path(sys.prefix) == FOLDER:
        return
    interpreter = FOLDER / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    release = ".".join(metadata.version("torch").split(".")[:2])
    wanted = [f"torchvision=={OF_TORCH[release]}" if release in OF_TORCH else "torchvision", *PACKAGES]
    stamp = FOLDER / "installed.txt"
    if not stamp.exists() or stamp.read_text() != " ".join(wanted):
        print("installing", *wanted, "into", FOLDER, flush=True)
        venv.create(FOLDER, with_pip=True)
        own = subprocess.run([interpreter, "-c", SITE], check=True, capture_output=True, text=True).stdout.strip()
        Path(own, "outer.pth").write_text(sysconfig.get_path("purelib"))
        subprocess.run([interpreter, "-m", "pip", "install", "--quiet", *wanted], check=True)
        stamp.write_text(" ".join(wanted))
    sys.exit(subprocess.run([interpreter, __file__, *sys.argv[1:]]).returncode)


def import_torchvision() -> None:
    """Import torchvision, whose compiled operators PyPI builds for the CUDA build of torch alone: declare the two that
    it names when it is imported. The modules here use none of them.
    """
    import torch

    library = None
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision

        torchvision._declared = library


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    enter()
    sys.path.insert(0, str(ROOT))
    import_torchvision()
    import numpy as np
    import torch

    from tests.torch.comparing import arrays, difference, without_dropout
    from tests.torch.packages import PACKAGES as MODULES

    logging.getLogger("hybrid_lab").setLevel(logging.ERROR)
    print(f"{'module':32} {'forward':>9} {'gradient':>9} {'operators':>9} {'graphs':>6} {'seconds':>7}", flush=True)
    failures = 0
    for name, (make, inputs) in MODULES.items():
        if options.only.lower() not in name.lower():
            continue
        torch.manual_seed(0)
        start = time.perf_counter()
        try:
            module, example = without_dropout(make()), inputs()
            net, found = difference(module, example)
            with tempfile.TemporaryDirectory() as folder:
                path = f"{folder}/net"
                net.save(path)
                x = example[0].numpy()
                import hybrid_lab as mx

                y = arrays(net(mx.nd.array(x, dtype=x.dtype)))[0].asnumpy()
                np.savez(path, x=x, y=y)
                done = subprocess.run([sys.executable, "-c", OPEN, path], capture_output=True, text=True, cwd=ROOT)
                if done.returncode:
                    raise AssertionError(f"not opened without torch: {done.stderr.strip()[-300:]}")
        except Exception as error:
            failures += 1
            print(f"{name:32} {type(error).__name__}: {str(error)[:400]}", flush=True)
            continue
        good = found.forward <= FORWARD and found.gradient <= GRADIENT
        failures += not good
        print(
            f"{name:32} {found.forward:9.1e} {found.gradient:9.1e} {found.operators:9} "
            f"{len(net._graphs.pinned):6} {time.perf_counter() - start:7.1f}{'' if good else '  DIFFERS'}",
            flush=True,
        )
    print("all agree" if not failures else f"{failures} differ or fail")
    import pytest

    weights = [] if options.only else [str(ROOT / "tests" / "gluon" / "test_name_maps_of_libraries.py")]
    return int(bool(failures) or (bool(weights) and pytest.main([*weights, "-q"]) != 0))


if __name__ == "__main__":
    sys.exit(main())
