"""Numbers, histogram and picture of arrays: true for every dtype and shape, cheap, escaped, and never an error."""

import base64
import re
import struct
import zlib

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.engines.memory import copies
from hybrid_lab.gluon import nn
from hybrid_lab.insight import facets
from hybrid_lab.insight.heat_map import heat_map
from hybrid_lab.insight.summary import EXACT, SAMPLE, summarize
from hybrid_lab.ops.framework.dtypes import DTYPES, dtype_of
from tests.insight.test_compare import Tags

SHAPES = [(), (1,), (7,), (300,), (3, 4), (500, 3), (2, 3, 4), (64, 3, 7, 7), (3, 64, 1, 1), (2, 1, 3, 4, 5), (0, 3)]
HOSTILE = "<img src=x onerror=alert(1)>\u202e\0"


def decoded(png):
    """The palette's numbers of a PNG's pixels."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + data)
        chunks[kind] = data
        at += 12 + size
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colour) == (8, 3) and len(chunks[b"PLTE"]) == 3 * len(chunks[b"tRNS"])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any() and rows.max() < len(chunks[b"tRNS"])
    return rows[:, 1:]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_numbers_of_every_dtype_and_shape(shape, dtype):
    values = np.asarray(np.random.RandomState(0).uniform(-3, 3, shape))
    array = nd.array(np.abs(values) if dtype == "uint8" else values, dtype=dtype).reshape(shape)
    found, wanted = summarize(array), array.asnumpy().astype(np.float64)
    assert (found.shape, found.dtype, found.size) == (shape, dtype_of(dtype).name, wanted.size)
    assert found.finite and found.zeros == (wanted == 0).sum() and sum(found.bins) == wanted.size
    if wanted.size:
        numbers = [found.minimum, found.maximum, found.mean, found.std]
        assert numbers == pytest.approx([wanted.min(), wanted.max(), wanted.mean(), wanted.std()])
    page = Pictured(array._repr_html_())
    assert "script" not in page.seen and str(array.asnumpy()).split("\n")[0] in page.text
    assert repr(array) == f"\n{array.asnumpy()!s}\n<NDArray {'x'.join(map(str, shape))} @cpu(0)>"


class Pictured(Tags):
    """Tags of a page whose only addresses are pictures that it holds itself."""

    def handle_starttag(self, tag, attributes):
        if tag == "img":
            (source,) = [value for name, value in attributes if name == "src"]
            assert source.startswith("data:image/png;base64,")
            decoded(base64.b64decode(source.partition(",")[2]))
            self.seen.add(tag)
            return
        super().handle_starttag(tag, attributes)


@pytest.mark.parametrize(
    "values",
    [
        [np.nan, 1, 2],
        [np.nan],
        [np.inf, -np.inf, np.nan],
        [3e38, -3e38, 1],
        [1e-45, 0],
        [5, 5, 5, 5],
        [1.0001, 1.0002, 1.0003],
        [0, 0],
    ],
)
def test_odd_values(values):
    array = nd.array(values)
    finite = array.asnumpy()[np.isfinite(array.asnumpy())].astype(np.float64)
    found = summarize(array)
    assert (found.nans, found.infinities) == (np.isnan(values).sum(), np.isinf(values).sum())
    assert found.finite == (len(finite) == len(values)) and sum(found.bins) == len(finite)
    if len(finite):
        assert found.mean == pytest.approx(finite.mean()) and found.std == pytest.approx(finite.std(), abs=1e-9)
    else:
        assert found.mean is found.minimum is None
    page = Pictured(array._repr_html_())
    assert ("NaN" in page.text) == (found.nans > 0 and len(values) > 1)


def test_double_precision_does_not_overflow():
    found = summarize(nd.array([1.7e308, -1.7e308, 0], dtype="float64"))
    assert found.mean == 0 and found.std == pytest.approx(1.7e308 * np.sqrt(2 / 3)) and sum(found.bins) == 3
    assert heat_map(np.array([1.7e308, -1.7e308])) is not None


def test_large_arrays_are_sampled_and_never_copied(monkeypatch):
    size = EXACT + 12345
    array = nd.array(np.arange(size) % 1000)
    monkeypatch.setattr(type(array), "asnumpy", None)  # the way in which numbers are copied
    before = copies.snapshot()
    shown = facets(array)
    assert copies.snapshot() == before
    assert shown.summary.looked == SAMPLE and shown.summary.mean == pytest.approx(499.5, rel=0.02)
    assert f"{SAMPLE:,} of {size:,} values" in Pictured(array._repr_html_()).text


def test_a_sample_meets_every_column():
    """Rows of 1024 values: the columns beyond the first 64 are NaN."""
    values = np.zeros((EXACT // 1024 + 1, 1024), np.float32)
    values[:, 64:] = np.nan
    found = summarize(values)
    assert found.looked == SAMPLE and found.nans / found.looked == pytest.approx(960 / 1024, abs=0.01)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if np.prod(shape, dtype=int) > 1])
def test_the_picture_shows_the_values_that_it_names(shape):
    values = np.random.RandomState(1).normal(size=shape)
    picture = heat_map(values)
    part = eval(f"values{picture.part}", {"values": values})
    pixels = decoded(picture.png)
    assert part.size <= 192 * 128 and pixels.shape[0] <= 500 and pixels.shape[1] <= 800
    inside = pixels[pixels < 42]
    side = int(round((inside.size / part.size) ** 0.5))
    assert inside.size == part.size * side**2
    assert (inside > 20).sum() == pytest.approx(side**2 * (part > 0).sum(), abs=0.1 * inside.size)


def test_nan_has_its_own_colour_and_zero_none():
    pixels = decoded(heat_map(np.array([[np.nan, 0.0], [1.0, -1.0]])).png)
    assert {41, 20, 40, 0} <= set(pixels.reshape(-1).tolist())


def test_a_small_array_shows_its_values_open():
    page = nd.array([[1, 2], [3, 4]])._repr_html_()
    assert page.index("[[1. 2.]") < page.index("<details")
    assert "color" not in re.sub(r"color:inherit|currentColor", "", page)


def test_the_gradient_stands_below():
    x = nd.array([1, 2, 3])
    x.attach_grad()
    with autograd.record():
        y = (x * x).sum()
    y.backward()
    assert "gradient" in x._repr_html_() and "[2. 4. 6.]" in x._repr_html_()
    assert "gradient" not in y._repr_html_()


def test_a_parameter_has_values_and_a_gradient():
    net = nn.Dense(3)
    net.initialize()
    assert "no values yet" in net.weight._repr_html_() and "(3, 0)" in net.weight._repr_html_()
    net(nd.ones((2, 4)))
    page = Pictured(net.weight._repr_html_())
    assert net.weight.name in page.text and "3 x 4, float32" in page.text and "grad_req write" in page.text
    assert "gradient" in page.text
    norm = nn.BatchNorm(in_channels=2)
    norm.initialize()
    assert "gradient" not in norm.running_mean._repr_html_()
    assert repr(net.weight) == f"Parameter {net.weight.name} (shape=(3, 4), dtype=float32)"
    assert "Constant" in gluon.Constant("c", nd.ones((2,)))._repr_html_()


def test_names_are_escaped():
    parameter = gluon.Parameter(HOSTILE, shape=(2,))
    empty = parameter._repr_html_()
    parameter.initialize()
    for source in (empty, parameter._repr_html_()):
        page = Pictured(source)
        assert "<img src=x" in page.text and "\u202e" not in source and "\0" not in source


def test_it_never_raises(monkeypatch):
    array = nd.ones((2,))
    monkeypatch.setattr(mx.insight.summary, "summary_of", lambda *arguments: 1 / 0)
    assert array._repr_html_() is None


def test_the_data_are_plain():
    data = facets(nd.array([[1, np.nan], [0, 2]]), "w").data()
    assert data["title"] == "w" and data["type"] == "2 x 2, float32, cpu(0)" and not data["finite"]
    assert {"name": "NaN", "text": "1"} in data["facts"] and sum(data["bars"]) == 3
    assert data["picture"].startswith("data:image/png") and (data["low"], data["high"]) == ("0", "2")
