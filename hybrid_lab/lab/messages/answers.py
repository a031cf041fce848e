"""Messages about the four questions: what the banner above a model says, as far as the kernel knows it."""

from __future__ import annotations

from typing import Literal, TypedDict

from .common import Location


class NanAnswer(TypedDict):
    """NaN or an infinity that appeared in the user's own data.

    source : `watched`: an operator, found by `mx.watch_nan`; `logged`: a value of `mx.log`; `parameters`: parameters
        hold it
    path : of the Block, null if unknown; operator, part : of a watched operator, else ""; name : of the logged value,
        or of the first parameter with it; step : of the logged value
    count : number of parameters that hold NaN or infinities by now, beside a logged value too; 0 beside a watched
        operator, and of parameters that cannot be read while a cell runs
    text : all in words; location : the line of the operator
    """

    source: Literal["watched", "logged", "parameters"]
    path: str | None
    operator: str
    part: str
    name: str
    step: int | None
    count: int
    text: str
    location: Location | None


class ChangeAnswer(TypedDict):
    """What changed since the model was last saved or loaded.

    how : `saved`, `loaded`, or `unknown`: there is a file of the model's name that this kernel neither wrote nor read
    file_now : of a saved file `gone` if it was removed since, `other` if something else wrote it since; in all other
        cases `same`
    file : its name; path : absolute; reachable : whether it lies where `compare` finds it; when : seconds since 1970
    changed : parameters whose numbers differ since, or that came or went; uncompared : parameters among them that were
        written and not compared with the file, because a cell runs, they are many or on a GPU, or the file is gone
    unsure : parameters that other programs may have written to
    parameters : all; structure : whether Blocks or parameters came or went
    """

    how: Literal["saved", "loaded", "unknown"]
    file_now: Literal["same", "gone", "other"]
    file: str
    path: str
    reachable: bool
    when: float
    changed: int
    uncompared: int
    unsure: int
    parameters: int
    structure: bool


class AnswersReply(TypedDict):
    """What is known of a model without asking. `change` is null if the model was never saved.

    measurable : whether the time of its operators takes little to measure, on a CPU that no cell uses
    """

    model: str
    nan: NanAnswer | None
    change: ChangeAnswer | None
    measurable: bool
