// The details of one Block, or of one node of its graph, as a table.

import { boxTitle } from '../graph/card';
import { STATES } from '../protocol/messages';
import type { BlockNode, GraphBox, GraphNode, Location, Parameter } from '../protocol/messages';
import type { Child } from './dom';
import { button, h, replace } from './dom';
import { countText, shapeText, tensorText } from './words';
import { __, _n } from '../text';

export interface DetailsEvents {
  /** Go to a place in the user's code; absent where nothing can be jumped to. */
  onLocation?: (location: Location) => void;
  /** Select another Block. */
  onBlock: (path: string) => void;
  /** Select a box of the graph: the kernel, or what else an operator runs in. */
  onBox: (id: string) => void;
  /** Show the numbers of a parameter of the Block at `path`; absent where there is no kernel. */
  onNumbers?: (path: string, parameter: Parameter) => void;
}

export class Details {
  readonly element = h('div', {
    class: 'hl-details',
    role: 'region',
    'aria-label': __('Details'),
    'aria-live': 'polite'
  });

  /** The places that nodes and boxes of the shown graph name by index. */
  locations: readonly Location[] = [];

  /** `codeOf`: the code that gives the Block at a path in the notebook. */
  constructor(
    private readonly events: DetailsEvents,
    private readonly codeOf: (path: string) => string
  ) {}

  clear(): void {
    this.path = null;
    replace(this.element);
  }

  /** What is counted in the Block at a path, as rows. */
  workOf: (path: string) => readonly [string, string][] = () => [];

  /** Show what is counted in the Block that is shown, if one is. */
  showWork(): void {
    this.element.querySelectorAll('.hl-fact-work').forEach(row => row.remove());
    const { path } = this;
    if (path !== null) {
      for (const [name, text] of this.workOf(path)) {
        this.element
          .querySelector('.hl-facts tbody')
          ?.append(h('tr', { class: 'hl-fact-work' }, h('th', { scope: 'row' }, name), h('td', {}, text)));
      }
    }
  }

  /** What the overlay measured of what is shown; '' where it did not. */
  setMeasured(text: string): void {
    const row = this.element.querySelector('.hl-measured');
    if (text === (row?.lastElementChild?.textContent ?? '')) {
      return;
    }
    row?.remove();
    if (text !== '') {
      this.element
        .querySelector('.hl-facts tbody')
        ?.append(
          h('tr', { class: 'hl-measured' }, h('th', { scope: 'row' }, __('Measured')), h('td', {}, text))
        );
    }
  }

  /** Numbers of a parameter of the Block that is shown. They come into view; the page around the drawer stays. */
  showNumbers(...numbers: HTMLElement[]): void {
    this.element.querySelector('.hl-numbers-of')?.remove();
    const place = h('div', { class: 'hl-numbers-of' }, ...numbers);
    this.element.append(place);
    const body = this.element.closest('.hl-drawer-body');
    if (body) {
      const [shown, room] = [place.getBoundingClientRect(), body.getBoundingClientRect()];
      body.scrollTop += Math.max(0, Math.min(shown.bottom - room.bottom, shown.top - room.top));
    }
  }

  showBlock(block: BlockNode): void {
    const state = STATES[block.state];
    this.path = block.path;
    replace(
      this.element,
      h('p', { class: 'hl-title' }, h('code', {}, this.codeOf(block.path))),
      this.table([
        [__('Class'), block.class],
        [__('Printed as'), block.repr !== `${block.class}(...)` && block.repr && h('code', {}, block.repr)],
        [
          __('State'),
          !block.group && h('span', {}, h('b', {}, __(state.word)), ` — ${block.why || __(state.meaning)}`)
        ],
        [__('Engine'), block.engine],
        [__('Graphs'), block.hybrid ? String(block.graphs) : ''],
        [
          __('Output'),
          block.output.length > 0
            ? block.output.map(tensorText).join(', ')
            : !block.group && __('not called yet')
        ],
        [
          __('Parameters'),
          block.parameter_count === null
            ? __('not known before the first call')
            : __('%1 numbers, nested Blocks included', countText(block.parameter_count))
        ],
        [__('Shared with'), block.shared_with !== null && this.blockLink(block.shared_with)],
        [__('Source'), this.place(block.location)]
      ]),
      block.parameters.length > 0 &&
        h(
          'table',
          { class: 'hl-parameters' },
          h(
            'thead',
            {},
            h(
              'tr',
              {},
              ...[__('Parameter'), __('Shape'), __('Type'), __('Gradient')].map(name =>
                h('th', { scope: 'col' }, name)
              )
            )
          ),
          h(
            'tbody',
            {},
            ...block.parameters.map(parameter =>
              h(
                'tr',
                {},
                h(
                  'td',
                  {},
                  this.parameterName(block.path, parameter),
                  parameter.shared && h('span', { class: 'hl-chip' }, __('shared'))
                ),
                h('td', {}, shapeText(parameter.shape)),
                h('td', {}, parameter.dtype),
                h('td', {}, parameter.grad_req)
              )
            )
          )
        )
    );
    this.showWork();
  }

  /** `frames`: the kernels and sessions around it, innermost first. */
  showNode(node: GraphNode, frames: readonly GraphBox[]): void {
    this.path = null;
    const attributes = Object.entries(node.attributes);
    replace(
      this.element,
      h('p', { class: 'hl-title' }, h('code', {}, node.label || node.op)),
      this.table([
        [__('Kind'), node.kind],
        [__('Operator'), node.op && h('code', {}, node.op)],
        [__('Outputs'), node.outputs.map(tensorText).join(', ')],
        [__('Block'), this.blockLink(node.block)],
        ...this.runsIn(frames),
        [__('Engine'), node.engine],
        [__('Source'), this.placeAt(node.location)],
        ...attributes.map(([name, value]): [string, Child] => [name, h('code', {}, value)]),
        ...node.badges.map((badge): [string, Child] => [
          badge.name,
          [tensorText(badge), badge.path].filter(part => part).join(' — ')
        ])
      ])
    );
  }

  /** `operators`: the names of those inside; `frames`: the kernels and sessions around the box, innermost first. */
  showBox(box: GraphBox, frames: readonly GraphBox[], operators: readonly string[]): void {
    this.path = null;
    replace(
      this.element,
      h('p', { class: 'hl-title' }, h('code', {}, boxTitle(box).title)),
      this.table([
        [__('Kind'), BOX_KINDS[box.kind]],
        [__('Class'), box.class],
        [__('Holds'), box.summary || _n('%1 operator', '%1 operators', box.operators)],
        [__('Outputs'), box.outputs.map(tensorText).join(', ')],
        [__('Block'), box.block !== null && this.blockLink(box.block)],
        ...this.runsIn(frames),
        [__('Source'), this.placeAt(box.location)],
        ...box.notes.map((note, index): [string, Child] => [index > 0 ? '' : __('Runs'), note]),
        [__('Operators'), counted(operators)]
      ]),
      box.text !== '' &&
        h(
          'pre',
          {
            class: 'hl-source',
            tabindex: 0,
            'aria-label': __('Source of %1', box.label),
            'aria-live': 'off'
          },
          box.text
        )
    );
  }

  /** The Block that is shown. */
  private path: string | null = null;

  private parameterName(path: string, parameter: Parameter): Child {
    const { onNumbers } = this.events;
    return onNumbers
      ? button(parameter.name, () => onNumbers(path, parameter), {
          class: 'hl-link',
          title: __('Show its numbers, a histogram, and its gradient')
        })
      : parameter.name;
  }

  private runsIn(frames: readonly GraphBox[]): [string, Child][] {
    return frames.map((frame, index): [string, Child] => [
      index > 0 ? '' : __('Runs in'),
      button(frame.label, () => this.events.onBox(frame.id), {
        class: 'hl-link',
        title: __('Show this %1', frame.kind)
      })
    ]);
  }

  private table(rows: [string, Child][]): HTMLElement {
    return h(
      'table',
      { class: 'hl-facts' },
      h(
        'tbody',
        {},
        ...rows
          .filter(([, value]) => value)
          .map(([name, value]) => h('tr', {}, h('th', { scope: 'row' }, name), h('td', {}, value)))
      )
    );
  }

  private placeAt(index: number | null): Child {
    return this.place(index === null ? null : (this.locations[index] ?? null));
  }

  private place(location: Location | null): Child {
    if (!location) {
      return null;
    }
    const { onLocation } = this.events;
    const canJump = onLocation && (location.cell_id !== '' || location.cell !== null);
    return canJump
      ? button(location.label, () => onLocation(location), { class: 'hl-link', title: __('Go to this line') })
      : h('span', {}, location.label);
  }

  private blockLink(path: string): HTMLElement {
    return button(this.codeOf(path), () => this.events.onBlock(path), {
      class: 'hl-link',
      title: __('Select this Block')
    });
  }
}

const BOX_KINDS: Record<GraphBox['kind'], string> = {
  block: __('Block'),
  fold: __('alike Blocks in a row'),
  part: __('part of a long graph'),
  kernel: 'kernel',
  session: 'session',
  prologue: __('prologue: runs when a parameter changes')
};

/** `2 Convolution, 1 relu`, the most frequent first. */
function counted(operators: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const name of operators) {
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts]
    .sort((a, b) => b[1] - a[1])
    .map(([name, count]) => `${count} ${name}`)
    .join(', ');
}
