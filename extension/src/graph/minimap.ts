// A small map of the whole picture with the part that the pane shows; a click or drag moves the pane.

import { h } from '../view/dom';
import type { Camera, Size } from './camera';
import { visible } from './camera';
import type { Picture } from './compose';
import { svg } from './draw';
import type { Point } from './layer';
import { __ } from '../text';

/** At most so many pixels, and such a part of the pane. */
const MOST = { width: 120, height: 150, part: 0.3, shapes: 500 } as const;
const LEAST = 22;

export class Minimap {
  readonly element: HTMLElement;

  /** `onMove`: the point of the picture that shall be in the middle. */
  constructor(private readonly onMove: (middle: Point) => void) {
    this.view = svg('rect', { class: 'hl-g-map-view' });
    this.root = svg('svg', { 'aria-hidden': 'true' });
    this.element = h('div', {
      class: 'hl-g-map',
      title: __('The whole graph: click to go there'),
      onpointerdown: event => this.onDown(event as PointerEvent)
    });
    this.element.append(this.root);
    this.element.hidden = true;
  }

  show(picture: Picture, pane: Size): void {
    const room = {
      width: Math.min(MOST.width, pane.width * MOST.part),
      height: Math.min(MOST.height, pane.height * MOST.part)
    };
    const factor = Math.min(room.width / picture.width, room.height / picture.height);
    this.size = {
      width: Math.max(picture.width * factor, LEAST),
      height: Math.max(picture.height * factor, LEAST)
    };
    this.picture = picture;
    const { x, y } = this.factors;
    this.root.setAttribute('width', String(this.size.width));
    this.root.setAttribute('height', String(this.size.height));
    this.root.replaceChildren();
    let count = 0;
    for (const layer of picture.layers) {
      for (const item of layer.items) {
        if (item.height * y >= 1 && ++count <= MOST.shapes) {
          this.root.append(
            svg('rect', {
              class: item.isOpen ? 'hl-g-map-open' : 'hl-g-map-item',
              x: item.x * x,
              y: item.y * y,
              width: Math.max(item.width * x, 1),
              height: Math.max(item.height * y, 1)
            })
          );
        }
      }
    }
    this.root.append(this.view);
  }

  /** Move the frame; the map is hidden while the pane shows everything. */
  follow(camera: Camera, pane: Size): void {
    if (!this.picture) {
      return;
    }
    const shown = visible(camera, pane);
    const isAll =
      shown.x <= 2 &&
      shown.y <= 2 &&
      shown.x + shown.width >= this.picture.width - 2 &&
      shown.y + shown.height >= this.picture.height - 2;
    this.element.hidden = isAll;
    if (isAll) {
      return;
    }
    const { x, y } = this.factors;
    const left = Math.max(shown.x * x, 0);
    const top = Math.max(shown.y * y, 0);
    const right = Math.min((shown.x + shown.width) * x, this.size.width);
    const bottom = Math.min((shown.y + shown.height) * y, this.size.height);
    this.view.setAttribute('x', left.toFixed(1));
    this.view.setAttribute('y', top.toFixed(1));
    this.view.setAttribute('width', Math.max(right - left, 3).toFixed(1));
    this.view.setAttribute('height', Math.max(bottom - top, 3).toFixed(1));
  }

  private get factors(): Point {
    return {
      x: this.size.width / (this.picture?.width ?? 1),
      y: this.size.height / (this.picture?.height ?? 1)
    };
  }

  private onDown(event: PointerEvent): void {
    event.preventDefault();
    event.stopPropagation();
    const go = (moved: PointerEvent): void => {
      const box = this.root.getBoundingClientRect();
      const { x, y } = this.factors;
      this.onMove({ x: (moved.clientX - box.left) / x, y: (moved.clientY - box.top) / y });
    };
    const stop = (): void => {
      window.removeEventListener('pointermove', go);
      window.removeEventListener('pointerup', stop);
      window.removeEventListener('pointercancel', stop);
    };
    window.addEventListener('pointermove', go);
    window.addEventListener('pointerup', stop);
    window.addEventListener('pointercancel', stop);
    go(event);
  }

  private readonly root: SVGSVGElement;
  private readonly view: SVGRectElement;
  private picture: Picture | null = null;
  private size: Size = { width: 1, height: 1 };
}
