"""Loading arrays into live parameters: everything is checked first, then everything is applied, or nothing is."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath

import numpy as np

from hybrid_lab.diagnostics import ArchiveError, LoadMismatchError
from hybrid_lab.diagnostics.formatting import check_choice, count
from hybrid_lab.gluon.name_maps import NameMap, name_map
from hybrid_lab.gluon.parameter import Parameter, _contexts, merged_shape
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import Context

Targets = Mapping[str, Sequence[tuple[str, Parameter]]]
"""For each name a file may use: the names it stands for in the model, with their parameters."""


def plain_name(name: str) -> str:
    """The name of a parameter without the `arg:` or `aux:` that exported files put before it."""
    return name[4:] if name[:4] in ("arg:", "aux:") else name


def renamed(
    arrays: Mapping[str, np.ndarray], paths: Mapping[str, str] | str, source: str | PathLike[str]
) -> dict[str, np.ndarray]:
    """The arrays by new names: of a map of this package (see `name_maps`), or of a dict of beginnings of names.

    Raises LoadMismatchError if two arrays would get one name, SettingError for an unknown map.
    """
    names = name_map(paths) if isinstance(paths, str) else NameMap(paths)
    found: dict[str, np.ndarray] = {}
    twice = []
    for full_name, array in arrays.items():
        name = names.stripped(full_name)
        if names.leaves_out(name):
            continue
        path = names.path(name)
        plain = plain_name(name)
        if path == name and names.path(plain) != plain:
            path = names.path(plain)
        if path in found:
            twice.append(f"map: two arrays of the file become {path}")
        found[path] = array.T if names.transposes(name) else array
    if twice:
        raise LoadMismatchError("the map gives a name twice; nothing was loaded", twice, path=fspath(source))
    return found


def read_arrays(filename: str | PathLike[str]) -> dict[str, np.ndarray]:
    """The named arrays of a `.params` or a safetensors file. Raises ArchiveError for an unnamed list of arrays."""
    from hybrid_lab.formats import arrays as files

    arrays = files.read_arrays(filename)
    if isinstance(arrays, list):
        if not arrays:
            return {}
        raise ArchiveError(f"the file holds {len(arrays)} arrays without names; read it with nd.load", path=filename)
    return {name: array for name, array in arrays.items() if array is not None}


def load_parameters(
    targets: Targets,
    arrays: Mapping[str, np.ndarray],
    source: str | PathLike[str] | None = None,
    ctx: Context | Sequence[Context] | None = None,
    allow_missing: bool = False,
    ignore_extra: bool = False,
    cast_dtype: bool = False,
    dtype_source: str = "current",
    remedies: Sequence[str] = ("missing", "extra", "dtype"),
    restored: str = "",
) -> None:
    """Put `arrays` into the parameters that `targets` names.

    A parameter with several names (shared weights) is found if the file has any of the names. cast_dtype : convert
    values of another dtype to the parameter's ('current'), or the parameter to the file's ('saved').
    remedies : kinds of differences that the caller has an argument for, which the error proposes
    restored : the prefix that was put before the names of the file
    Raises LoadMismatchError listing every missing and extra name and every shape, dtype or context that does not fit;
    the parameters are untouched then.
    """
    check_choice("dtype_source", dtype_source, ("current", "saved"))
    differences: list[str] = []
    chosen: dict[int, tuple[Parameter, np.ndarray]] = {}
    names_of: dict[int, list[str]] = {}
    known: dict[int, Parameter] = {}
    for name, entries in targets.items():
        for _, parameter in entries:
            known[id(parameter)] = parameter
            names_of.setdefault(id(parameter), []).append(name)
    where = "the dictionary" if source is None else "the file"
    unused = [name for name in arrays if name not in targets]
    for name, array in arrays.items():
        for model_name, parameter in targets.get(name, ()):
            problem = _mismatch(model_name, parameter, array, ctx, cast_dtype, where)
            if problem:
                differences.append(problem)
            else:
                chosen[id(parameter)] = (parameter, array)
    missing = [each for each in known if not any(name in arrays for name in names_of[each])]
    if not allow_missing:
        for each in missing:
            name = names_of[each][0]
            size = "of unknown shape" if known[each].shape is None else known[each].shape
            differences.append(f"missing: {name} {size}{_nearest(name, unused, f'{where} has')}")
    if not ignore_extra:
        for name in unused:
            differences.append(f"extra: {name} {arrays[name].shape}{_nearest(name, targets, 'the model has')}")
    if differences:
        theirs = [name.removeprefix(restored) for name in unused]
        hint = _names_differ(theirs, [names_of[each] for each in missing], where)
        raise _does_not_fit(differences, source, where, remedies, hint)
    for parameter, array in chosen.values():
        if np.dtype(parameter.dtype) != array.dtype:
            if dtype_source == "saved":
                parameter.cast(array.dtype)
            else:
                array = array.astype(parameter.dtype)
        parameter._load_init(NDArray.wrap(np.asarray(array, order="C")), ctx)


#: The first word of a difference -> the remedy.
_REMEDIES = {
    "missing": "allow_missing=True keeps what is missing as it is",
    "extra": "ignore_extra=True skips what is extra",
    "dtype": "cast_dtype=True converts",
}


def _does_not_fit(
    differences: list[str], source: str | PathLike[str] | None, where: str, remedies: Sequence[str], hint: str
) -> LoadMismatchError:
    hints = [_REMEDIES[kind] for kind in remedies if any(each.startswith(kind) for each in differences)]
    note = f". {hint}" if hint else f" ({'; '.join(hints)})" if hints else ""
    message = f"{where} does not fit the model: {count(len(differences), 'difference')}; nothing was loaded{note}"
    return LoadMismatchError(message, differences, path=None if source is None else fspath(source))


def _names_differ(theirs: Sequence[str], ours: Sequence[Sequence[str]], where: str) -> str:
    """Advice if the arrays are the model's arrays by other names; "" otherwise.

    ours : all names that each parameter without an array may have
    """
    if not theirs or len(theirs) != len(ours):
        return ""
    for place in range(max(map(len, ours))):
        names = [each[min(place, len(each) - 1)] for each in ours]
        prefixes = prefixes_of(theirs, names)
        if prefixes is not None:
            other, mine = prefixes
            calls = [f"net.load_parameters(file, map={{{other.rstrip('.')!r}: {mine.rstrip('.')!r}}})"]
            if not other and mine.endswith("_"):
                calls.append(f"net.collect_params().load(file, restore_prefix={mine!r})")
            return (
                f"The names differ only in the prefix, {other!r} in {where} and {mine!r} in the model; use "
                f"{' or '.join(calls)}"
            )
        if sorted(map(_without_numbers, theirs)) == sorted(map(_without_numbers, names)):
            return (
                "The names differ only in their numbers, which grow with each Block that a process makes: give the "
                "outermost Block a prefix, or save by paths with net.save_parameters(file)"
            )
    if all("." in name for name in theirs) and not any("." in name for each in ours for name in each):
        return f"The names in {where} are paths, as net.save_parameters writes them; use net.load_parameters(file)"
    return ""


def prefixes_of(theirs: Sequence[str], ours: Sequence[str]) -> tuple[str, str] | None:
    """The prefixes in which two lists of names differ, if they differ in nothing else: ("net0_", "net1_")."""
    other, mine = _common_prefix(theirs), _common_prefix(ours)
    if sorted(name[len(other) :] for name in theirs) != sorted(name[len(mine) :] for name in ours):
        return None
    parts, own = re.findall(_PART, other), re.findall(_PART, mine)
    while parts and own and parts[-1] == own[-1]:
        parts.pop()
        own.pop()
    return None if parts == own else ("".join(parts), "".join(own))


_PART = re.compile(r"[^._]*[._]")
"""A part of a prefix."""


def _common_prefix(names: Sequence[str]) -> str:
    """The beginning that all names share, up to the last dot or underscore in it."""
    return "".join(re.findall(_PART, os.path.commonprefix(list(names))))


def _without_numbers(name: str) -> str:
    return re.sub(r"\d+", "0", name)


def _mismatch(
    name: str,
    parameter: Parameter,
    array: np.ndarray,
    ctx: Context | Sequence[Context] | None,
    cast_dtype: bool,
    holder: str,
) -> str | None:
    """What keeps `array` from becoming the parameter's value, or None."""
    if merged_shape(parameter.partial_shape, array.shape) is None:
        return f"shape: {name} is {parameter.shape} in the model, {array.shape} in {holder}"
    if np.dtype(parameter.dtype) != array.dtype and not cast_dtype:
        return f"dtype: {name} is {np.dtype(parameter.dtype).name} in the model, {array.dtype.name} in {holder}"
    if ctx is not None and (parameter._data is not None or parameter._deferred_init is not None):
        where = parameter.list_ctx()
        if set(_contexts(ctx)) != set(where):
            return f"context: {name} is on {', '.join(map(str, where))}; reset_ctx() moves it"
    return None


def _nearest(name: str, others: Iterable[str], says: str) -> str:
    near = difflib.get_close_matches(name, list(others), n=1, cutoff=0.7)
    return f"; {says} {near[0]}" if near else ""
