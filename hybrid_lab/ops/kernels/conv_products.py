"""A convolution and its gradients as sums of products, for kernels; a transposed convolution is one of its gradients.

Factors are read at the pixels that a window covers: nothing is gathered beforehand. A group is one product of a batch.
"""

from __future__ import annotations

from hybrid_lab.ops.framework.kernel import Contraction
from hybrid_lab.ops.framework.protocols import Elements, Index, Place
from hybrid_lab.ops.kernels.convolution import Geometry


def convolution(
    geometry: Geometry, data: tuple[int, ...], output: tuple[int, ...], number: int = 0, weight: int = 1,
    bias: int | None = None,
) -> Contraction:  # fmt: skip
    """Rows are filters, columns are images and pixels; summed are channels and the kernel's places.

    data, output : whole shapes; number, weight, bias : which inputs are the data, the weight and the bias
    """
    groups = geometry.groups
    channels, filters = data[1] // groups, output[1] // groups
    return Contraction(
        (groups,), (filters,), (data[0], *output[2:]), (channels, *geometry.kernel),
        left=lambda elements, g, f, k: elements.read(weight, (_channel(g, f, filters), *k)),
        right=lambda elements, g, k, n: window(
            elements, number, geometry, (n[0], _channel(g, k[:1], channels)), n[1:], k[1:]
        ),
        place=lambda g, f, n: (n[0], _channel(g, f, filters), *n[1:]),
        bias=None if bias is None else lambda elements, g, f, n: elements.read(bias, (_channel(g, f, filters),)),
    )  # fmt: skip


def data_gradient(
    geometry: Geometry, data: tuple[int, ...], output: tuple[int, ...], number: int = 0, weight: int = 2,
    bias: int | None = None,
) -> Contraction:  # fmt: skip
    """Rows are channels, columns are images and pixels of the data; summed are filters and the kernel's places.

    data, output : whole shapes of the convolution; number : which input has the shape of its output
    """
    groups = geometry.groups
    channels, filters = data[1] // groups, output[1] // groups

    def covered(elements: Elements, g: Place, k: Place, n: Place) -> str:
        """The output whose window has this pixel at this place of the kernel, if there is one."""
        place, guards = [n[0], _channel(g, k[:1], filters)], []
        for axis, size in enumerate(output[2:]):
            shifted = n[1 + axis] + k[1 + axis] * -geometry.dilate[axis] + geometry.pad[axis]
            index, guard = elements.divided(shifted, geometry.stride[axis], size)
            place.append(index)
            guards += [guard] * bool(guard)
        return elements.read(number, place, " & ".join(guards))

    return Contraction(
        (groups,), (channels,), (data[0], *data[2:]), (filters, *geometry.kernel),
        left=lambda elements, g, c, k: elements.read(weight, (_channel(g, k[:1], filters), *c, *k[1:])),
        right=covered,
        place=lambda g, c, n: (n[0], _channel(g, c, channels), *n[1:]),
        bias=None if bias is None else lambda elements, g, c, n: elements.read(bias, (_channel(g, c, channels),)),
    )  # fmt: skip


def weight_gradient(
    geometry: Geometry, data: tuple[int, ...], output: tuple[int, ...], dy: int = 0, number: int = 1
) -> Contraction:
    """Rows are filters, columns are channels and the kernel's places; summed are images and pixels of the output.

    data, output : whole shapes; dy, number : which inputs have the shapes of the output and of the data
    """
    groups = geometry.groups
    channels, filters = data[1] // groups, output[1] // groups
    return Contraction(
        (groups,), (filters,), (channels, *geometry.kernel), (data[0], *output[2:]),
        left=lambda elements, g, f, n: elements.read(dy, (n[0], _channel(g, f, filters), *n[1:])),
        right=lambda elements, g, n, k: window(
            elements, number, geometry, (n[0], _channel(g, k[:1], channels)), n[1:], k[1:]
        ),
        place=lambda g, f, k: (_channel(g, f, filters), *k),
    )  # fmt: skip


def window(elements: Elements, number: int, geometry: Geometry, front: Place, output: Place, kernel: Place) -> str:
    """The pixel of input `number` that an output's window has at a place of the kernel; 0 in the padding.

    front : image and channel; output, kernel : an index per spatial axis
    """
    shape, place, guards = elements.shape(number), list(front), []
    for axis, (y, k) in enumerate(zip(output, kernel, strict=True)):
        index = y * geometry.stride[axis] + k * geometry.dilate[axis] + -geometry.pad[axis]
        guard = elements.guard(index, shape[2 + axis])
        place.append(index)
        guards += [guard] * bool(guard)
    return elements.read(number, place, " & ".join(guards))


def _channel(group: Place, inner: Place, size: int) -> Index:
    """The number of a channel among the channels of all groups."""
    return group[0] * size + inner[0]
