// One camera for two pictures: where one is moved or zoomed the other follows, aligned at an operator that both have.

import type { Camera } from './camera';
import type { Canvas } from './canvas';
import type { DrawnItem } from './compose';
import type { Point } from './layer';
import type { Side } from './pairing';
import { other } from './pairing';

/** Milliseconds without a movement after which the pictures are aligned at another operator. */
const REST = 350;

/** The two items at whose middles the pictures are aligned. */
interface Anchor {
  side: Side;
  items: readonly [DrawnItem, DrawnItem];
}

export class SharedCamera {
  /**
   * @param partner What is drawn in the other picture for a drawn item of one; undefined where nothing is.
   */
  constructor(
    private readonly canvases: readonly [Canvas, Canvas],
    private readonly partner: (side: Side, id: string) => string | undefined
  ) {}

  /** One picture was moved; `at`: the point of its pane under the pointer. */
  moved(side: Side, at: Point | null): void {
    if (this.anchor?.side !== side) {
      this.anchor = this.nearest(side, at);
    }
    this.follow(side);
    clearTimeout(this.resting);
    this.resting = setTimeout(() => (this.anchor = null), REST);
  }

  /** Align the other picture at an item, or at what is near to it and in both; what moves next keeps that. */
  align(side: Side, id: string | null): void {
    const item = id === null ? undefined : this.canvases[side].items?.get(id);
    const { x, y, scale } = this.canvases[side].camera;
    const middle = item && middleOf(item);
    this.anchor = this.nearest(side, middle ? { x: x + middle.x * scale, y: y + middle.y * scale } : null);
    this.follow(side);
    this.anchor = null;
  }

  /** The pictures are others: nothing is aligned any more. */
  forget(): void {
    clearTimeout(this.resting);
    this.anchor = null;
  }

  private follow(side: Side): void {
    const { camera } = this.canvases[side];
    this.canvases[other(side)].follow(this.anchor ? aligned(camera, this.anchor.items) : { ...camera });
  }

  /** The item nearest to a point of the pane, else to its middle, that the other picture has as well. */
  private nearest(side: Side, at: Point | null): Anchor | null {
    const canvas = this.canvases[side];
    const there = this.canvases[other(side)].items;
    const { width, height } = canvas.pane;
    const { x, y, scale } = canvas.camera;
    const point = at ?? { x: width / 2, y: height / 2 };
    const wanted = { x: (point.x - x) / scale, y: (point.y - y) / scale };
    const byDistance = [...(canvas.items?.values() ?? [])]
      .filter(item => !item.isOpen)
      .map(item => ({ item, away: distance(item, wanted) }))
      .sort((one, two) => one.away - two.away);
    for (const { item } of byDistance) {
      const partner = this.partner(side, item.id);
      const same = partner === undefined ? undefined : there?.get(partner);
      if (same && !same.isOpen) {
        return { side, items: [item, same] };
      }
    }
    return null;
  }

  private anchor: Anchor | null = null;
  private resting: ReturnType<typeof setTimeout> | undefined;
}

/** The camera that shows the middle of the second item where another camera shows that of the first. */
export function aligned(camera: Camera, [one, two]: readonly [DrawnItem, DrawnItem]): Camera {
  const from = middleOf(one);
  const to = middleOf(two);
  return {
    scale: camera.scale,
    x: camera.x + (from.x - to.x) * camera.scale,
    y: camera.y + (from.y - to.y) * camera.scale
  };
}

function middleOf(item: DrawnItem): Point {
  return { x: item.x + item.width / 2, y: item.y + item.height / 2 };
}

function distance(item: DrawnItem, { x, y }: Point): number {
  const outside = (at: number, low: number, length: number): number =>
    Math.max(low - at, 0, at - low - length);
  return Math.hypot(outside(x, item.x, item.width), outside(y, item.y, item.height));
}
