// What lies over the pane: where a picture goes so that nothing hides its nodes.

import type { Camera, Size } from './camera';
import { fitted, intersects, panned } from './camera';
import { HEADER } from './card';
import type { Picture, Rect } from './compose';

/** Scale below which details are too small to be read. */
export const DETAIL = 0.6;

/**
 * The camera for all of the pane that is seen; where that puts nodes under something, for what is left of it.
 *
 * `place` gives the camera for a room, `free` is the part of the pane that is seen, `card` covers its upper edge, and
 * `covers` are all rectangles over it, the card among them.
 */
export function besideCovers(
  picture: Picture,
  place: (room: Size) => Camera,
  free: Size,
  card: Rect | null,
  covers: readonly Rect[]
): Camera {
  const camera = besideCard(picture, place, free, card);
  const isWhole = ({ x, y, scale }: Camera): boolean =>
    x >= 0 && y >= 0 && x + picture.width * scale <= free.width && y + picture.height * scale <= free.height;
  const low = covers.filter(rect => rect.y > free.height / 2 && rect !== card);
  if (!isWhole(camera) || !low.some(rect => hides(rect, camera, picture))) {
    return camera;
  }
  const height = Math.min(...low.map(rect => rect.y));
  const above = { width: free.width, height };
  const whole = { x: 0, y: 0, width: picture.width, height: picture.height };
  const ways = [
    besideCard(picture, place, above, card),
    besideCard(picture, room => fitted(whole, room), above, card)
  ];
  return ways.find(way => isWhole(way) && way.scale >= DETAIL) ?? camera;
}

function besideCard(picture: Picture, place: (room: Size) => Camera, free: Size, card: Rect | null): Camera {
  const camera = place(free);
  if (!card || !hides(card, camera, picture)) {
    return camera;
  }
  const right = card.x + card.width;
  const below = card.y + card.height;
  const isWide = free.width - right > Math.max(card.width, free.width / 2);
  return isWide
    ? panned(place({ width: free.width - right, height: free.height }), right, 0)
    : panned(place({ width: free.width, height: Math.max(free.height - below, free.height / 4) }), 0, below);
}

/** Whether something, in pixels of the pane, lies over a node, or over the name of an open box. */
export function hides(rect: Rect, { x, y, scale }: Camera, picture: Picture): boolean {
  const below = {
    x: (rect.x - x) / scale,
    y: (rect.y - y) / scale,
    width: rect.width / scale,
    height: rect.height / scale
  };
  for (const item of picture.items.values()) {
    if (intersects(below, item.isOpen ? { ...item, height: HEADER } : item)) {
      return true;
    }
  }
  return false;
}
