"""GluonCV's model zoo, unchanged, on Hybrid Lab: does each model build, run, hybridize, save, reload, equal MXNet?

    python tests/campaigns/gluoncv_models.py gluoncv-0.10.5.post0-py2.py3-none-any.whl
    python tests/campaigns/gluoncv_models.py gluon-cv/ --models "ssd_*" dla34 --mxnet .oracle/bin/python

The first argument is GluonCV as the user has it: a wheel, or a folder that holds the package. Nothing is fetched:

    pip download gluoncv==0.10.5.post0 --no-deps; pip install portalocker matplotlib scipy pillow tqdm requests

Every model runs in a process of its own with a limit of its processor time: a server for each library has imported it
and GluonCV, and forks for a model. Results lie in the folder of --out; a second run does only what is missing there
(--again: everything). With --mxnet, the Python of an environment with the real MXNet 1.9.1 (and GluonCV's
requirements), the same models with the same weights run there too and outputs are compared.

With --dtype float64 a copy of GluonCV is run in which float64 stands in place of float32, and BatchNorm in place of
SyncBatchNorm. That is for models that choose objects by their scores: float32 rounds two scores of thousands to the
same number, and then another object is chosen.

With --without-vnni networks in 8 bits compute as oneDNN, and with it MXNet, does on a processor without VNNI.

GluonCV was written for other releases of two packages. This script sets `np.float` and `np.int`, which NumPy 1.24
removed, and hides torch while GluonCV is imported, because it refuses torch 2.0 and newer.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

RELATIVE = 1e-4
"""Of outputs beside MXNet's, relative to the largest one; of hybrid beside eager the same."""
AMPLIFIED = 10
"""A network with random weights may amplify rounding, as exp() of a large box does: outputs may also differ by this
many times what they change by when the inputs change by two roundings (`rounding` in a report)."""

#: Fixed inputs of models that do not take one square image: first match of the name, else SIZES.
INPUTS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("cifar_*", [(1, 3, 32, 32)]),
    ("siamrpn_*", [(1, 3, 127, 127), (1, 3, 287, 287)]),
    ("monodepth2_*posenet*", [(1, 6, 64, 128)]),
    ("monodepth2_*", [(1, 3, 64, 128)]),
    ("*_pose_*", [(1, 3, 128, 96)]),
    ("c3d_*", [(1, 3, 16, 112, 112)]),
    ("p3d_*", [(1, 3, 16, 64, 64)]),
    ("r2plus1d_*", [(1, 3, 8, 64, 64)]),
    ("i3d_inceptionv*", [(1, 3, 16, 224, 224)]),
    ("i3d_*", [(1, 3, 16, 64, 64)]),
    ("slowfast_16x8_*", [(1, 3, 48, 64, 64)]),
    ("slowfast_8x8_*", [(1, 3, 40, 64, 64)]),
    ("slowfast_*", [(1, 3, 36, 64, 64)]),
]
SIZES = (64, 128, 224, 299, 331, 480, 512)
"""Edges of the square image that are tried, the smallest first."""
#: Random weights have the variance gain / fan-in, where `gain` stands beside the first pattern that the model's name
#: matches. With the gain of the other models, the detectors here would have scores of exactly 1 and empty boxes only,
#: and rounding would decide which objects are chosen.
GAINS = [("*rcnn*syncbn*", 0.1), ("*rcnn*", 0.6), ("center_net_resnet101_*", 0.6), ("*", 1.5)]
#: Arguments that are tried in turn: not every model of the zoo takes all of them.
ARGUMENTS: list[dict[str, Any]] = [
    {"pretrained": False, "pretrained_base": False},
    {"pretrained": False},
    {"pretrained": False, "pretrained_base": False, "classes": ["cat", "dog", "cow"]},
    {"pretrained": False, "classes": ["cat", "dog", "cow"]},
    {},
]
STEPS = ("built", "eager", "hybrid", "saved", "equal")


# -- one model, in a process of its own --------------------------------------------------------------------------------


def prepare(source: str, real: bool, dtype: str = "float32") -> Any:
    """Import `mxnet` and GluonCV's zoo; `real`: the installed MXNet."""
    warnings.simplefilter("ignore")
    if not real:
        import hybrid_lab.compat  # noqa: F401 - from here on `import mxnet` is Hybrid Lab
    if dtype == "float64":
        use_float64()
    np.float, np.int = float, int  # type: ignore[attr-defined]
    sys.path.insert(0, source)
    hidden = sys.modules.pop("torch", None)
    sys.modules["torch"] = None  # type: ignore[assignment]
    from gluoncv.model_zoo import model_zoo  # type: ignore[import-not-found]

    del sys.modules["torch"]
    if hidden is not None:
        sys.modules["torch"] = hidden
    return model_zoo


def use_float64() -> None:
    """Let functions of `mxnet` that make float32 by default make float64, and replace SyncBatchNorm, which MXNet does
    not have in float64, by BatchNorm, which predicts the same.
    """
    import mxnet as mx

    mx.gluon.contrib.nn.SyncBatchNorm = lambda num_devices=None, **keywords: mx.gluon.nn.BatchNorm(**keywords)
    mx.sym.contrib.SyncBatchNorm = lambda data, key="", ndev=1, **keywords: mx.sym.BatchNorm(data, **keywords)
    for module in (mx.nd, mx.sym):
        for name in ("arange", "argsort", "topk"):
            setattr(module, name, functools.partial(getattr(module, name), dtype="float64"))


def build(zoo: Any, name: str, arguments: list[dict[str, Any]]) -> tuple[Any, dict[str, Any]]:
    """The model and the arguments that it took."""
    errors: list[Exception] = []
    for keywords in arguments:
        try:
            return zoo.get_model(name, **keywords), keywords
        except (TypeError, ValueError, Warning) as error:  # darknet53 raises a Warning
            errors.append(error)
    raise errors[0]


def images(name: str) -> Iterator[list[tuple[int, ...]]]:
    """Shapes of the inputs to try."""
    for pattern, shapes in INPUTS:
        if fnmatch.fnmatch(name, pattern):
            yield shapes
            return
    for edge in SIZES:
        yield [(1, 3, edge, edge)]


def weights(net: Any, mx: Any, gain: float) -> None:
    """Fill all parameters with numbers that depend on their names within the model, their shapes and `gain` only.

    The numbers of a pool are used again and again, because drawing them all takes longer than running the model.
    """
    pool = np.random.RandomState(1)
    normal, uniform = pool.normal(0, 1, 65521).astype("float32"), pool.uniform(-1, 1, 65521).astype("float32")
    for name, parameter in sorted(net._collect_params_with_prefix().items()):
        shape = tuple(map(int, parameter.shape))  # NumPy 2 writes its own integers otherwise than NumPy 1
        start = zlib.crc32(f"{name}{shape}".encode()) % len(normal)
        if "anchor" in name or parameter.grad_req == "null" and not name.endswith(("running_mean", "running_var")):
            continue  # constants of the model
        if name.endswith(("gamma", "running_var")):
            values = np.resize(1 + 0.2 * np.roll(uniform, start), shape)
        elif len(shape) < 2:
            values = np.resize(0.1 * np.roll(uniform, start), shape)
        else:
            values = np.resize(np.roll(normal, start), shape) * np.float32(np.sqrt(gain / np.prod(shape[1:])))
        parameter.set_data(mx.nd.array(values, dtype=parameter.dtype))


def arrays(result: Any) -> list[np.ndarray]:
    """All arrays of a result."""
    if isinstance(result, dict):
        return [array for key in sorted(result, key=str) for array in arrays(result[key])]
    if isinstance(result, list | tuple) or type(result).__name__ in ("list", "tuple"):
        return [array for part in result for array in arrays(part)]
    return [result.asnumpy()] if hasattr(result, "asnumpy") else []


def difference(found: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """The largest error, relative to the largest element of each array; inf where they cannot be compared."""
    if [array.shape for array in found] != [array.shape for array in wanted]:
        return float("inf")
    worst = 0.0
    for one, other in zip(found, wanted, strict=True):
        if not other.size:
            continue
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        scale = np.abs(other[np.isfinite(other)]).max(initial=1e-30)
        with np.errstate(invalid="ignore"):  # the same infinity twice
            apart = np.abs(np.where(same, 0, one.astype("float64") - other)).max() / scale
        worst = max(worst, float(np.nan_to_num(apart, nan=np.inf)))
    return worst


def same_detections(found: list[np.ndarray], wanted: list[np.ndarray]) -> np.ndarray:
    """The error of each object of a detector, after the objects were assigned to their closest: their classes, scores,
    boxes and masks are rows in the order of the scores, and rounding exchanges objects with almost equal scores.

    Returns [inf] where the arrays are not (batch, N, ...).
    """
    shapes = [array.shape for array in wanted]
    if [array.shape for array in found] != shapes or len(shapes) < 2 or len({shape[:2] for shape in shapes}) > 1:
        return np.array([np.inf])
    if min(map(len, shapes)) < 2:
        return np.array([np.inf])
    scales = [np.abs(array[np.isfinite(array)]).max(initial=1e-30) for array in wanted]

    def rows(arrays: list[np.ndarray]) -> np.ndarray:
        flat = [array.reshape(*array.shape[:2], -1) / scale for array, scale in zip(arrays, scales, strict=True)]
        return np.nan_to_num(np.concatenate(flat, 2).astype("float64"))

    errors = []
    for one, other in zip(rows(found), rows(wanted), strict=True):
        in_place = np.abs(one - other).max(axis=1)
        errors.append(in_place[in_place <= RELATIVE])
        one, other = one[in_place > RELATIVE], other[in_place > RELATIVE]
        for row in one:
            closest = int(np.abs(other[:, :6] - row[:6]).max(axis=1).argmin())  # by class, score and box
            errors.append(np.abs(other[closest : closest + 1] - row).max(axis=1))
            other = np.delete(other, closest, axis=0)
    return np.concatenate(errors)


def compared(found: list[np.ndarray], wanted: list[np.ndarray], report: dict[str, Any]) -> float:
    """The difference, of detectors that of the closest assignment of their objects if only that is small."""
    apart = difference(found, wanted)
    if apart > tolerance(report):
        assigned = same_detections(found, wanted)
        report["same objects"] = float((assigned <= tolerance(report)).mean())
        if report["same objects"] == 1:
            report["exchanged"] = True
            return float(assigned.max())
    return apart


def tolerance(report: dict[str, Any]) -> float:
    """The largest difference that passes for equal."""
    return max(RELATIVE, AMPLIFIED * float(report.get("rounding", 0)))


def work(name: str, source: str, target: Path, real: bool, dtype: str, wanted: dict[str, Any] | None) -> None:
    """Run the steps of one model; write what happened to `target`.json and its outputs to `target`.npz.

    wanted : arguments and inputs that the other library took
    """
    report: dict[str, Any] = {"name": name, "steps": [], "dtype": dtype}
    started = time.time()

    def done(step: str) -> None:
        report["steps"].append(step)
        report.setdefault("seconds", {})[step] = round(time.time() - started, 1)

    try:
        zoo = prepare(source, real, dtype)
        import mxnet as mx

        arguments = ARGUMENTS if wanted is None else [wanted["arguments"]]
        shapes = images(name) if wanted is None else iter([[tuple(shape) for shape in wanted["inputs"]]])
        net, inputs, outputs = first_that_runs(zoo, mx, name, arguments, shapes, dtype, report, done)
        np.savez(target.with_suffix(".npz"), *outputs)
        if not real:
            mx.random.seed(0)
            rounded = arrays(net(*(one * (1 + 2**-22) for one in inputs)))
            report["rounding"] = min(difference(rounded, outputs), float(same_detections(rounded, outputs).max()))
            check_hybrid(net, mx, inputs, outputs, target, report, done)
    except BaseException as error:
        report["error"] = f"{type(error).__name__}: {error}"[:600]
        report["trace"] = traceback.format_exc()[-2500:]
    target.with_suffix(".json").write_text(json.dumps(report, indent=1, default=str))


def first_that_runs(
    zoo: Any,
    mx: Any,
    name: str,
    arguments: list[dict[str, Any]],
    candidates: Iterator[list[tuple[int, ...]]],
    dtype: str,
    report: dict[str, Any],
    done: Callable[[str], None],
) -> tuple[Any, list[Any], list[np.ndarray]]:
    """The model with its weights, the smallest inputs that it takes, and its outputs."""
    failure: Exception | None = None
    for shapes in candidates:
        net, report["arguments"] = build(zoo, name, arguments)
        if "built" not in report["steps"]:
            done("built")
        report["inputs"] = shapes
        draw = np.random.RandomState(1)
        inputs = [mx.nd.array(draw.normal(0, 1, shape).astype("float32")) for shape in shapes]
        if dtype != "float32":
            net.cast(dtype)
            inputs = [one.astype(dtype) for one in inputs]
        net.initialize(mx.init.Zero())
        try:
            mx.random.seed(0)
            arrays(net(*inputs))  # completes the shapes of the parameters
            weights(net, mx, next(gain for pattern, gain in GAINS if fnmatch.fnmatch(name, pattern)))
            mx.random.seed(0)
            outputs = arrays(net(*inputs))
            done("eager")
            return net, inputs, outputs
        except Exception as error:
            failure = failure or error
            report["first_error"] = traceback.format_exc()[-1500:]
    assert failure is not None
    raise failure


def check_hybrid(
    net: Any,
    mx: Any,
    inputs: list[Any],
    outputs: list[np.ndarray],
    target: Path,
    report: dict[str, Any],
    done: Callable[[str], None],
) -> None:
    """Hybridize, compare with the eager outputs, save, reload without the code, compare again."""
    net.hybridize()
    mx.random.seed(0)
    hybrid = arrays(net(*inputs))
    report["hybrid"] = compared(hybrid, outputs, report)
    if not report["hybrid"] <= tolerance(report):
        raise AssertionError(f"hybrid differs from eager by {report['hybrid']:.1e}")
    done("hybrid")
    file = target.with_suffix(".hlab")
    try:
        mx.save_cached_graphs(net, str(file))
        again = mx.gluon.load(str(file))
        mx.random.seed(0)
        report["reloaded"] = compared(arrays(again(*inputs)), hybrid, report)
    finally:
        file.unlink(missing_ok=True)
    if not report["reloaded"] <= tolerance(report):
        raise AssertionError(f"reloaded differs from saved by {report['reloaded']:.1e}")
    done("saved")


# -- all models --------------------------------------------------------------------------------------------------------


def unpacked(source: Path, folder: Path, dtype: str) -> Path:
    """The folder that holds the package `gluoncv`; a wheel is unpacked, and a copy for float64 made, below `folder`."""
    if source.is_file():
        target = folder / source.stem
        if not target.exists():
            with zipfile.ZipFile(source) as wheel:
                wheel.extractall(target)
        source = target
    if not (source / "gluoncv" / "model_zoo").is_dir():
        raise SystemExit(f"{source} holds no package gluoncv; give the wheel, or the folder that the package is in")
    return source if dtype == "float32" else in_float64(source, folder / "float64")


def in_float64(source: Path, target: Path) -> Path:
    """A copy of the package whose code names float64 in place of float32."""
    shutil.copytree(source / "gluoncv", target / "gluoncv", dirs_exist_ok=True)
    for file in (target / "gluoncv").rglob("*.py"):
        file.write_text(file.read_text().replace("float32", "float64"))
    return target


class Server:
    """A process that has imported a library and GluonCV, and runs each model in a process forked from it."""

    def __init__(self, python: str, source: Path, real: bool, arguments: argparse.Namespace) -> None:
        command = [python, __file__, str(source), "--serve", "--seconds", str(arguments.seconds)]
        command += ["--dtype", arguments.dtype, *(["--real"] if real else [])]
        command += ["--without-vnni"] if arguments.without_vnni else []
        environment = {**os.environ, "MXNET_MKLDNN_ENABLED": "0"} if real else dict(os.environ)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, env=environment, text=True, **pipes)

    def run(self, name: str, target: Path, wanted: Path | None) -> dict[str, Any]:
        """Run one model; its report."""
        file = target.with_suffix(".json")
        file.unlink(missing_ok=True)
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps([name, str(target), str(wanted or "")]), file=self.process.stdin, flush=True)
        if not self.process.stdout.readline():
            raise SystemExit("the server of models died; does `import gluoncv` work in that Python?")
        return dict(json.loads(file.read_text()))


def serve(arguments: argparse.Namespace) -> None:
    """Read models from the standard input; answer each with a line when its report is written."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what models print is no answer
    prepare(str(arguments.source), arguments.real, arguments.dtype)
    if arguments.without_vnni and not arguments.real:
        import without_vnni  # beside this file

        without_vnni.install()
    for line in sys.stdin:
        name, target, wanted = json.loads(line)
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_CPU, (int(arguments.seconds), int(arguments.seconds)))
            known = json.loads(Path(wanted).read_text()) if wanted else None
            work(name, str(arguments.source), Path(target), arguments.real, arguments.dtype, known)
            os._exit(0)
        error = ended(child, 20 * arguments.seconds)
        file = Path(target).with_suffix(".json")
        if not file.exists():
            file.write_text(json.dumps({"name": name, "steps": [], "error": error, "dtype": arguments.dtype}))
        print("done", file=answers, flush=True)


def ended(child: int, seconds: float) -> str:
    """Wait until a process has ended, for so many seconds at most; how it ended."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return f"the process died with status {os.waitstatus_to_exitcode(status)}"
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"not finished after {seconds:g} s"


def stored(target: Path) -> list[np.ndarray]:
    """The outputs that a worker stored."""
    with np.load(target.with_suffix(".npz")) as file:
        return [file[key] for key in file.files]


def names_of(python: str, source: Path, patterns: list[str]) -> list[str]:
    """The zoo's models whose names match; one of each family first, the small ones of it before."""
    command = [python, __file__, str(source), "--list"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(result.stderr)
    known = json.loads(result.stdout.splitlines()[-1])
    names = [name for name in known if any(fnmatch.fnmatch(name, each) for each in patterns)]
    seen: Counter[str] = Counter()
    ranked = []
    for place, name in enumerate(names):
        family = "".join(letter for letter in name if not letter.isdigit())
        ranked.append((seen[family], place, name))
        seen[family] += 1
    return [name for *_, name in sorted(ranked)]


def table(names: list[str], out: Path, with_mxnet: bool) -> str:
    """What was reached, and every model that did not reach everything."""
    counts: Counter[str] = Counter()
    lines = []
    for name in names:
        ours = read(out / "ours" / name)
        theirs = read(out / "mxnet" / name) if with_mxnet else None
        if ours is None:
            continue
        counts["tried"] += 1
        counts.update(ours["steps"])
        runs_there = theirs is not None and "eager" in theirs["steps"]
        counts["MXNet runs"] += runs_there
        counts["both"] += runs_there and "saved" in ours["steps"]
        counts["exchanged"] += bool(ours.get("exchanged"))
        counts["amplified"] += max(ours.get("hybrid", 0), ours.get("mxnet", 0)) > RELATIVE
        error = ours.get("error", "")
        apart = ours.get("mxnet")
        if runs_there and apart is not None and apart > tolerance(ours):
            error = error or f"differs from MXNet by {apart:.1e} in {ours['dtype']}"
        if error or (with_mxnet and not runs_there):
            there = "" if not with_mxnet else "runs" if runs_there else (theirs or {}).get("error", "not run")[:60]
            lines.append(f"| {name} | {', '.join(ours['steps'])} | {' '.join(error.split())[:150]} | {there} |")
    wanted = ["tried", *STEPS, *(["MXNet runs", "both"] if with_mxnet else []), "amplified", "exchanged"]
    head = [" | ".join(["", *wanted, ""]).strip(), "|---" * len(wanted) + "|"]
    head.append(" | ".join(["", *(str(counts[key]) for key in wanted), ""]).strip())
    rows = ["", "| model | steps | error | MXNet |", "|---|---|---|---|", *lines] if lines else []
    return "\n".join([*head, *rows])


def read(target: Path) -> dict[str, Any] | None:
    """The report of a model, or None."""
    file = Path(f"{target}.json")
    return dict(json.loads(file.read_text())) if file.exists() else None


def run_all(arguments: argparse.Namespace) -> int:
    out: Path = arguments.out
    for folder in ("ours", "mxnet"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    source = unpacked(arguments.source, out, arguments.dtype)
    names = names_of(sys.executable, source, arguments.models)
    servers: dict[bool, Server] = {}

    def run(real: bool, name: str, target: Path, wanted: Path | None) -> dict[str, Any]:
        if real not in servers:
            python = arguments.mxnet if real else sys.executable
            servers[real] = Server(python, source, real, arguments)
        return servers[real].run(name, target, wanted)

    for place, name in enumerate(names if not arguments.table else [], 1):
        ours, theirs = out / "ours" / f"{name}.x", out / "mxnet" / f"{name}.x"
        known = read(out / "ours" / name)
        if known is not None and not arguments.again and not (arguments.failed and known.get("error")):
            continue
        there = None
        if arguments.mxnet:
            there = read(out / "mxnet" / name)
            if there is None or arguments.again:
                there = run(True, name, theirs, None)
        runs_there = there is not None and "eager" in there["steps"]
        report = run(False, name, ours, out / "mxnet" / f"{name}.json" if runs_there else None)
        if runs_there and "eager" in report["steps"]:
            report["mxnet"] = compared(stored(ours), stored(theirs), report)
            if report["mxnet"] <= tolerance(report):
                report["steps"].append("equal")
            (out / "ours" / f"{name}.json").write_text(json.dumps(report, indent=1))
        print(f"{place}/{len(names)} {name}: {' '.join(report['steps'])} {report.get('error', '')[:150]}", flush=True)
    for server in servers.values():
        server.process.kill()
        server.process.wait()
    print(table(names, out, bool(arguments.mxnet)))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="a wheel of gluoncv, or the folder that holds the package")
    parser.add_argument("--models", nargs="+", default=["*"], help="patterns of names")
    parser.add_argument("--mxnet", help="the Python of an environment with the real MXNet 1.9.1")
    parser.add_argument("--out", type=Path, default=Path("gluoncv_models"), help="the folder of results")
    parser.add_argument(
        "--seconds",
        type=float,
        default=300,
        help="the processor time that a model may take; it may wait 20 times as long",
    )
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    parser.add_argument("--without-vnni", action="store_true", help="compute in 8 bits as processors without VNNI do")
    parser.add_argument("--again", action="store_true", help="also what has a result")
    parser.add_argument("--failed", action="store_true", help="also what has failed")
    parser.add_argument("--table", action="store_true", help="only print the table of the results that are there")
    for name in ("--serve", "--real", "--list"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.list:
        print(json.dumps(list(prepare(str(arguments.source), arguments.real)._models)))
        return 0
    if arguments.serve:
        serve(arguments)
        return 0
    return run_all(arguments)


if __name__ == "__main__":
    sys.exit(main())
