// The graphs of one Block: which program, its picture with boxes that open in place, search, paths, and the same as text.

import type { GraphBox, GraphNode, GraphReply, Location } from '../protocol/messages';
import { button, h, replace } from '../view/dom';
import { safeSvg } from '../view/safe-svg';
import { tensorText } from '../view/words';
import { GraphBar } from './bar';
import { anchored } from './camera';
import type { Marks } from './canvas';
import { Canvas, NO_MARKS } from './canvas';
import { boxTitle, pageMeasure } from './card';
import type { Picture } from './compose';
import { Composer } from './compose';
import { spoken } from './draw';
import { saveAs, staticSvg, svgText } from './export';
import { GraphText } from './graph-text';
import type { Measured } from './measured';

import type { Hit } from './hit-list';
import { HitList } from './hit-list';
import type { KeyActions } from './keys';
import { keyDone } from './keys';
import { DRAWN, depthOf, firstOpen, nameOf, openedTo, openedWith, withNames } from './opening';
import type { Point } from './layer';
import { Scene, edgeKey } from './scene';
import { search } from './search';
import { trace } from './walk';
import type { Layout } from './worker';
import { Aborted } from './worker';
import { __, _n } from '../text';

export interface GraphPaneEvents {
  onNode: (node: GraphNode) => void;
  onBox: (box: GraphBox) => void;
  /** Nothing is selected any more. */
  onNothing?: () => void;
  onProgram: (id: string) => void;
  /** A click on a parameter of a node. */
  onParameter?: (parameter: GraphNode['badges'][number]) => void;
  onLocation?: ((location: Location) => void) | undefined;
  /** The picture as SVG that needs nothing else, for the static fallback. */
  onPicture?: (svg: string) => void;
  /** The user opened or closed boxes, and they are drawn. */
  onOpened?: () => void;
  /** The picture was moved or zoomed; see `CanvasEvents`. */
  onLook?: (at: Point | null) => void;
}

/** Milliseconds that a picture must stand before its static copy is made. */
const REST = 600;
/** Elements of a static copy that goes with the notebook. */
const STATIC = 2500;
/** Nodes up to which two replies are compared, to draw nothing where nothing changed. */
const COMPARED = 3000;

/** Depths that can be chosen, beside all. */
const DEPTHS = 6;

export class GraphPane {
  readonly element: HTMLElement;
  /** The room below the bar: the picture, or a sentence, and what lies over it. */
  readonly area: HTMLElement;
  readonly canvas: Canvas;
  /** The state of the Block at a path, in words; for the search. */
  stateOf: (path: string) => string = () => '';

  constructor(
    private readonly layout: Layout,
    private readonly events: GraphPaneEvents
  ) {
    this.composer = new Composer(layout, pageMeasure());
    this.canvas = new Canvas({
      onPick: id => this.pick(id),
      onToggle: id => void this.toggle(id),
      onStub: id => void this.select(id),
      onKey: event => this.onKey(event),
      onLook: at => events.onLook?.(at),
      onBadge: (id, index) => {
        const badge = this.scene?.nodes.get(id)?.badges[index];
        if (badge) {
          events.onParameter?.(badge);
        }
      }
    });
    this.bar = new GraphBar({
      onProgram: id => events.onProgram(id),
      onZoom: factor => this.canvas.zoom(factor),
      onFit: () => this.canvas.fit(),
      onPaths: () => this.setTracing(!this.isTracing),
      onText: () => this.showText(this.asText.hidden),
      onCloseAll: () => void this.closeAll(),
      onDepth: depth => void this.openTo(depth),
      onHit: index => void this.goToHit(index),
      onSearch: (text, way) => void this.search(text, way),
      onSave: kind => void this.save(kind)
    });
    this.text = new GraphText(id => void this.select(id));
    this.asText = this.text.element;
    this.asText.hidden = true;
    this.note = h('p', { class: 'hl-graph-note', role: 'status' });
    this.failed = h('p', { class: 'hl-alert', role: 'status' });
    this.failed.hidden = true;
    this.said = h('span', { class: 'hl-visually-hidden', 'aria-live': 'polite' });
    this.area = h(
      'div',
      { class: 'hl-graph-area' },
      this.note,
      this.canvas.element,
      this.asText,
      this.failed,
      this.bar.caption,
      this.bar.zoom,
      this.said
    );
    this.canvas.over.push(this.failed, this.bar.caption, this.bar.zoom);
    this.element = h('div', { class: 'hl-graph-part' }, this.bar.element, this.bar.menu.panel, this.area);
    this.message(__('Select a Block to see its graph.'));
  }

  /** The hits of the search, which a view may show elsewhere. */
  get hits(): HTMLElement {
    return this.bar.hits;
  }

  /** More controls: before those of the bar, behind its programs, and in its menu. */
  addTools(first: HTMLElement, second: HTMLElement, inMenu: HTMLElement): void {
    this.bar.add(first, second, inMenu);
  }

  /** Names of the boxes that the user has opened, and the scale, for `recall`. */
  get looked(): { open: string[]; scale: number } {
    const { scene } = this;
    const open = scene && this.touched ? [...this.open].map(id => nameOf(scene, id)) : [];
    return { open, scale: this.canvas.camera.scale };
  }

  /** Draw the next graph with these boxes open, at this scale. */
  recall(looked: { open: readonly string[]; scale: number }): void {
    this.recalled = looked;
  }

  /** Load what lays graphs out, while the first graph is still asked for. */
  warm(): void {
    this.layout.warm?.();
  }

  /** Draw a graph. Of the same Block and program, what is open and where the pane stands stays. */
  async show(graph: GraphReply): Promise<void> {
    const view = `${graph.path}|${graph.program}`;
    const picture = graph.nodes.length <= COMPARED ? JSON.stringify([graph.nodes, graph.boxes]) : '';
    this.bar.show(graph);
    this.showFailed(graph.failed);
    this.text.show(graph);
    this.bar.enable({ text: graph.text !== '' });
    if (graph.text === '') {
      this.showText(false);
    }
    if (graph.nodes.length === 0) {
      this.message(graph.missing || __('This Block has no graph yet. Call it once on data.'));
      return;
    }
    if (this.picture && picture !== '' && picture === this.drawn && view === this.view) {
      return; // the same again, e.g. after a training step
    }
    const before = this.scene;
    const samePath = this.scenePath === graph.path;
    const scene = new Scene(graph);
    const isOfCalls = graph.programs.some(program => program.id === 'calls');
    const open =
      this.touched && samePath && view === this.view ? new Set<string>() : firstOpen(scene, isOfCalls);
    if (this.touched && samePath && before) {
      // What the user has opened stays open; in another program what opens there by itself opens besides.
      const names = new Set([...this.open].map(id => nameOf(before, id)));
      withNames(scene, names).forEach(id => open.add(id));
    }
    const { recalled } = this;
    this.recalled = null;
    if (recalled) {
      withNames(scene, new Set(recalled.open)).forEach(id => open.add(id));
    }
    this.touched = (this.touched && samePath) || (recalled?.open.length ?? 0) > 0;
    this.scene = scene;
    this.locations = graph.locations;
    this.code = [];
    this.scenePath = graph.path;
    this.findHits(scene, this.bar.searchText);
    this.bar.tell('');
    const depths = Array.from(
      { length: Math.min(depthOf(scene), DEPTHS) },
      (_, i) => openedTo(scene, i + 1).boxes
    );
    this.bar.setDepths(depths, openedTo(scene, Infinity).boxes);
    this.drawn = picture;
    const keep = view === this.view && this.picture !== null;
    this.view = view;
    if (this.selected !== null && (!keep || scene.resolve(this.selected) !== this.selected)) {
      this.selected = null; // another graph gives the same id to another node
      this.events.onNothing?.();
    }
    await this.redraw(open, null, keep, recalled?.scale ?? null);
  }

  /** Show a picture that was drawn earlier (a saved widget without a kernel). */
  showPicture(svgSource: string): void {
    this.running?.abort();
    try {
      const svg = safeSvg(svgSource);
      svg.setAttribute('role', 'img');
      svg.setAttribute('aria-label', __('The graph as it was last drawn'));
      this.forget();
      this.message('');
      this.saved?.remove();
      this.saved = h('div', {
        class: 'hl-canvas hl-saved',
        tabindex: 0,
        role: 'group',
        'aria-label': __('Graph')
      });
      this.saved.append(svg);
      this.canvas.element.hidden = true;
      this.canvas.element.after(this.saved);
    } catch (error) {
      this.message(error instanceof Error ? error.message : String(error), true);
    }
  }

  /** A sentence instead of a picture. */
  message(text: string, isError = false): void {
    this.running?.abort();
    this.forget();
    replace(this.note, text);
    this.note.className = isError ? 'hl-graph-note hl-alert' : 'hl-graph-note hl-empty';
    this.note.setAttribute('role', isError ? 'alert' : 'status');
    this.note.hidden = text === '';
    this.canvas.element.hidden = true;
    this.bar.enable({ picture: false });
  }

  /** What is drawn; null while nothing is. */
  get shownScene(): Scene | null {
    return this.scene;
  }

  /** The boxes that are open. */
  get opened(): ReadonlySet<string> {
    return this.open;
  }

  /** Open these boxes and close all others; `anchor` stays where it is in the pane. */
  async setOpened(open: ReadonlySet<string>, anchor: string | null = null): Promise<void> {
    if (open.size !== this.open.size || [...open].some(id => !this.open.has(id))) {
      this.touched = true;
      await this.redraw(new Set(open), anchor, true);
    }
  }

  /** Mark a node or box as selected, or what stands for it while it is in a closed box; it tells nobody. */
  mirror(id: string | null): void {
    this.selected = id === null ? null : (this.scene?.shown(id, this.open) ?? null);
    this.mark();
  }

  /** Nothing is selected, e.g. because another model is shown. */
  deselect(): void {
    this.selected = null;
    this.mark();
  }

  /** Select a node or box, and bring it into the middle; the boxes around it open. */
  async select(id: string): Promise<void> {
    const { scene } = this;
    const target = scene?.resolve(id);
    if (scene && target !== undefined) {
      this.showText(false);
      const open = new Set([...this.open, ...scene.above(target)]);
      if (open.size > this.open.size) {
        await this.reopen(open, null);
      }
      this.pick(target);
      this.canvas.centre(target);
    }
  }

  /** Bring the box of a Block into the middle and select it; false where the picture has none. */
  async showBlock(path: string): Promise<boolean> {
    const { scene } = this;
    const boxes = scene ? [...scene.boxes.values()].filter(box => box.block === path) : [];
    const ids = boxes.length > 0 ? boxes.map(box => box.id) : scene ? scene.standingFor(path) : [];
    const id = ids.find(each => each === this.selected) ?? ids[0];
    if (id === undefined) {
      return false;
    }
    await this.select(id);
    return true;
  }

  /** Mark the nodes that are computed by a piece of code, or the closed boxes around them; the first comes into view. */
  markCode(isThere: (location: Location) => boolean): number {
    const { scene } = this;
    const spots = new Set(this.locations.flatMap((location, index) => (isThere(location) ? [index] : [])));
    const nodes = scene
      ? [...scene.nodes.values()].filter(({ location }) => location !== null && spots.has(location))
      : [];
    this.code = nodes.map(node => node.id);
    this.mark();
    const shown = scene ? this.code.map(id => scene.shown(id, this.open)) : [];
    const [one] = shown;
    if (one !== undefined && !shown.some(id => this.canvas.shows(id))) {
      this.canvas.centre(one);
    }
    return nodes.length;
  }

  /**
   * An overlay on what is drawn, or none. Its numbers need room: a picture that nobody moved starts anew, else what is in
   * the middle of the pane, or selected, stays.
   */
  async measure(measured: Measured | null): Promise<void> {
    this.measured = measured;
    this.canvas.measure(measured);
    const items = measured?.items ?? new Map<string, never>();
    if (items.size > 0 || this.composer.measured.size > 0) {
      this.composer.measured = new Map([...items.values()].map(item => [item.id, item.short]));
      if (this.drawing) {
        await this.redraw(...this.drawing); // what is being laid out has no room for the numbers
      } else if (this.picture) {
        const stays = this.canvas.isMoved || this.selected !== null;
        const anchor = stays ? (this.selected ?? this.canvas.middle) : null;
        await this.redraw(this.open, anchor, stays, this.canvas.chosenScale);
      }
    }
  }

  /** The name of a node or box; a node's name follows that of its Block. */
  nameOf(id: string): string {
    const node = this.scene?.nodes.get(id);
    const box = this.scene?.box(id);
    return node ? `${node.block} ${node.label || node.op}`.trim() : box ? boxTitle(box).title : id;
  }

  private forget(): void {
    this.picture = null;
    this.scene = null;
    this.view = '';
    this.drawn = '';
    this.selected = null;
    this.canvas.clear();
    clearTimeout(this.resting);
  }

  private async redraw(
    open: Set<string>,
    anchor: string | null,
    keep: boolean,
    chosen: number | null = null
  ): Promise<void> {
    const { scene, picture: old } = this;
    if (!scene) {
      return;
    }
    this.running?.abort();
    const running = new AbortController();
    this.running = running;
    this.drawing = [open, anchor, keep, chosen];
    this.open = open;
    if (!old) {
      replace(this.note, __('Drawing the graph …'));
      this.note.className = 'hl-graph-note hl-empty';
      this.note.hidden = false;
    }
    this.element.setAttribute('aria-busy', 'true');
    try {
      const picture = await this.composer.compose(scene, open, running.signal);
      this.place(picture, scene, anchor, keep && old !== null, chosen);
    } catch (error) {
      if (!(error instanceof Aborted)) {
        this.message(error instanceof Error ? error.message : String(error), true);
      }
    } finally {
      if (this.running === running) {
        this.running = this.drawing = null;
        this.element.removeAttribute('aria-busy');
      }
    }
  }

  private place(
    picture: Picture,
    scene: Scene,
    anchor: string | null,
    keep: boolean,
    chosen: number | null
  ): void {
    const before = anchor === null ? undefined : this.picture?.items.get(anchor);
    const after = anchor === null ? undefined : picture.items.get(anchor);
    this.picture = picture;
    this.note.hidden = true;
    this.saved?.remove();
    this.saved = null;
    this.canvas.element.hidden = !this.asText.hidden;
    this.bar.enable({ picture: this.asText.hidden });
    if (before && after) {
      this.canvas.camera = anchored(this.canvas.camera, before, after);
    }
    const first = scene.layer('').members.find(id => scene.nodes.get(id)?.kind === 'input') ?? null;
    this.canvas.show(picture, scene, first, keep, chosen);
    this.mark();
    clearTimeout(this.resting);
    if (this.events.onPicture) {
      this.resting = setTimeout(() => this.tellPicture(), REST);
    }
  }

  private tellPicture(): void {
    const copy = this.picture && this.scene && staticSvg(this.picture, this.scene, STATIC, this.measured);
    if (copy) {
      this.events.onPicture?.(svgText(copy));
    }
  }

  // -- opening and closing ------------------------------------------------------------------------------------------

  isOpen(id: string): boolean {
    return this.open.has(id);
  }

  /** Open a closed box, close an open one. */
  async toggle(id: string): Promise<void> {
    if (!this.scene?.box(id)) {
      return;
    }
    const open = new Set(this.open);
    if (open.has(id)) {
      open.delete(id);
    } else {
      openedWith(this.scene, id).forEach(box => open.add(box));
    }
    this.pick(id);
    await this.reopen(open, id);
  }

  /** `anchor`: what stays where it is in the pane. */
  private async reopen(open: Set<string>, anchor: string | null): Promise<void> {
    this.touched = true;
    const { scene } = this;
    if (scene && this.selected !== null) {
      this.selected = scene.shown(this.selected, open);
    }
    await this.redraw(open, anchor, anchor !== null || open.size > 0);
    this.events.onOpened?.();
  }

  private async closeAll(): Promise<void> {
    this.bar.tell('');
    await this.reopen(new Set(), null);
  }

  /** Open all boxes to a depth, as many as can be drawn, and say how many are open. */
  private async openTo(depth: number): Promise<void> {
    const { scene } = this;
    if (!scene) {
      return;
    }
    const { open, boxes } = openedTo(scene, depth);
    const count = (number: number): string => number.toLocaleString('en');
    this.bar.tell(
      open.size < boxes
        ? __(
            '%1 of %2 boxes are open: more than %3 nodes would be drawn',
            count(open.size),
            count(boxes),
            count(DRAWN)
          )
        : boxes === 1
          ? __('1 box is open')
          : __('%1 boxes are open', count(boxes))
    );
    await this.reopen(open, this.selected);
  }

  // -- selection, paths, search -------------------------------------------------------------------------------------

  private pick(id: string | null): void {
    this.selected = id;
    this.mark();
    const box = id === null ? undefined : this.scene?.box(id);
    const node = id === null ? undefined : this.scene?.nodes.get(id);
    if (box) {
      this.events.onBox(box);
    } else if (node) {
      this.events.onNode(node);
    } else {
      this.events.onNothing?.();
    }
    this.canvas.uncover(); // the drawer may have opened
  }

  private setTracing(isTracing: boolean): void {
    this.isTracing = isTracing;
    this.bar.press({ paths: isTracing });
    if (isTracing && this.selected === null) {
      this.say(__('Select a node to see what feeds it and what reads it.'));
    }
    this.mark();
  }

  private mark(): void {
    const { scene, selected } = this;
    const code = new Set(scene ? this.code.map(id => scene.shown(id, this.open)) : []);
    const marks: Marks = { ...NO_MARKS, selected, hits: new Set(this.found), code };
    this.text.mark(selected);
    if (scene && selected !== null && this.isTracing) {
      Object.assign(marks, trace(scene, selected), { isTracing: true });
    } else if (scene && selected !== null) {
      const box = scene.nodes.has(selected) || scene.box(selected) ? (scene.parent.get(selected) ?? '') : '';
      const edges = scene.layer(box).edges;
      marks.upEdges = new Set(edges.filter(edge => edge.to === selected).map(edge => edgeKey(box, edge)));
      marks.downEdges = new Set(edges.filter(edge => edge.from === selected).map(edge => edgeKey(box, edge)));
    }
    this.canvas.mark(marks);
  }

  private findHits(scene: Scene, text: string): void {
    const { hits, problem } = search(scene, text, path => this.stateOf(path));
    this.found = hits;
    this.hit = -1;
    const count = this.found.length;
    this.bar.found(
      text.trim() === '' ? '' : count === 0 ? __('nothing found') : _n('%1 hit', '%1 hits', count)
    );
    this.bar.list(
      HitList.listed(hits).map(id => this.hitOf(scene, id)),
      count,
      problem
    );
  }

  private hitOf(scene: Scene, id: string): Hit {
    const item = scene.nodes.get(id) ?? scene.box(id);
    const kind = scene.nodes.get(id)?.op ?? scene.box(id)?.class ?? '';
    const output = item?.outputs[0];
    return {
      id,
      title: this.nameOf(id),
      detail: [kind, output && tensorText(output)].filter(Boolean).join(' ')
    };
  }

  /** Go to the next hit; `way` 0: to the first one, while the user types. */
  private async search(text: string, way: -1 | 0 | 1): Promise<void> {
    const { scene } = this;
    if (!scene) {
      return;
    }
    if (way === 0) {
      this.findHits(scene, text);
      this.mark();
      return;
    }
    const count = this.found.length;
    if (count > 0) {
      await this.goToHit(this.hit < 0 && way < 0 ? count - 1 : (this.hit + way + count) % count);
    }
  }

  private async goToHit(index: number): Promise<void> {
    this.hit = index;
    this.bar.found(`${index + 1} of ${this.found.length}`);
    this.bar.point(index);
    await this.select(this.found[index] ?? '');
  }

  private say(text: string): void {
    this.said.textContent = text;
  }

  private onKey(event: KeyboardEvent): void {
    const { picture, scene, selected, open } = this;
    if (picture && scene && keyDone(event, { picture, scene, selected, open }, this.keyActions)) {
      event.preventDefault();
      event.stopPropagation();
    }
  }

  private goTo(id: string): void {
    this.pick(id);
    this.canvas.reveal(id);
    const item = this.picture?.items.get(id);
    if (item && this.scene) {
      this.say(spoken(item, this.scene));
    }
  }

  // -- text, files --------------------------------------------------------------------------------------------------

  private showText(shown: boolean): void {
    this.asText.hidden = !shown;
    this.canvas.element.hidden = shown || !this.picture;
    this.bar.press({ text: shown });
    this.bar.enable({ picture: !shown && this.picture !== null });
  }

  private showFailed(location: Location | null): void {
    this.failed.hidden = location === null;
    if (location === null) {
      return;
    }
    const { onLocation } = this.events;
    const canJump = onLocation && (location.cell_id !== '' || location.cell !== null);
    replace(
      this.failed,
      __('The trace ended at '),
      canJump
        ? button(location.label, () => onLocation(location), {
            class: 'hl-link',
            title: __('Go to this line')
          })
        : location.label,
      '. What was traced before that line is drawn.'
    );
  }

  private async save(kind: 'svg' | 'png'): Promise<void> {
    const copy = this.picture && this.scene && staticSvg(this.picture, this.scene, Infinity, this.measured);
    if (!copy) {
      return;
    }
    try {
      this.say(__('%1 is saved among the downloads.', await saveAs(copy, kind, this.scenePath ?? '')));
    } catch (error) {
      this.bar.found(error instanceof Error ? error.message : String(error));
    }
  }

  private readonly keyActions: KeyActions = {
    goTo: id => this.goTo(id),
    toggle: id => void this.toggle(id),
    pick: id => this.pick(id),
    zoom: factor => this.canvas.zoom(factor),
    fit: () => this.canvas.fit(),
    trace: () => this.setTracing(!this.isTracing),
    search: () => this.bar.focusSearch()
  };
  private readonly composer: Composer;
  private readonly bar: GraphBar;
  private readonly text: GraphText;
  private readonly asText: HTMLElement;
  private readonly note: HTMLElement;
  private readonly failed: HTMLElement;
  private readonly said: HTMLElement;
  private saved: HTMLElement | null = null;
  private scene: Scene | null = null;
  private scenePath: string | null = null;
  private picture: Picture | null = null;
  private open = new Set<string>();
  /** Whether the user has opened or closed a box of this Block's graphs. */
  private recalled: { open: readonly string[]; scale: number } | null = null;
  private touched = false;
  private view = '';
  private drawn = '';
  private measured: Measured | null = null;
  private selected: string | null = null;
  private isTracing = false;
  private locations: readonly Location[] = [];
  /** Nodes of the line of code in which the cursor stands. */
  private code: string[] = [];
  private found: string[] = [];
  private hit = -1;
  private running: AbortController | null = null;
  /** What `redraw` was asked for last, until it is drawn. */
  private drawing: Parameters<GraphPane['redraw']> | null = null;
  private resting: ReturnType<typeof setTimeout> | undefined;
}
