"""Model files as documents: what a file holds, as data of the protocol. Needs no kernel and computes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import ArchiveError, HybridLabError
from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.formats.archive import Container, FileSide, compare_sides, inspect, layout, structure
from hybrid_lab.formats.arrays import read_arrays
from hybrid_lab.formats.safetensors import SafetensorsFile, digest_of, tag_of
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.symbol_block import SymbolBlock, data_inputs
from hybrid_lab.insight.difference import ModelDifference, diff_tensors
from hybrid_lab.lab.documents.onnx import OnnxFile
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.kernel.session import Session
from hybrid_lab.lab.messages.common import EmptyRequest
from hybrid_lab.lab.messages.differences import ComparedValuesReply
from hybrid_lab.lab.messages.documents import (
    ContentsReply,
    ContentsRequest,
    DifferenceLine,
    DifferenceReply,
    DifferenceRequest,
    DifferingValuesRequest,
    DocumentKind,
    DocumentReply,
    FilePart,
)
from hybrid_lab.lab.messages.requests import DOCUMENT_REQUESTS, REQUESTS
from hybrid_lab.lab.picture.compared import compared_graphs, compared_values
from hybrid_lab.lab.saving.actions import host
from hybrid_lab.lab.schema import check_fields

ABOUT_MODEL = ("models", "tree", "graph", "findings", "explain")
"""The requests about the model in a file. They are answered as a kernel answers them."""
BUDGET = 2.0
"""Seconds of reading after which a reply of `contents` ends."""
LINES = 500
"""Differences that are listed; the rest is counted."""

Part = Callable[[], FilePart]


class Document:
    """One model file, open. Each request of `DOCUMENT_REQUESTS` and of ABOUT_MODEL is answered.

    path : absolute; the file must not change while it is open
    """

    def __init__(self, path: str):
        self.path = Path(path)
        self.kind, self._reader = _reader(self.path)

    def answer(self, kind: str, body: dict[str, Any]) -> Mapping[str, object]:
        """The reply's body. Raises RequestError, `corrupt` for a damaged file."""
        try:
            if kind in ABOUT_MODEL and isinstance(self._reader, _Onnx):
                _checked(REQUESTS, kind, body)
                return self._reader.file.answer(kind)
            if kind in ABOUT_MODEL:
                return self._session.answer(kind, _checked(REQUESTS, kind, body), lambda *_: None)
            body = _checked(DOCUMENT_REQUESTS, kind, body)
            answer: Mapping[str, object] = getattr(self, f"_on_{kind}")(body)
            return answer
        except RequestError:
            raise
        except ArchiveError as error:
            raise RequestError("corrupt", str(error)) from error
        except HybridLabError as error:
            raise RequestError("failed", str(error)) from error
        except OSError as error:
            raise RequestError("failed", f"{error.strerror or error}: {self.path.name}") from error
        except RecursionError as error:
            raise RequestError("corrupt", f"{self.path.name} is nested too deep") from error

    @cached_property
    def _session(self) -> Session:
        """Answers requests about the model. The model is built at the first of them."""
        net = self._reader.model()
        stem = self.path.name.removesuffix("-symbol.json").split(".")[0]
        name = stem if stem.isidentifier() and not stem.startswith("_") else "net"
        return Session(lambda: {name: net})

    def _on_document(self, body: EmptyRequest) -> DocumentReply:
        state = self.path.stat()
        reply: DocumentReply = {
            "file": self.path.name,
            "host": host(),
            "kind": self.kind,
            "title": "",
            "bytes": state.st_size,
            "modified": state.st_mtime,
            "facts": [],
            "parts": 0,
            "has_model": self._reader.has_model,
            "code": self._reader.code,
            "beside": self._reader.beside,
            "problem": "",
            "next": "",
        }
        try:
            reply["title"], facts = self._reader.describe()
            reply["facts"] = [{"name": name, "text": text} for name, text in facts if text]
            reply["parts"] = len(self._parts)
        except (HybridLabError, OSError, RecursionError) as error:
            reply["problem"] = str(error) or type(error).__name__
            reply["has_model"] = False
            if isinstance(error, RequestError):
                reply["next"] = error.next
            elif self.kind != "unknown":
                reply["next"] = "Nothing of a damaged file is used: take an earlier copy, or save the model again."
        return reply

    @cached_property
    def _parts(self) -> list[Part]:
        return list(self._reader.parts())

    def _on_contents(self, body: ContentsRequest) -> ContentsReply:
        start = max(body["start"], 0)
        until, parts = time.monotonic() + BUDGET, []
        for part in self._parts[start:]:
            parts.append(part())
            if time.monotonic() > until:
                break
        following = start + len(parts)
        return {"parts": parts, "next": following if parts and following < len(self._parts) else -1}

    def _on_difference(self, body: DifferenceRequest) -> DifferenceReply:
        other = Document(body["other"])
        graphs = None
        if (self.kind, other.kind) == ("archive", "archive"):
            compared = compare_sides(FileSide(Container.open(self.path)), FileSide(Container.open(other.path)))
            rows, summary = list(_lines(compared.difference)), compared.difference.summary
            graphs = compared_graphs(compared, structure(self.path), structure(other.path))
        else:
            rows = list(_tensor_lines(self._reader.tensors(), other._reader.tensors()))
            summary = f"{count(len(rows), 'tensor')} changed" if rows else "no differences"
        name = other.path.name
        return {"other": name, "summary": summary, "count": len(rows), "lines": rows[:LINES], "graphs": graphs}

    def _on_differing_values(self, body: DifferingValuesRequest) -> ComparedValuesReply:
        sides = [FileSide(Container.open(path)) for path in (self.path, Path(body["other"]))]
        return compared_values(sides[0], sides[1], body["first"], body["second"])


def _checked(requests: dict[str, tuple[type, type]], kind: str, body: dict[str, Any]) -> dict[str, Any]:
    if kind not in requests:
        raise RequestError("bad-request", f"{kind} is not a request about a file")
    return check_fields(requests[kind][0], body)


# -- kinds of files ----------------------------------------------------------------------------------------------------


class _Unknown:
    """A file of none of the kinds; the base of the others.

    code, beside : see `DocumentReply`
    """

    has_model = False
    code = ""
    beside = ""

    def __init__(self, path: Path):
        self.path = path

    def describe(self) -> tuple[str, list[tuple[str, str]]]:
        """What the file is in a few words, and the facts about it: (name, text)."""
        raise ArchiveError(
            f"{self.path.name} is no model file: .hlab, -symbol.json, .params, .safetensors and .onnx are"
        )

    def parts(self) -> Iterator[Part]:
        """A function for each member and tensor, which reads it."""
        yield from ()

    def tensors(self) -> dict[str, Callable[[], np.ndarray]]:
        """Each tensor by name, read when it is called."""
        return {}

    def model(self) -> Block:
        """The model in the file, with shapes and without values."""
        raise RequestError("failed", f"{self.path.name} holds tensors and no model")


class _ArchiveContents(_Unknown):
    """An archive. Weights are read one at a time, so that the size of the file does not matter."""

    has_model = True
    code = "mx.gluon.load(FILE)"

    @cached_property
    def container(self) -> Container:
        return Container.open(self.path)

    def describe(self) -> tuple[str, list[tuple[str, str]]]:
        contents = inspect(self.path)
        hybrid = f"{count(contents['blocks'], 'Block')}, {contents['hybrid']} of them hybrid"
        without = contents["without_graph"]
        facts = [
            ("Class", contents["class"]),
            ("Blocks", hybrid),
            ("Graphs", str(contents["graphs"])),
            ("Without a graph", ", ".join(path or "the top" for path in without[:20]) + " ..." * (len(without) > 20)),
            ("Parameters", str(contents["parameters"])),
            ("Also inside", " and ".join(_extras(contents))),
            ("Written by", contents["writer"]),
        ]
        return f"archive, schema {contents['schema']}", facts

    def parts(self) -> Iterator[Part]:
        container = self.container
        # What people look for first comes first: weights, then graphs and the rest, then examples.
        for name in sorted(container.names, key=lambda name: (name != layout.WEIGHTS, name == layout.EXAMPLE_ARRAYS)):
            if container.holds_tensors(name):
                digests = container.manifest["members"][name]["tensors"]
                for tensor in digests:
                    yield lambda name=name, tensor=tensor: self._tensor(name, tensor)  # type: ignore[misc]
            else:
                yield lambda name=name: self._member(name)  # type: ignore[misc]

    def _member(self, name: str) -> FilePart:
        record = self.container.manifest["members"][name]
        part = _part(name, "member", int(record["size"]), str(record["sha256"]))
        return _attempt(part, lambda: self.container.read(name))

    def _tensor(self, member: str, name: str) -> FilePart:
        record = self.container.manifest["members"][member]
        shown = name if member == layout.WEIGHTS else f"{member}:{name}"
        part = _part(shown, "tensor", 0, str(record["tensors"][name]))

        def read() -> np.ndarray:
            file = self._files[member] if member in self._files else self.container.tensors(member)
            self._files[member] = file
            return file[name]

        return _attempt(part, read)

    @cached_property
    def _files(self) -> dict[str, SafetensorsFile]:
        return {}

    def tensors(self) -> dict[str, Callable[[], np.ndarray]]:
        file = self.container.tensors(layout.WEIGHTS)
        return {name: lambda name=name: file[name] for name in file if ":" not in name}  # type: ignore[misc]

    def model(self) -> Block:
        return structure(self.path)


def _extras(contents: dict[str, Any]) -> Iterator[str]:
    if contents["trainer"]:
        yield "the state of the Trainer"
    if contents["aux"]:
        yield "your own values"


class _Arrays(_Unknown):
    """A `.params` file, whose arrays are read at once, as the format has no list of them."""

    code = "mx.nd.load(FILE)"

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        found = read_arrays(self.path)
        named = found.items() if isinstance(found, dict) else ((str(index), item) for index, item in enumerate(found))
        return {name: array for name, array in named if array is not None}

    def describe(self) -> tuple[str, list[tuple[str, str]]]:
        return "arrays in MXNet's format", [("Arrays", str(len(self.arrays)))]

    def tensors(self) -> dict[str, Callable[[], np.ndarray]]:
        return {name: lambda array=array: array for name, array in self.arrays.items()}  # type: ignore[misc]

    def parts(self) -> Iterator[Part]:
        for name, read in self.tensors().items():
            yield lambda name=name, read=read: _attempt(_part(name, "tensor", 0), read)  # type: ignore[misc]


class _Safetensors(_Arrays):
    """A safetensors file: each tensor is read when it is asked for."""

    @cached_property
    def file(self) -> SafetensorsFile:
        return SafetensorsFile.open(self.path)

    def describe(self) -> tuple[str, list[tuple[str, str]]]:
        facts = [("Tensors", str(len(self.file)))]
        return "safetensors", facts + [(key[:100], text[:500]) for key, text in self.file.metadata.items()][:50]

    def tensors(self) -> dict[str, Callable[[], np.ndarray]]:
        return {name: lambda name=name: self.file[name] for name in self.file}  # type: ignore[misc]


class _SymbolFile(_Unknown):
    """MXNet's `net-symbol.json`, with the newest `net-0000.params` beside it."""

    has_model = True

    @cached_property
    def params(self) -> _Arrays | None:
        stem = self.path.name.removesuffix("-symbol.json")
        folder = self.path.parent
        files = [item for item in folder.iterdir() if _is_params_of(stem, item.name)]
        files = sorted(item for item in files if item.is_file() and not item.is_symlink())
        return _Arrays(files[-1]) if files else None

    @property
    def code(self) -> str:  # type: ignore[override]
        try:
            inputs = self._inputs
        except (HybridLabError, OSError):
            return ""
        return f"mx.gluon.SymbolBlock.imports(FILE, {inputs!r}{', BESIDE' if self.beside else ''})"

    @property
    def beside(self) -> str:  # type: ignore[override]
        return "" if self.params is None else self.params.path.name

    @cached_property
    def _inputs(self) -> list[str]:
        from hybrid_lab import symbol

        saved = () if self.params is None else tuple(self.params.arrays)
        return data_inputs(symbol.load(str(self.path)), saved)

    def describe(self) -> tuple[str, list[tuple[str, str]]]:
        beside = "none beside it" if self.params is None else self.params.path.name
        return "graph in MXNet's format", [("Inputs", ", ".join(self._inputs)), ("Parameters", beside)]

    def parts(self) -> Iterator[Part]:
        if self.params is not None:
            yield from self.params.parts()

    def tensors(self) -> dict[str, Callable[[], np.ndarray]]:
        return {} if self.params is None else self.params.tensors()

    def model(self) -> Block:
        return SymbolBlock.imports(
            str(self.path),
            self._inputs,
            None if self.params is None else str(self.params.path),
            allow_missing=True,
            ignore_extra=True,
        )


class _Onnx(_Unknown):
    """An ONNX file, of which the structure alone is shown."""

    has_model = True

    @cached_property
    def file(self) -> OnnxFile:
        return OnnxFile(self.path)

    def describe(self) -> tuple[str, list[tuple[str, str]]]:
        return "ONNX, structure only", self.file.facts()


def _is_params_of(stem: str, name: str) -> bool:
    """Whether a file holds the parameters of `stem`-symbol.json: `stem.params` or `stem-0012.params`."""
    number = name.removeprefix(f"{stem}-").removesuffix(".params")
    return name == f"{stem}.params" or (name == f"{stem}-{number}.params" and number.isdigit() and len(number) == 4)


_READERS: dict[str, tuple[DocumentKind, type[_Unknown]]] = {
    ".hlab": ("archive", _ArchiveContents),
    "-symbol.json": ("symbol", _SymbolFile),
    ".params": ("arrays", _Arrays),
    ".safetensors": ("arrays", _Safetensors),
    ".onnx": ("onnx", _Onnx),
}
"""End of a file's name -> its kind and reader."""


def _reader(path: Path) -> tuple[DocumentKind, _Unknown]:
    for end, (kind, reader) in _READERS.items():
        if path.name.lower().endswith(end):
            return kind, reader(path)
    return "unknown", _Unknown(path)


# -- parts -------------------------------------------------------------------------------------------------------------


def _part(name: str, kind: str, size: int, digest: str = "") -> FilePart:
    return {
        "name": name,
        "kind": kind,  # type: ignore[typeddict-item]
        "shape": None,
        "dtype": "",
        "bytes": size,
        "state": "verified" if digest else "read",
        "digest": digest,
        "minimum": None,
        "maximum": None,
        "mean": None,
        "nan": 0,
        "inf": 0,
        "problem": "",
    }


def _attempt(part: FilePart, read: Callable[[], np.ndarray | bytes]) -> FilePart:
    """The part after reading it; a part that cannot be read has the reason, and the other parts are read all the
    same.
    """
    try:
        content = read()
        if isinstance(content, np.ndarray):
            part |= {"shape": list(content.shape), "dtype": content.dtype.name, "bytes": content.nbytes}
            part |= figures(content)  # type: ignore[typeddict-item]
            if not part["digest"] and tag_of(content.dtype) is not None:
                part["digest"] = digest_of(content)
    except (HybridLabError, OSError) as error:
        part |= {"state": "damaged", "problem": str(error)}
    return part


def figures(array: np.ndarray) -> dict[str, float | int | None]:
    """minimum, maximum and mean of the finite elements, None if there are none, and the numbers of NaN and Inf."""
    values, nan, inf = array.reshape(-1), 0, 0
    if values.dtype.kind not in "biuf":  # bfloat16
        values = values.astype(np.float32)
    if values.dtype.kind == "f":
        finite = np.isfinite(values)
        if not finite.all():
            nan = int(np.isnan(values).sum())
            inf = int(values.size - finite.sum()) - nan
            values = values[finite]
    if not values.size:
        return {"minimum": None, "maximum": None, "mean": None, "nan": nan, "inf": inf}
    with np.errstate(all="ignore"):
        mean = float(values.mean(dtype=np.float64))
    return {"minimum": float(values.min()), "maximum": float(values.max()), "mean": mean, "nan": nan, "inf": inf}


# -- differences -------------------------------------------------------------------------------------------------------


def _lines(found: ModelDifference) -> Iterator[DifferenceLine]:
    """The differences of two archives, Block by Block."""
    for block in found.blocks:
        name = block.path or "the top"
        if block.kind != "same":
            yield {"change": block.kind, "what": "Block", "name": name, "text": block.class_name}
        for text in block.all_changes:
            yield {"change": "changed", "what": "Block", "name": name, "text": text}
        for row in block.operators:
            if row.kind != "same":
                text = "; ".join(row.changes) or row.second or row.first
                yield {"change": row.kind, "what": "operator", "name": name, "text": text}
        for tensor in block.tensors:
            yield {"change": tensor.kind, "what": "tensor", "name": tensor.name, "text": tensor.text}
    for text in found.others:
        yield {"change": "changed", "what": "file", "name": "", "text": text}


def _tensor_lines(
    first: Mapping[str, Callable[[], np.ndarray]], second: Mapping[str, Callable[[], np.ndarray]]
) -> Iterator[DifferenceLine]:
    """The differences of two files' tensors by name."""
    for name in dict.fromkeys([*first, *second]):
        one, two = (None if name not in tensors else tensors[name]() for tensors in (first, second))
        tensor = diff_tensors(name, one, two)
        if tensor is not None:
            yield {"change": tensor.kind, "what": "tensor", "name": name, "text": tensor.text}
