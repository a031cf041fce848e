// Where the picture stands in the pane, and how large: pure arithmetic, in pixels of the pane and of the picture.

import type { Rect } from './compose';
import type { Point } from './layer';

/** A point p of the picture is drawn at (x + scale * p.x, y + scale * p.y). */
export interface Camera {
  x: number;
  y: number;
  scale: number;
}

export interface Size {
  width: number;
  height: number;
}

export const SCALES = { least: 0.02, most: 3, start: 1, readable: 0.75, legible: 0.34 } as const;

const MARGIN = 8;

export function limited(scale: number): number {
  return Math.min(SCALES.most, Math.max(SCALES.least, scale));
}

/** Zoom by a factor; the picture stays under `at`, a point of the pane. */
export function zoomed(camera: Camera, factor: number, at: Point): Camera {
  const scale = limited(camera.scale * factor);
  const ratio = scale / camera.scale;
  return { scale, x: at.x - (at.x - camera.x) * ratio, y: at.y - (at.y - camera.y) * ratio };
}

export function panned(camera: Camera, dx: number, dy: number): Camera {
  return { ...camera, x: camera.x + dx, y: camera.y + dy };
}

/** The whole rectangle, in the middle of the pane. */
export function fitted(rect: Rect, pane: Size, most: number = SCALES.start): Camera {
  const wide = (pane.width - 2 * MARGIN) / Math.max(rect.width, 1);
  const high = (pane.height - 2 * MARGIN) / Math.max(rect.height, 1);
  const scale = limited(Math.min(most, wide, high));
  return {
    scale,
    x: (pane.width - rect.width * scale) / 2 - rect.x * scale,
    y: (pane.height - rect.height * scale) / 2 - rect.y * scale
  };
}

/**
 * Where a new picture starts: whole if it can be read then, else with `first` in the middle of the upper edge.
 * `chosen`: the scale that the user chose before.
 */
export function started(whole: Size, first: Rect, pane: Size, chosen: number | null = null): Camera {
  const rect = { x: 0, y: 0, ...whole };
  const all = fitted(rect, pane, chosen ?? SCALES.start);
  if (all.scale >= (chosen ?? SCALES.readable)) {
    return all;
  }
  const readable = Math.max(SCALES.readable, Math.min(1, (pane.width - 2 * MARGIN) / whole.width));
  const scale = chosen ?? SCALES.start * readable;
  return {
    scale,
    x: pane.width / 2 - (first.x + first.width / 2) * scale,
    y: 2 * MARGIN - Math.max(first.y - 10, 0) * scale
  };
}

/** Move the picture so that a point of it stays where another point of an earlier picture was. */
export function anchored(camera: Camera, before: Point, after: Point): Camera {
  return panned(camera, (before.x - after.x) * camera.scale, (before.y - after.y) * camera.scale);
}

/** As little movement as brings the rectangle into the pane; its upper left corner if it is larger. */
export function revealed(camera: Camera, rect: Rect, pane: Size, margin = 24): Camera {
  const shift = (low: number, high: number, room: number): number =>
    low < margin || high - low > room - 2 * margin ? margin - low : Math.min(room - margin - high, 0);
  const left = camera.x + rect.x * camera.scale;
  const top = camera.y + rect.y * camera.scale;
  return panned(
    camera,
    shift(left, left + rect.width * camera.scale, pane.width),
    shift(top, top + rect.height * camera.scale, pane.height)
  );
}

/** As little movement as brings the rectangle out from under what lies over the pane; none where there is no room. */
export function cleared(camera: Camera, rect: Rect, pane: Size, over: readonly Rect[], margin = 8): Camera {
  const { scale } = camera;
  const box = {
    x: camera.x + rect.x * scale,
    y: camera.y + rect.y * scale,
    width: rect.width * scale,
    height: rect.height * scale
  };
  if (!over.some(each => intersects(each, box))) {
    return camera;
  }
  const ways = (at: 'x' | 'y', length: 'width' | 'height'): number[] => [
    0,
    ...over.flatMap(each => [
      each[at] - margin - box[length] - box[at],
      each[at] + each[length] + margin - box[at]
    ])
  ];
  const room = { x: 0, y: 0, ...pane };
  let best: Point | null = null;
  for (const x of ways('x', 'width')) {
    for (const y of ways('y', 'height')) {
      const there = { ...box, x: box.x + x, y: box.y + y };
      const isFree = contains(room, there) && !over.some(each => intersects(each, there));
      if (isFree && (!best || Math.abs(x) + Math.abs(y) < Math.abs(best.x) + Math.abs(best.y))) {
        best = { x, y };
      }
    }
  }
  return best ? panned(camera, best.x, best.y) : camera;
}

/** The rectangle in the middle of the pane, the top of it where it is higher; larger where its text is too small to read. */
export function centred(camera: Camera, rect: Rect, pane: Size, margin = 24): Camera {
  const scale = camera.scale < SCALES.legible ? SCALES.readable : camera.scale;
  const middle = (at: number, length: number, room: number): number =>
    length * scale > room - 2 * margin ? margin - at * scale : (room - length * scale) / 2 - at * scale;
  const wide = rect.width * scale > pane.width - 2 * margin;
  const x = wide
    ? pane.width / 2 - (rect.x + rect.width / 2) * scale
    : middle(rect.x, rect.width, pane.width);
  return { scale, x, y: middle(rect.y, rect.height, pane.height) };
}

/** Never out of sight: some of the picture stays in the pane. */
export function kept(camera: Camera, whole: Size, pane: Size): Camera {
  const hold = (at: number, length: number, room: number): number => {
    const stay = Math.min(60, length, room);
    return Math.min(Math.max(at, stay - length), room - stay);
  };
  return {
    ...camera,
    x: hold(camera.x, whole.width * camera.scale, pane.width),
    y: hold(camera.y, whole.height * camera.scale, pane.height)
  };
}

/** The part of the picture that the pane shows, with a margin in pixels of the pane. */
export function visible(camera: Camera, pane: Size, margin = 0): Rect {
  return {
    x: (-margin - camera.x) / camera.scale,
    y: (-margin - camera.y) / camera.scale,
    width: (pane.width + 2 * margin) / camera.scale,
    height: (pane.height + 2 * margin) / camera.scale
  };
}

export function intersects(a: Rect, b: Rect): boolean {
  return a.x <= b.x + b.width && b.x <= a.x + a.width && a.y <= b.y + b.height && b.y <= a.y + a.height;
}

export function contains(outer: Rect, inner: Rect): boolean {
  return (
    outer.x <= inner.x &&
    outer.y <= inner.y &&
    outer.x + outer.width >= inner.x + inner.width &&
    outer.y + outer.height >= inner.y + inner.height
  );
}
