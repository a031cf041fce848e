// Two graphs side by side, in colour: panes that move together, the differences one after another, and what differs in
// what is selected.

import { GraphPane } from '../graph/graph-pane';
import type { ChangeKind } from '../graph/draw';
import { CHANGES, SIGNS } from '../graph/draw';
import type { Pair, Side } from '../graph/pairing';
import { Pairing, other } from '../graph/pairing';
import { SharedCamera } from '../graph/shared-camera';
import type { Layout } from '../graph/worker';
import { asRequestError } from '../protocol/channel';
import type { ComparedGraphs, ComparedValuesReply, GraphNode } from '../protocol/messages';
import type { Child } from './dom';
import { button, h, replace } from './dom';
import { numbersOf } from './numbers';
import { toolbar } from './roving';
import { tensorText } from './words';
import { __, _n, grouped } from '../text';

/** What is compared. */
export interface SideBySide {
  graphs: ComparedGraphs;
  /** What the sides are called: the older one, or the file, first. */
  names: readonly [string, string];
  /** All differences in one line. */
  summary: string;
  /** The numbers of a parameter on both sides, by its name on each, '' where it is missing. */
  values: (first: string, second: string) => Promise<ComparedValuesReply>;
}

export interface CompareViewOptions {
  layout: Layout;
  onClose?: () => void;
  /** Show all differences as a list. */
  onList?: () => void;
}

const SIDES = [0, 1] as const;
const KINDS: readonly ChangeKind[] = ['added', 'removed', 'changed', 'values'];
const KEYS: Record<string, -1 | 1> = { n: 1, p: -1 };
/** Parameters of one operator whose numbers are shown. */
const SHOWN = 4;

export class CompareView {
  readonly element: HTMLElement;

  constructor(private readonly options: CompareViewOptions) {
    this.sides = [this.side(0), this.side(1)];
    this.panes = [this.sides[0].pane, this.sides[1].pane];
    this.camera = new SharedCamera([this.panes[0].canvas, this.panes[1].canvas], (side, id) =>
      this.drawnPartner(side, id)
    );
    this.legend = h('span', { class: 'hl-compare-legend', role: 'group', 'aria-label': __('Differences') });
    this.steps = [
      button('↑', () => void this.step(-1), {
        'aria-label': __('Previous difference'),
        title: __('Previous difference (P)')
      }),
      button('↓', () => void this.step(1), {
        'aria-label': __('Next difference'),
        title: __('Next difference (N)')
      })
    ];
    this.count = h('span', { class: 'hl-compare-count', role: 'status' });
    this.bar = h(
      'div',
      { class: 'hl-compare-bar' },
      this.legend,
      h('span', { class: 'hl-compare-steps' }, ...this.steps, this.count),
      h('span', { class: 'hl-compare-space' }),
      options.onList &&
        button(__('List'), () => options.onList?.(), { title: __('All differences as a list') }),
      options.onClose &&
        button('×', () => this.close(), {
          class: 'hl-button hl-compare-close',
          'aria-label': __('Close the comparison'),
          title: __('Close (Escape)')
        })
    );
    toolbar(this.bar, __('Comparison'));
    this.details = h('div', {
      class: 'hl-compare-details',
      role: 'region',
      tabindex: 0,
      'aria-label': __('What differs'),
      'aria-live': 'polite'
    });
    this.element = h(
      'section',
      { class: 'hl-compare', 'aria-label': __('Graphs side by side') },
      this.bar,
      h('div', { class: 'hl-compare-panes' }, this.sides[0].element, this.sides[1].element),
      this.details
    );
    this.element.hidden = true;
    this.element.addEventListener('keydown', event => this.onKey(event), { capture: true });
  }

  get isOpen(): boolean {
    return !this.element.hidden;
  }

  /** Draw both graphs, and go to the first difference. */
  async show(shown: SideBySide): Promise<void> {
    const { graphs, names } = shown;
    this.shown = shown;
    this.pairing = null;
    this.at = -1;
    this.camera.forget();
    if (this.element.hidden) {
      this.before = document.activeElement;
      this.element.hidden = false;
    }
    this.element.setAttribute('aria-label', __('%1 and %2 side by side', names[0], names[1]));
    for (const side of SIDES) {
      replace(
        this.sides[side].name,
        h('strong', {}, names[side]),
        h('span', { class: 'hl-summary' }, side === 0 ? __('before') : __('after'))
      );
      this.sides[side].name.title = names[side];
    }
    const replies = [graphs.first, graphs.second] as const;
    await Promise.all(SIDES.map(side => this.panes[side].show(replies[side])));
    if (this.shown !== shown) {
      return;
    }
    const [one, two] = [this.panes[0].shownScene, this.panes[1].shownScene];
    this.pairing = one && two ? new Pairing(graphs.items, [one, two]) : null;
    this.showLegend();
    this.describe(null);
    for (const side of SIDES) {
      this.panes[side].canvas.paint(this.pairing?.changes(side) ?? null);
    }
    if (!this.pairing) {
      return;
    }
    if (this.options.onClose) {
      this.panes[1].canvas.root.focus({ preventScroll: true }); // where N and P are heard
    }
    await this.openLike(1);
    await this.openLike(0);
    if (this.pairing.differences.length > 0) {
      await this.goTo(0);
    } else {
      this.camera.align(1, null);
    }
  }

  close(): void {
    if (this.isOpen) {
      this.shown = null;
      this.element.hidden = true;
      this.options.onClose?.();
      if (this.before instanceof HTMLElement) {
        this.before.focus({ preventScroll: true });
      }
    }
  }

  /** The next difference, or the one before; of one kind alone where that is given. */
  async step(way: -1 | 1, kind: ChangeKind | null = null): Promise<void> {
    const differences = this.pairing?.differences ?? [];
    const { length } = differences;
    for (let steps = 1; steps <= length; steps++) {
      const from = this.at < 0 && way < 0 ? 0 : this.at;
      const at = (((from + way * steps) % length) + length) % length;
      if (kind === null || differences[at]?.kind === kind) {
        await this.goTo(at);
        return;
      }
    }
  }

  /** Bring a difference into the middle of both panes, and select it. */
  private async goTo(at: number): Promise<void> {
    const pair = this.pairing?.differences[at];
    if (!pair) {
      return;
    }
    this.at = at;
    const side: Side = pair.ids[1] === undefined ? 0 : 1;
    this.isFollowing = true;
    try {
      await this.panes[side].select(pair.ids[side] ?? '');
      await this.openLike(side);
    } finally {
      this.isFollowing = false;
    }
    this.panes[side].canvas.centre(this.drawn(side, pair.ids[side]) ?? '');
    this.select(pair);
    this.camera.align(side, this.drawn(side, pair.ids[side]) ?? null);
  }

  private select(pair: Pair | null): void {
    for (const side of SIDES) {
      this.panes[side].mirror(pair?.ids[side] ?? null);
    }
    const at = pair ? (this.pairing?.differences.indexOf(pair) ?? -1) : -1;
    this.at = at < 0 ? this.at : at;
    this.showCount();
    this.describe(pair);
  }

  /** The user selected something in one pane. */
  private picked(side: Side, id: string | null): void {
    if (this.isFollowing) {
      return;
    }
    const pair = id === null ? undefined : this.pairing?.pair(side, id);
    if (pair || id === null) {
      this.select(pair ?? null);
    } else {
      this.panes[other(side)].mirror(this.pairing?.partner(side, id) ?? null);
      this.describe(null);
    }
  }

  /** Open the same boxes as in the pane of a side, with what is selected where it was. */
  private async openLike(side: Side): Promise<void> {
    const { pairing } = this;
    const there = other(side);
    if (pairing) {
      const open = pairing.openedLike(side, this.panes[side].opened, this.panes[there].opened);
      this.isFollowing = true;
      await this.panes[there].setOpened(open);
      this.isFollowing = false;
    }
  }

  private async opened(side: Side): Promise<void> {
    if (!this.isFollowing) {
      await this.openLike(side);
      this.camera.align(side, null);
    }
  }

  /** What is drawn for a node or box: itself, or the closed box around it. */
  private drawn(side: Side, id: string | undefined): string | undefined {
    const scene = this.panes[side].shownScene;
    return id === undefined ? undefined : scene?.shown(id, this.panes[side].opened);
  }

  private drawnPartner(side: Side, id: string): string | undefined {
    return this.drawn(other(side), this.pairing?.partner(side, id));
  }

  private side(side: Side): { element: HTMLElement; name: HTMLElement; pane: GraphPane } {
    const pane = new GraphPane(this.options.layout, {
      onNode: node => this.picked(side, node.id),
      onBox: box => this.picked(side, box.id),
      onNothing: () => this.picked(side, null),
      onProgram: () => undefined,
      onOpened: () => void this.opened(side),
      onLook: at => {
        if (!this.isFollowing) {
          this.camera.moved(side, at);
        }
      }
    });
    const name = h('p', { class: 'hl-compare-name' });
    const element = h('div', { class: 'hl-compare-side' }, name, pane.area);
    return { element, name, pane };
  }

  private showLegend(): void {
    const differences = this.pairing?.differences ?? [];
    const numbers = KINDS.map(kind => differences.filter(pair => pair.kind === kind).length);
    replace(
      this.legend,
      ...KINDS.map((kind, i) => {
        const label = `${numbers[i]} ${CHANGES[kind]}`;
        const choose = button(String(numbers[i]), () => void this.step(1, kind), {
          'aria-label': label,
          class: `hl-button hl-compare-kind hl-compare-${kind}`,
          disabled: numbers[i] === 0,
          'data-none': numbers[i] === 0,
          'data-sign': SIGNS[kind],
          title: __('%1: go to the next', label)
        });
        choose.append(h('span', { class: 'hl-compare-word' }, ` ${CHANGES[kind]}`));
        return choose;
      })
    );
    this.steps.forEach(step => (step.disabled = differences.length === 0));
    this.showCount();
  }

  private showCount(): void {
    const total = this.pairing?.differences.length ?? 0;
    const { graphs } = this.shown ?? {};
    this.count.textContent =
      graphs?.first.missing || graphs?.second.missing
        ? __('not compared')
        : total === 0
          ? __('the graphs are equal')
          : this.at < 0
            ? _n('%1 difference', '%1 differences', total)
            : __('%1 of %2', grouped(this.at + 1), grouped(total));
  }

  // -- details --------------------------------------------------------------------------------------------------------

  private describe(pair: Pair | null): void {
    const { shown } = this;
    this.described = pair;
    if (!pair || !shown) {
      replace(
        this.details,
        h('p', { class: 'hl-summary' }, shown?.summary ?? ''),
        h(
          'p',
          { class: 'hl-empty' },
          __('Select an operator or a Block to see both sides. N and P go through the differences.')
        )
      );
      return;
    }
    const facts = SIDES.map(side => this.factsOf(side, pair.ids[side]));
    const names = [...new Set(facts.flatMap(each => [...each.keys()]))];
    const title = SIDES.map(side => this.nameOf(side, pair.ids[side]));
    replace(
      this.details,
      h(
        'p',
        { class: 'hl-title' },
        pair.kind !== 'same' &&
          h('span', { class: `hl-mark hl-mark-${pair.kind}` }, `${SIGNS[pair.kind]} ${CHANGES[pair.kind]}`),
        h('code', {}, [...new Set(title.filter(text => text !== ''))].join(' → '))
      ),
      pair.changes.length > 0 &&
        h('ul', { class: 'hl-diff-lines' }, ...pair.changes.map(text => h('li', {}, text))),
      h(
        'table',
        { class: 'hl-compare-facts' },
        h('thead', {}, h('tr', {}, h('td', {}), ...shown.names.map(name => h('th', { scope: 'col' }, name)))),
        h(
          'tbody',
          {},
          ...names.map(name =>
            this.factRow(
              name,
              facts,
              facts.every(each => each.size > 0)
            )
          )
        )
      )
    );
    void this.addNumbers(pair);
  }

  private factRow(
    name: string,
    facts: readonly ReadonlyMap<string, string>[],
    isOnBoth: boolean
  ): HTMLElement {
    const texts = facts.map(each => each.get(name) ?? '');
    const differs = isOnBoth && texts[0] !== texts[1];
    return h(
      'tr',
      differs ? { class: 'hl-compare-differs' } : {},
      h('th', { scope: 'row' }, name, differs && h('span', { class: 'hl-visually-hidden' }, __(' differs'))),
      ...texts.map(text => h('td', {}, text))
    );
  }

  private factsOf(side: Side, id: string | undefined): Map<string, string> {
    const scene = this.panes[side].shownScene;
    const node = id === undefined ? undefined : scene?.nodes.get(id);
    const box = id === undefined ? undefined : scene?.box(id);
    const facts = new Map<string, string>();
    if (node) {
      const only = scene?.only(node.id);
      facts.set(__('Operator'), node.op || node.kind);
      facts.set(__('Block'), node.block || __('the model itself'));
      if (only) {
        facts.set(__('Class'), only.class);
      }
      Object.entries(node.attributes).forEach(([name, text]) => facts.set(name, text));
      node.badges.forEach(badge => facts.set(badge.name, tensorText(badge)));
      facts.set(__('Outputs'), node.outputs.map(tensorText).join(', '));
    } else if (box) {
      facts.set(__('Class'), box.class);
      facts.set(__('Block'), box.block ?? '');
      facts.set(__('Operators'), String(box.operators));
      facts.set(__('Outputs'), box.outputs.map(tensorText).join(', '));
    }
    return facts;
  }

  private nameOf(side: Side, id: string | undefined): string {
    return id === undefined ? '' : this.panes[side].nameOf(id);
  }

  /** The numbers of the parameters that an operator reads, on both sides. */
  private async addNumbers(pair: Pair): Promise<void> {
    const { shown } = this;
    const paths = SIDES.map(side => parametersOf(this.node(side, pair.ids[side])));
    const rows = Math.max(...paths.map(each => each.length));
    for (let i = 0; i < Math.min(rows, SHOWN); i++) {
      const [first, second] = [paths[0]?.[i] ?? '', paths[1]?.[i] ?? ''];
      let parts: Child[];
      try {
        const reply = await shown?.values(first, second);
        parts = reply ? [reply.first && numbersOf(reply.first), reply.second && numbersOf(reply.second)] : [];
      } catch (error) {
        parts = [h('p', { class: 'hl-alert' }, asRequestError(error).message)];
      }
      if (this.described !== pair || this.shown !== shown) {
        return;
      }
      this.details.append(
        h('div', { class: 'hl-compare-numbers' }, ...parts.map(part => h('div', {}, part)))
      );
    }
  }

  private node(side: Side, id: string | undefined): GraphNode | undefined {
    return id === undefined ? undefined : this.panes[side].shownScene?.nodes.get(id);
  }

  private onKey(event: KeyboardEvent): void {
    const way = KEYS[event.key.toLowerCase()];
    const isTyping = (event.target as Element).matches('input, textarea, select');
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping) {
      return;
    }
    if (event.key === 'Escape' && this.options.onClose) {
      this.close();
    } else if (way !== undefined) {
      void this.step(way);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  private readonly sides: readonly [
    { element: HTMLElement; name: HTMLElement; pane: GraphPane },
    { element: HTMLElement; name: HTMLElement; pane: GraphPane }
  ];
  private readonly panes: readonly [GraphPane, GraphPane];
  private readonly camera: SharedCamera;
  private readonly bar: HTMLElement;
  private readonly legend: HTMLElement;
  private readonly steps: readonly HTMLButtonElement[];
  private readonly count: HTMLElement;
  private readonly details: HTMLElement;
  private shown: SideBySide | null = null;
  /** What had the focus before. */
  private before: Element | null = null;
  private pairing: Pairing | null = null;
  private described: Pair | null = null;
  /** The number of the difference that was gone to last. */
  private at = -1;
  /** One pane is brought to where the other is. */
  private isFollowing = false;
}

/** The paths of the parameters that a node reads, or is. */
function parametersOf(node: GraphNode | undefined): string[] {
  const own = node?.attributes.parameter;
  return [
    ...(own ? [own] : []),
    ...(node?.badges ?? []).map(badge => badge.path).filter(path => path !== '')
  ];
}
