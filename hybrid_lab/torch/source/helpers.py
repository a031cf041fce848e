"""Functions that a module's source contains where it needs them: MXNet's operators that torch has no function for.

Each function needs only torch and the functions that it calls.
"""

from __future__ import annotations

import inspect
import re
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

Tensor: TypeAlias = Any


def source_of(name: str) -> str:
    """The text of a function of this file, without what only type checkers read."""
    text = inspect.getsource(getattr(sys.modules[__name__], name)).rstrip()
    return re.sub(r" -> Tensor(?=:)|: Tensor( = )?", lambda found: "=" if found[1] else "", text)


def needed_by(name: str) -> list[str]:
    """The functions of this file that the named function calls."""
    return {"multibox_detection": ["overlaps", "uncovered"], "box_nms": ["overlaps", "uncovered"],
            "proposal": ["overlaps", "uncovered"]}.get(name, [])  # fmt: skip


def smooth_l1(x: Tensor, scalar: Tensor) -> Tensor:
    """0.5 (scalar x)^2 near zero, |x| - 0.5 / scalar^2 elsewhere."""
    near = x.abs() < 1 / scalar**2
    return torch.where(near, 0.5 * (scalar * x) ** 2, x.abs() - 0.5 / scalar**2)


def mod(x: Tensor, y: Tensor) -> Tensor:
    """The remainder with the sign of y; 0 if y is 0."""
    return torch.where(y == 0, 0, x % torch.where(y == 0, 1, y))


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """x, multiplied with the slope if it is negative."""
    if slope.dim() == 1 and x.dim() > 1:
        slope = slope.unsqueeze(0)
    slope = slope.reshape(*slope.shape, *[1] * (x.dim() - slope.dim()))
    return torch.where(x > 0, x, slope * x)


def with_states(result: Tensor) -> Tensor:
    """An LSTM's output, state and cell state."""
    output, (state, cell) = result
    return output, state, cell


def take(data: Tensor, index: Tensor, axis: Tensor, wrap: Tensor = False) -> Tensor:
    """Rows of data along an axis; indices outside are clipped, or wrap around."""
    size = data.shape[axis]
    index = index.long() % size if wrap else index.long().clamp(0, size - 1)
    axis = axis % data.dim()
    return data.index_select(axis, index.flatten()).reshape(data.shape[:axis] + index.shape + data.shape[axis + 1 :])


def pick(data: Tensor, index: Tensor, axis: Tensor, wrap: Tensor = False, keepdim: Tensor = False) -> Tensor:
    """One element along an axis for each index."""
    size = data.shape[axis]
    index = index.long() % size if wrap else index.long().clamp(0, size - 1)
    if index.dim() < data.dim():
        index = index.unsqueeze(axis)
    found = data.gather(axis, index)
    return found if keepdim else found.squeeze(axis)


def one_hot(index: Tensor, depth: Tensor, on: Tensor = 1.0, off: Tensor = 0.0) -> Tensor:
    """A new last axis with `on` at the index."""
    return torch.where(index.unsqueeze(-1).long() == torch.arange(depth, device=index.device), on, off)


def depth_to_space(x: Tensor, block: Tensor) -> Tensor:
    """Blocks of channels as pixels."""
    n, c, h, w = x.shape
    x = x.reshape(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return x.reshape(n, c // block**2, h * block, w * block)


def space_to_depth(x: Tensor, block: Tensor) -> Tensor:
    """Blocks of pixels as channels."""
    n, c, h, w = x.shape
    x = x.reshape(n, c, h // block, block, w // block, block).permute(0, 3, 5, 1, 2, 4)
    return x.reshape(n, c * block**2, h // block, w // block)


def sequence_mask(x: Tensor, lengths: Tensor, axis: Tensor, value: Tensor) -> Tensor:
    """x, with `value` behind the end of each sequence."""
    steps = torch.arange(x.shape[axis], device=x.device)
    inside = steps.unsqueeze(1) < lengths if axis == 0 else steps < lengths.unsqueeze(1)
    return torch.where(inside.reshape(*inside.shape, *[1] * (x.dim() - 2)), x, value)


def sequence_last(x: Tensor, lengths: Tensor, axis: Tensor) -> Tensor:
    """The last step of each sequence."""
    rows = torch.arange(len(lengths), device=x.device)
    last = lengths.long() - 1
    return x[last, rows] if axis == 0 else x[rows, last]


def sequence_reverse(x: Tensor, lengths: Tensor) -> Tensor:
    """Each sequence backwards."""
    steps = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    lengths = lengths.clamp(max=x.shape[0])
    places = torch.where(steps < lengths, lengths.long() - 1 - steps, steps)
    return x[places, torch.arange(x.shape[1], device=x.device)]


def overlaps(first: Tensor, second: Tensor, extra: Tensor = 0) -> Tensor:
    """Intersection over union of boxes (n, 4) and (m, 4); extra is 1 for boxes that count their last pixel."""
    low = torch.maximum(first[:, None, :2], second[None, :, :2])
    high = torch.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = (high - low + extra).clamp(min=0).prod(2)
    areas = [(boxes[:, 2:] - boxes[:, :2] + extra).prod(1) for boxes in (first, second)]
    union = areas[0][:, None] + areas[1][None] - shared
    return torch.where(union != 0, shared / union, 0.0)


def uncovered(covers: Tensor) -> Tensor:
    """Which boxes, the best first, no better one covers. covers : a bool matrix, whether each covers each other."""
    left = torch.ones(len(covers), dtype=torch.bool, device=covers.device)
    for place in range(len(covers)):
        if left[place]:
            left[place + 1 :] &= ~covers[place, place + 1 :]
    return left


def multibox_detection(
    scores: Tensor,
    offsets: Tensor,
    anchors: Tensor,
    clip: Tensor,
    threshold: Tensor,
    nms: Tensor,
    force: Tensor,
    variances: Tensor,
    topk: Tensor,
) -> Tensor:
    """Rows of class, score and corners; class -1 for none. Without gradient."""
    low, high = anchors[0, :, :2], anchors[0, :, 2:]
    scale = torch.tensor(variances, dtype=anchors.dtype, device=anchors.device)
    moves = offsets.reshape(len(offsets), -1, 4)
    center = moves[..., :2] * scale[:2] * (high - low) + (low + high) / 2
    half = (moves[..., 2:] * scale[2:]).exp() * (high - low) / 2
    boxes = torch.cat([center - half, center + half], 2)
    boxes = boxes.clamp(0, 1) if clip else boxes
    score, kind = scores[:, 1:].max(1)
    result = boxes.new_full((*boxes.shape[:2], 6), -1)
    for image in range(len(boxes)):
        kept = ~(score[image] < threshold)
        rows = torch.cat([kind[image, kept, None].to(boxes.dtype), score[image, kept, None], boxes[image, kept]], 1)
        if 0 < nms <= 1 and len(rows):
            count = min(topk, len(rows)) if topk > 0 else len(rows)
            best = rows[rows[:, 1].argsort(descending=True, stable=True)[:count]]
            covers = overlaps(best[:, 2:], best[:, 2:]) >= nms
            covers = covers if force else covers & (best[:, None, 0] == best[None, :, 0])
            rows = rows.clone()
            rows[count:, 0] = -1
            rows[:count] = best
            rows[:count, 0] = torch.where(uncovered(covers), best[:, 0], -1.0)
        result[image, : len(rows)] = rows
    return result


def box_nms(
    data: Tensor,
    threshold: Tensor,
    valid: Tensor,
    topk: Tensor,
    coord: Tensor,
    score: Tensor,
    kind: Tensor,
    background: Tensor,
    force: Tensor,
    center: Tensor,
    to_center: Tensor,
) -> Tensor:
    """Rows of boxes, the best first, without boxes covered by a better box; rows of -1 behind them."""
    result = torch.full_like(data, -1)
    flat, made = data.reshape(-1, *data.shape[-2:]), result.reshape(-1, *data.shape[-2:])
    for image, rows in enumerate(flat):
        there = rows[:, score] > valid
        if kind >= 0:
            there &= rows[:, kind] != background
        rows = rows[there]
        rows = rows[rows[:, score].argsort(descending=True, stable=True)]
        rows = rows[:topk] if topk >= 0 else rows
        if not len(rows):
            continue
        first, second = rows[:, coord : coord + 2], rows[:, coord + 2 : coord + 4]
        corners = torch.cat([first - second / 2, first + second / 2] if center else [first, second], 1)
        covers = overlaps(corners, corners) > threshold
        if kind >= 0 and not force:
            covers &= rows[:, None, kind] == rows[None, :, kind]
        left = uncovered(covers)
        rows, corners = rows[left].clone(), corners[left]
        low, high = corners[:, :2], corners[:, 2:]
        if center != to_center:
            box = torch.cat([(low + high) / 2, high - low] if to_center else [low, high], 1)
            inside = ~(rows[:, coord : coord + 1] < 0)
            rows[:, coord : coord + 4] = torch.where(inside, box, rows[:, coord : coord + 4])
        made[image, : len(rows)] = rows
    return data.clone() if topk == 0 else result


def roi_pooling(data: Tensor, rois: Tensor, size: Tensor, scale: Tensor) -> Tensor:
    """The maximum over each part of every region; 0 for a part outside."""
    height, width = data.shape[2:]
    result = data.new_zeros((len(rois), data.shape[1], *size))
    for index, roi in enumerate(rois):
        image = data[int(roi[0].clamp(0, len(data) - 1))]
        edges = roi[1:].float() * scale
        left, top, right, bottom = (edges.sign() * (edges.abs() + 0.5).floor()).tolist()
        steps = [max(bottom - top + 1, 1) / size[0], max(right - left + 1, 1) / size[1]]
        steps = torch.tensor(steps, dtype=torch.float32).tolist()
        for row in range(size[0]):
            y0 = min(max(int(torch.tensor(row * steps[0]).floor() + top), 0), height)
            y1 = min(max(int(torch.tensor((row + 1) * steps[0]).ceil() + top), 0), height)
            for column in range(size[1]):
                x0 = min(max(int(torch.tensor(column * steps[1]).floor() + left), 0), width)
                x1 = min(max(int(torch.tensor((column + 1) * steps[1]).ceil() + left), 0), width)
                if y1 > y0 and x1 > x0:
                    result[index, :, row, column] = image[:, y0:y1, x0:x1].amax((1, 2))
    return result


def proposal(
    scores: Tensor,
    moves: Tensor,
    info: Tensor,
    base: Tensor,
    stride: Tensor,
    before: Tensor,
    after: Tensor,
    threshold: Tensor,
    least: Tensor,
    iou_loss: Tensor,
) -> Tensor:
    """Regions of interest: the number of the image and corners, and their scores. Without gradient."""
    base = torch.tensor(base, dtype=moves.dtype, device=moves.device)
    height, width = scores.shape[2:]
    y = torch.arange(height, device=moves.device) * stride
    x = torch.arange(width, device=moves.device) * stride
    shift = torch.stack(torch.meshgrid(y, x, indexing="ij"), 2).flip(2).repeat(1, 1, 2)[:, :, None]
    boxes = base + shift
    regions, found = [], []
    for image in range(len(scores)):
        offsets = moves[image].reshape(len(base), 4, height, width).permute(2, 3, 0, 1)
        if iou_loss:
            made = boxes + offsets
        else:
            size = boxes[..., 2:] - boxes[..., :2] + 1
            center = offsets[..., :2] * size + boxes[..., :2] + 0.5 * (size - 1)
            reach = 0.5 * (offsets[..., 2:].exp() * size - 1)
            made = torch.cat([center - reach, center + reach], 3)
        limit = torch.stack([info[image, 1], info[image, 0]]).repeat(2) - 1
        made = torch.minimum(made, limit).clamp(min=0)
        score = scores[image, len(base) :].permute(1, 2, 0).clone()
        score[int(info[image, 0] / stride) :] = -1
        score[:, int(info[image, 1] / stride) :] = -1
        smallest = least * info[image, 2]
        small = (made[..., 2:] - made[..., :2] + 1 < smallest).any(3)
        score[small] = -1
        grown = torch.tensor([-1, -1, 1, 1], dtype=moves.dtype, device=moves.device) * (smallest / 2)
        made = torch.where(small[..., None], made + grown, made).reshape(-1, 4)
        score = score.flatten()
        order = score.argsort(descending=True, stable=True)
        order = order[:before] if before > 0 else order
        kept = order[uncovered(overlaps(made[order], made[order], 1) > threshold)][:after]
        kept = kept.repeat(after // len(kept) + 1)[:after]
        regions.append(torch.cat([torch.full_like(made[kept, :1], image), made[kept]], 1))
        found.append(score[kept, None])
    return torch.cat(regions), torch.cat(found)


def roi_align(data: Tensor, rois: Tensor, size: Tensor, scale: Tensor, ratio: Tensor, aligned: Tensor) -> Tensor:
    """The mean of interpolated points in each part of every region; 0 for a region of no image."""
    height, width = data.shape[2:]
    result = data.new_zeros((len(rois), data.shape[1], *size))
    for index, roi in enumerate(rois):
        image = int(roi[0]) if len(roi) == 5 else 0
        left, top, right, bottom = (roi[-4:].float() * scale - (0.5 if aligned else 0.0)).tolist()
        if not 0 <= image < len(data):
            continue
        axes = []
        for low, high, parts, limit in ((top, bottom, size[0], height), (left, right, size[1], width)):
            step = (high - low if aligned else max(high - low, 1.0)) / parts
            count = ratio if ratio > 0 else max(int(-(-step // 1)), 1)
            number = torch.arange(parts * count, device=data.device)
            place = low + (number // count + (number % count + 0.5) / count) * step
            inside = (place >= -1) & (place <= limit)
            place = place.clamp(0, limit - 1)
            first = place.floor().long()
            share = place - first
            axes.append((first, (first + 1).clamp(max=limit - 1), share, inside, count))
        (y0, y1, dy, in_y, ny), (x0, x1, dx, in_x, nx) = axes
        upper = data[image][:, y0][:, :, x0] * (1 - dx) + data[image][:, y0][:, :, x1] * dx
        lower = data[image][:, y1][:, :, x0] * (1 - dx) + data[image][:, y1][:, :, x1] * dx
        points = (upper * (1 - dy)[:, None] + lower * dy[:, None]) * (in_y[:, None] & in_x)
        result[index] = points.reshape(-1, size[0], ny, size[1], nx).mean((2, 4))
    return result


FUNCTIONS = frozenset(
    name for name, value in list(globals().items()) if inspect.isfunction(value) and value.__module__ == __name__
) - {"source_of", "needed_by"}
"""The names of the functions that a module's source may contain."""
