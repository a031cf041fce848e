// Wheel, mouse and fingers on the picture: what they move, and what a click is on.

import type { Camera, Size } from './camera';
import { panned } from './camera';
import type { Point } from './layer';

export interface ClickEvents {
  /** A click; null: on the ground. */
  onPick: (id: string | null) => void;
  /** A double-click, or a click on + or -. */
  onToggle: (id: string) => void;
  /** A click on the parameter number `index` of a node, by the order of its badges. */
  onBadge?: (id: string, index: number) => void;
  /** A click on the stub of an edge, which leads to this node. */
  onStub?: (id: string) => void;
}

/** What gestures move: a picture behind a pane. */
export interface Surface {
  /** The pane, and the drawing in it. */
  readonly element: HTMLElement;
  readonly root: SVGSVGElement;
  readonly camera: Camera;
  readonly pane: Size;
  /** Size of the picture; null while there is none. */
  readonly extent: Size | null;
  move: (camera: Camera, at: Point) => void;
  zoom: (factor: number, at: Point) => void;
}

const DOUBLE = { milliseconds: 450, pixels: 8 } as const;

/** Let gestures on a surface move it, and tell clicks. */
export function followGestures(surface: Surface, events: ClickEvents): void {
  const gestures = new Gestures(surface, events);
  surface.root.addEventListener('wheel', event => gestures.onWheel(event), { passive: false });
  surface.root.addEventListener('pointerdown', event => gestures.onDown(event));
}

class Gestures {
  constructor(
    private readonly surface: Surface,
    private readonly events: ClickEvents
  ) {}

  private at(event: MouseEvent): Point {
    const box = this.surface.root.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  onWheel(event: WheelEvent): void {
    const { extent, pane, camera } = this.surface;
    if (!extent) {
      return;
    }
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 300 : 1;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const turned = Math.max(-60, Math.min(60, event.deltaY * unit));
      this.surface.zoom(Math.exp(-turned * 0.004), this.at(event));
      return;
    }
    const [dx, dy] = event.shiftKey && event.deltaX === 0 ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
    const { x, y, scale } = camera;
    // As in any pane that scrolls: where the picture ends, the page scrolls on.
    const scroll = (at: number, delta: number, length: number, room: number): number =>
      delta > 0
        ? Math.max(Math.min(at, Math.max(at - delta, room - length)), at - delta)
        : Math.min(Math.max(at, Math.min(at - delta, 0)), at - delta);
    const next = {
      scale,
      x: scroll(x, dx * unit, extent.width * scale, pane.width),
      y: scroll(y, dy * unit, extent.height * scale, pane.height)
    };
    if (next.x !== x || next.y !== y) {
      event.preventDefault();
      this.surface.move(next, this.at(event));
    }
  }

  onDown(event: PointerEvent): void {
    if (!this.surface.extent || (event.pointerType === 'mouse' && event.button !== 0)) {
      return;
    }
    this.fingers.set(event.pointerId, this.at(event));
    if (this.fingers.size > 1) {
      return; // the listeners of the first finger follow the second
    }
    const target = event.target as Element;
    const id = target.closest('[data-id]')?.getAttribute('data-id') ?? null;
    const toggles = target.closest('[data-toggle]') !== null;
    const stub = target.closest('[data-stub]')?.getAttribute('data-stub') ?? null;
    const badge = target.closest('[data-badge]')?.getAttribute('data-badge') ?? null;
    const start = this.at(event);
    let isDrag = false;
    const move = (moved: PointerEvent): void => {
      const before = this.fingers.get(moved.pointerId);
      const now = this.at(moved);
      if (!before) {
        return;
      }
      isDrag ||= Math.hypot(now.x - start.x, now.y - start.y) > 4;
      const other = [...this.fingers].find(([pointer]) => pointer !== moved.pointerId)?.[1];
      if (other) {
        isDrag = true;
        const factor =
          Math.hypot(now.x - other.x, now.y - other.y) /
          Math.max(Math.hypot(before.x - other.x, before.y - other.y), 1);
        this.surface.zoom(factor, { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
      } else if (isDrag) {
        this.surface.element.classList.add('hl-dragging');
        this.surface.move(panned(this.surface.camera, now.x - before.x, now.y - before.y), now);
      } else {
        return;
      }
      this.fingers.set(moved.pointerId, now);
    };
    const stop = (ended: PointerEvent): void => {
      this.fingers.delete(ended.pointerId);
      if (this.fingers.size > 0) {
        return;
      }
      window.removeEventListener('pointermove', move);
      window.removeEventListener('pointerup', stop);
      window.removeEventListener('pointercancel', stop);
      this.surface.element.classList.remove('hl-dragging');
      if (!isDrag && ended.type === 'pointerup') {
        this.onClick(id, toggles, { x: event.clientX, y: event.clientY }, event.timeStamp);
        if (stub !== null) {
          this.events.onStub?.(stub);
        } else if (id !== null && badge !== null) {
          this.events.onBadge?.(id, Number(badge));
        }
      }
    };
    window.addEventListener('pointermove', move);
    window.addEventListener('pointerup', stop);
    window.addEventListener('pointercancel', stop);
  }

  /** The second click of a double-click is on what the first one was on, wherever that has moved. */
  private onClick(id: string | null, toggles: boolean, at: Point, time: number): void {
    this.surface.root.focus({ preventScroll: true });
    const { last } = this;
    const isDouble =
      last !== null &&
      time - last.time < DOUBLE.milliseconds &&
      Math.hypot(at.x - last.at.x, at.y - last.at.y) < DOUBLE.pixels;
    this.last = isDouble || toggles ? null : { id, at, time };
    if (toggles && id !== null) {
      this.events.onToggle(id);
    } else if (isDouble && last.id !== null) {
      this.events.onToggle(last.id);
    } else if (!isDouble) {
      this.events.onPick(id);
    }
  }

  /** Fingers, or the mouse, that are down: where each was last. */
  private readonly fingers = new Map<number, Point>();
  private last: { id: string | null; at: Point; time: number } | null = null;
}
