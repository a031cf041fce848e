"""Messages about saving and loading models, and about the archives beside a notebook."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from .common import ModelRequest, WithClass
from .differences import Difference
from .models import AutosaveState, Model

AutosaveUnit = Literal["off", "step", "epoch"]
GraphSource = Literal["code", "file"]


class SavedGraph(TypedDict):
    """A graph in an archive."""

    path: str
    operators: int


class SaveReply(TypedDict):
    """The written archive. `kept`: the earlier save with the replaced content; `undo`: the token that undoes it."""

    path: str
    file: str
    host: str
    bytes: int
    graphs: list[SavedGraph]
    blocks: int
    parameters: int
    seconds: float
    note: str
    kept: NotRequired[str]
    undo: NotRequired[str]


class SaveRequest(ModelRequest):
    """Where to save a model. `overwrite`: the user agreed to replace the file, of the version `replaces`."""

    file: str
    overwrite: bool
    path: NotRequired[str]
    replaces: NotRequired[str]
    note: NotRequired[str]


class ReloadReply(TypedDict):
    """What a reload changed."""

    path: str
    file: str
    host: str
    summary: str
    graphs: int
    parameters: int
    diff: list[str]
    undo: str
    seconds: float
    difference: NotRequired[Difference | None]
    notes: NotRequired[list[str]]


class ReloadRequest(ModelRequest):
    """What to load into a model."""

    file: str
    graphs: GraphSource
    path: NotRequired[str]


class UndoReply(TypedDict):
    """What an undo put back."""

    summary: str


class UndoRequest(ModelRequest):
    """The token of the save or reload to undo."""

    undo: str


class OpenReply(TypedDict):
    """The model that was loaded without its code."""

    model: Model
    path: str
    summary: str


class OpenRequest(TypedDict):
    """The archive to load, and the variable to bind it to."""

    file: str
    name: str
    replace: bool


class Archive(WithClass):
    """An archive beside the notebook."""

    file: str
    bytes: int
    modified: float
    blocks: int
    graphs: int
    problem: str
    variable: NotRequired[str]


class ArchivesReply(TypedDict):
    """The archives in the kernel's folder, or in one below it, newest first; and the folders there."""

    folder: str
    host: str
    archives: list[Archive]
    folders: list[str]


class ArchivesRequest(TypedDict):
    """A folder below the kernel's; without it that one itself."""

    path: NotRequired[str]


class Target(Archive):
    """A file that a save would write. `version`: of the file that is there, "" if there is none."""

    path: str
    version: str


class TargetsReply(TypedDict):
    """What is there under these names."""

    targets: list[Target]


class TargetsRequest(TypedDict):
    """Names of files to write."""

    files: list[str]


class KeptSave(Archive):
    """A save with what was known of the training then. `loss`: the value logged last under the name `loss_name`."""

    step: int | None
    loss: float | None
    loss_name: str
    note: str


class HistoryReply(TypedDict):
    """Saves of a file. `current`: the file itself, null if there is none; `saves`: earlier ones, newest first."""

    folder: str
    current: KeptSave | None
    saves: list[KeptSave]


class HistoryRequest(ModelRequest):
    """The file of a model whose earlier saves are asked for, "" for the file that Save proposes."""

    file: str


class Histogram(TypedDict):
    """The distribution of an array's values. looked : number of values read, fewer than `size` for a sample

    zeros, nans, infinities : their numbers among the values read; minimum, maximum, mean, std : of the finite values,
    or null
    bins : how many finite values lie in each of equal parts of the range
    """

    size: int
    looked: int
    zeros: int
    nans: int
    infinities: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    std: float | None
    bins: list[int]


class SavedValues(TypedDict):
    """A parameter in one save. recorded : whether the archive has histograms; else its weights were read

    values, gradient : null if the save has none; problem : the reason why they cannot be read, or ""
    """

    file: str
    modified: float
    step: int | None
    loss: float | None
    loss_name: str
    note: str
    problem: str
    recorded: bool
    values: Histogram | None
    gradient: Histogram | None


class HistogramsReply(TypedDict):
    """A parameter over the saves of a file, oldest first, and now, in the live model.

    parameters : of the Block and of all Blocks below it, by their paths from there; name : of the parameter shown
    """

    parameters: list[str]
    name: str
    saves: list[SavedValues]
    live: Histogram | None
    live_gradient: Histogram | None


class HistogramsRequest(ModelRequest):
    """The file of a model as in `history`, a Block of it, and a parameter by its path from there, "" for the first."""

    file: str
    path: str
    name: str


class RestoreReply(TypedDict):
    """The file with the content of an earlier save. `undo`: the token that undoes it."""

    path: str
    file: str
    host: str
    summary: str
    undo: str


class RestoreRequest(ModelRequest):
    """The earlier save to put back as the model's file."""

    file: str


class NoteReply(TypedDict):
    """The note as it was kept."""

    note: str


class NoteRequest(ModelRequest):
    """A line about a save, which may be an earlier one; "" removes it."""

    file: str
    note: str


class AutosaveReply(TypedDict):
    """How a model is saved by itself; null: it is not."""

    autosave: AutosaveState | None


class AutosaveRequest(ModelRequest):
    """`unit` "off" ends it; "step": after this number of steps; "epoch": each time that a DataLoader ends after a
    step.
    """

    file: str
    unit: AutosaveUnit
    every: int
    overwrite: NotRequired[bool]
