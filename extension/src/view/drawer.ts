// A drawer over the edge of the graph, and the line of tabs that opens it: at the right where there is room, else below.

import type { Covered } from '../graph/canvas';
import { button, h, replace, uniqueId } from './dom';
import type { PaneMemory } from './panes';
import { __ } from '../text';

export interface DrawerEvents {
  /** A tab was opened; null: the drawer was closed. */
  onShow: (id: string | null) => void;
  /** The drawer covers so many pixels of the graph. */
  onCover: (covered: Covered) => void;
}

/** The view in pixels: its size, and the place in it where the graph begins. */
export interface Room {
  width: number;
  height: number;
  left: number;
  top: number;
}

/** `graph`: the size of the graph; 0 if there is no graph. */
interface RoomOfDrawer extends Room {
  graph: { width: number; height: number };
}

interface Tab {
  button: HTMLButtonElement;
  panel: HTMLElement;
}

/** The part of the room that the drawer has at first, and limits of it in pixels. */
const FIRST = { right: 0.4, below: 0.45 } as const;
const LEAST = { right: 240, below: 90 } as const;
/** Pixels of the graph's width from which the drawer is at the right, and the largest part of the room that it has. */
const WIDE = 540;
const MOST = 0.9;
/** The part of the graph that stays to be seen. */
const SEEN = 0.4;
/** Pixels that an arrow key moves the edge. */
const STEP = 24;

export class Drawer {
  /** What lies over the graph. */
  readonly element: HTMLElement;
  /** The line of tabs. */
  readonly strip: HTMLElement;
  /** Whether the user has closed the drawer: then only the user opens it. */
  isDismissed = false;

  constructor(
    label: string,
    private readonly memory: PaneMemory,
    private readonly events: DrawerEvents
  ) {
    this.list = h('div', { class: 'hl-tablist', role: 'tablist', 'aria-label': label });
    this.list.addEventListener('keydown', event => this.onKey(event));
    this.more = h('select', {
      class: 'hl-input hl-more-tabs',
      'aria-label': __('More tabs'),
      title: __('More tabs'),
      onchange: () => {
        this.isDismissed = false;
        this.open(this.more.value);
      }
    });
    this.more.hidden = true;
    this.strip = h('div', { class: 'hl-drawer-tabs' }, this.list, this.more);
    if (typeof ResizeObserver !== 'undefined') {
      new ResizeObserver(() => this.fitTabs()).observe(this.strip);
    }
    this.edge = h('div', {
      class: 'hl-drawer-edge',
      role: 'separator',
      tabindex: 0,
      'aria-label': __('Size of the drawer'),
      'aria-valuemin': 0,
      'aria-valuemax': 100,
      onpointerdown: event => this.onDrag(event as PointerEvent),
      onkeydown: event => this.onEdgeKey(event as KeyboardEvent)
    });
    this.body = h('div', { class: 'hl-drawer-body', tabindex: 0, role: 'region', 'aria-label': label });
    const close = button('×', () => this.dismiss(), {
      class: 'hl-link hl-drawer-close',
      title: __('Close (Escape)'),
      'aria-label': __('Close the drawer')
    });
    this.element = h('div', { class: 'hl-drawer' }, this.edge, close, this.body);
    this.element.hidden = true;
    this.element.addEventListener('keydown', event => this.onEscape(event));
    this.strip.addEventListener('keydown', event => this.onEscape(event));
  }

  /** The id of the tab that is open; null while the drawer is closed. */
  get current(): string | null {
    return this.shown;
  }

  /** Whether the drawer is at the right; else at the lower edge. */
  get isAtRight(): boolean {
    return this.side === 'right';
  }

  /** Add a tab behind the others. */
  add(id: string, name: string, content: HTMLElement): void {
    const panelId = uniqueId('panel');
    const tab = button(name, () => this.toggle(id), {
      class: 'hl-tab',
      role: 'tab',
      id: uniqueId('tab'),
      'aria-controls': panelId,
      'aria-selected': 'false'
    });
    const panel = h(
      'div',
      { class: `hl-drawer-panel hl-drawer-${id}`, id: panelId, role: 'tabpanel', 'aria-labelledby': tab.id },
      content
    );
    panel.hidden = true;
    tab.tabIndex = this.tabs.size === 0 ? 0 : -1;
    this.tabs.set(id, { button: tab, panel });
    this.list.append(tab);
    this.body.append(panel);
  }

  /** Write another name on a tab, such as one with a count. */
  rename(id: string, name: string): void {
    const tab = this.tabs.get(id);
    if (tab && tab.button.textContent !== name) {
      tab.button.textContent = name;
      this.fitTabs();
    }
  }

  /** Show or hide a tab. */
  offer(id: string, isOffered: boolean): void {
    const tab = this.tabs.get(id);
    if (tab?.button.hidden === isOffered) {
      tab.button.hidden = !isOffered;
      if (!isOffered && this.shown === id) {
        this.close();
      }
      this.settle();
      this.fitTabs();
    }
  }

  open(id: string): void {
    if (this.tabs.get(id) && id !== this.shown) {
      this.show(id);
      this.body.scrollTop = 0;
    }
  }

  close(): void {
    this.show(null);
  }

  /** The view has another size, or its parts stand elsewhere. */
  place(room: RoomOfDrawer): void {
    this.room = room;
    this.side = room.width - room.left >= WIDE ? 'right' : 'below';
    this.resize();
  }

  private toggle(id: string): void {
    if (this.shown === id) {
      this.dismiss();
    } else {
      this.isDismissed = false;
      this.open(id);
    }
  }

  /** Close it, and leave it closed until the user opens it. */
  dismiss(): void {
    if (this.shown === null) {
      return;
    }
    const hadFocus = this.element.contains(this.element.ownerDocument.activeElement);
    const last = this.shown;
    this.isDismissed = true;
    this.close();
    if (hadFocus) {
      this.tabs.get(last)?.button.focus();
    }
  }

  private show(id: string | null): void {
    this.shown = id;
    this.element.hidden = id === null;
    for (const [other, { panel, button: tab }] of this.tabs) {
      panel.hidden = other !== id;
      tab.setAttribute('aria-selected', String(other === id));
    }
    this.settle();
    this.fitTabs();
    this.resize();
    this.events.onShow(id);
  }

  /** One tab can be reached by Tab: the open one, else the one that was open last. */
  private settle(): void {
    const offered = [...this.tabs].filter(([, { button: tab }]) => !tab.hidden).map(([id]) => id);
    this.stop = this.shown ?? (offered.includes(this.stop) ? this.stop : (offered[0] ?? ''));
    for (const [id, { button: tab }] of this.tabs) {
      tab.tabIndex = id === this.stop ? 0 : -1;
    }
  }

  /** Show whole tabs, the open one among them; where there is no room for all, a list has the others. */
  private fitTabs(): void {
    const tabs = [...this.tabs].filter(([, { button: tab }]) => !tab.hidden);
    const places = tabs.map(([, { button: tab }]) => tab.getBoundingClientRect());
    const between = (first: number, last: number): number =>
      (places[last]?.right ?? 0) - (places[first]?.left ?? 0);
    const end = tabs.length - 1;
    const room = this.strip.clientWidth;
    const isWhole = between(0, end) <= room;
    this.more.hidden = isWhole;
    this.list.style.maxWidth = '';
    this.list.scrollLeft = 0;
    if (isWhole) {
      return;
    }
    const left = room - this.more.getBoundingClientRect().width;
    const open = tabs.findIndex(([id]) => id === this.shown);
    let first = 0;
    while (first < open && between(first, open) > left) {
      first++;
    }
    let last = Math.max(first, open);
    while (last < end && between(first, last + 1) <= left) {
      last++;
    }
    const others = tabs.filter((_, index) => index < first || index > last);
    replace(
      this.more,
      h('option', { value: '', disabled: true, hidden: true }, '»'),
      ...others.map(([id, { button: tab }]) => h('option', { value: id }, tab.textContent ?? ''))
    );
    this.more.value = '';
    this.list.style.maxWidth = `${between(first, last)}px`;
    this.list.scrollLeft = between(0, first) - (places[first]?.width ?? 0);
  }

  private resize(): void {
    const { side, room, all } = this;
    const share = this.memory.read()[side] ?? FIRST[side];
    const size = Math.round(Math.max(LEAST[side], Math.min(this.most, all * share)));
    this.element.classList.toggle('hl-drawer-right', side === 'right');
    this.element.style.setProperty('--hl-drawer-size', `${size}px`);
    this.element.style.setProperty('--hl-drawer-left', `${room.left}px`);
    this.element.style.setProperty('--hl-drawer-top', `${room.top}px`);
    this.edge.setAttribute('aria-orientation', side === 'right' ? 'vertical' : 'horizontal');
    this.edge.setAttribute('aria-valuenow', String(all > 0 ? Math.round((100 * size) / all) : 0));
    const covers = this.shown !== null;
    this.events.onCover({
      right: covers && side === 'right' ? size : 0,
      bottom: covers && side === 'below' ? size : 0
    });
  }

  private setSize(size: number): void {
    const { all } = this;
    if (all > 0) {
      this.memory.write({ [this.side]: Math.max(LEAST[this.side], Math.min(this.most, size)) / all });
      this.resize();
    }
  }

  /** The pixels that the drawer may cover. */
  private get all(): number {
    const { width, height, left } = this.room;
    return this.side === 'right' ? width - left : height;
  }

  /** The most pixels that it may have. */
  private get most(): number {
    const { graph } = this.room;
    const seen = this.side === 'right' ? graph.width : graph.height;
    return Math.min(this.all * MOST, seen > 0 ? seen * (1 - SEEN) : Infinity);
  }

  private get size(): number {
    const { width, height } = this.element.getBoundingClientRect();
    return this.side === 'right' ? width : height;
  }

  private onDrag(event: PointerEvent): void {
    const { size, side } = this;
    const at = (moved: PointerEvent): number => (side === 'right' ? moved.clientX : moved.clientY);
    const start = at(event);
    event.preventDefault();
    this.edge.setPointerCapture(event.pointerId);
    const move = (moved: PointerEvent): void => this.setSize(size + start - at(moved));
    const stop = (): void => {
      this.edge.removeEventListener('pointermove', move);
      this.edge.removeEventListener('lostpointercapture', stop);
    };
    this.edge.addEventListener('pointermove', move);
    this.edge.addEventListener('lostpointercapture', stop);
  }

  private onEdgeKey(event: KeyboardEvent): void {
    const [more, less] = this.side === 'right' ? ['ArrowLeft', 'ArrowRight'] : ['ArrowUp', 'ArrowDown'];
    const way = event.key === more ? 1 : event.key === less ? -1 : 0;
    if (way !== 0) {
      event.preventDefault();
      event.stopPropagation();
      this.setSize(this.size + way * STEP);
    }
  }

  private onKey(event: KeyboardEvent): void {
    const ids = [...this.tabs].filter(([, { button: tab }]) => !tab.hidden).map(([id]) => id);
    const at = ids.findIndex(id => this.tabs.get(id)?.button === event.target);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: ids.length - 1 }[event.key];
    const id = to === undefined ? undefined : ids[(to + ids.length) % ids.length];
    if (id !== undefined && at >= 0) {
      event.preventDefault();
      event.stopPropagation();
      this.stop = id;
      if (this.shown !== null) {
        this.open(id);
      }
      this.settle();
      this.tabs.get(id)?.button.focus();
    }
  }

  private onEscape(event: KeyboardEvent): void {
    if (event.key === 'Escape' && this.shown !== null) {
      event.stopPropagation();
      this.dismiss();
    }
  }

  private readonly list: HTMLElement;
  private readonly more: HTMLSelectElement;
  private readonly edge: HTMLElement;
  private readonly body: HTMLElement;
  private readonly tabs = new Map<string, Tab>();
  private room: RoomOfDrawer = { width: 0, height: 0, left: 0, top: 0, graph: { width: 0, height: 0 } };
  private side: 'right' | 'below' = 'below';
  private shown: string | null = null;
  private stop = '';
}
