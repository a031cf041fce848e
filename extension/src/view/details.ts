// The details of one Block, or of one node of its graph, as a table.

import { boxTitle } from '../graph/card';
import { STATES } from '../protocol/messages';
import type { BlockNode, GraphBox, GraphNode, Location, Parameter } from '../protocol/messages';
import { Child, button, h, replace } from './dom';
import { accessPath, countText, plural, shapeText, tensorText } from './words';

export interface DetailsEvents {
  /** Go to a place in the user's code; absent where nothing can be jumped to. */
  onLocation?(location: Location): void;
  /** Select another Block. */
  onBlock(path: string): void;
  /** Select a box of the graph: the kernel, or what else an operator runs in. */
  onBox(id: string): void;
  /** Show the numbers of a parameter of the Block at `path`; absent where there is no kernel. */
  onNumbers?(path: string, parameter: Parameter): void;
}

export class Details {
  readonly element = h('div', {
    class: 'hl-details',
    role: 'region',
    'aria-label': 'Details',
    'aria-live': 'polite'
  });

  /** The places that nodes and boxes of the shown graph name by index. */
  locations: readonly Location[] = [];

  constructor(private readonly events: DetailsEvents) {}

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
        ?.append(h('tr', { class: 'hl-measured' }, h('th', { scope: 'row' }, 'Measured'), h('td', {}, text)));
    }
  }

  /** Numbers of a parameter of the Block that is shown. */
  showNumbers(...numbers: HTMLElement[]): void {
    this.element.querySelector('.hl-numbers-of')?.remove();
    this.element.append(h('div', { class: 'hl-numbers-of' }, ...numbers));
  }

  showBlock(block: BlockNode, modelName: string): void {
    const state = STATES[block.state];
    this.path = block.path;
    replace(
      this.element,
      h('p', { class: 'hl-title' }, h('code', {}, accessPath(modelName, block.path))),
      this.table([
        ['Class', block.class],
        ['Is', block.repr !== `${block.class}(...)` && block.repr && h('code', {}, block.repr)],
        ['State', h('span', {}, h('b', {}, state.word), ` — ${block.why || state.meaning}`)],
        ['Engine', block.engine],
        ['Graphs', block.hybrid ? String(block.graphs) : ''],
        ['Output', block.output.length > 0 ? block.output.map(tensorText).join(', ') : 'not called yet'],
        [
          'Parameters',
          block.parameter_count === null
            ? 'not known before the first call'
            : `${countText(block.parameter_count)} numbers, nested Blocks included`
        ],
        ['Shared with', block.shared_with !== null && this.blockLink(block.shared_with, modelName)],
        ['Source', this.place(block.location)]
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
              ...['Parameter', 'Shape', 'Type', 'Gradient'].map(name => h('th', { scope: 'col' }, name))
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
                  parameter.shared && h('span', { class: 'hl-chip' }, 'shared')
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
  showNode(node: GraphNode, frames: readonly GraphBox[], modelName: string): void {
    this.path = null;
    const attributes = Object.entries(node.attributes);
    replace(
      this.element,
      h('p', { class: 'hl-title' }, h('code', {}, node.label || node.op)),
      this.table([
        ['Kind', node.kind],
        ['Operator', node.op && h('code', {}, node.op)],
        ['Outputs', node.outputs.map(tensorText).join(', ')],
        ['Block', this.blockLink(node.block, modelName)],
        ...this.runsIn(frames),
        ['Engine', node.engine],
        ['Source', this.placeAt(node.location)],
        ...attributes.map(([name, value]): [string, Child] => [name, h('code', {}, value)]),
        ...node.badges.map((badge): [string, Child] => [
          badge.name,
          [tensorText(badge), badge.path].filter(part => part).join(' — ')
        ])
      ])
    );
  }

  /** `operators`: the names of those inside; `frames`: the kernels and sessions around the box, innermost first. */
  showBox(box: GraphBox, frames: readonly GraphBox[], operators: readonly string[], modelName: string): void {
    this.path = null;
    replace(
      this.element,
      h('p', { class: 'hl-title' }, h('code', {}, boxTitle(box).title)),
      this.table([
        ['Kind', BOX_KINDS[box.kind]],
        ['Class', box.class],
        ['Holds', box.summary || plural(box.operators, 'operator')],
        ['Outputs', box.outputs.map(tensorText).join(', ')],
        ['Block', box.block !== null && this.blockLink(box.block, modelName)],
        ...this.runsIn(frames),
        ['Source', this.placeAt(box.location)],
        ...box.notes.map((note, index): [string, Child] => [index > 0 ? '' : 'Runs', note]),
        ['Operators', counted(operators)]
      ]),
      box.text !== '' &&
        h(
          'pre',
          { class: 'hl-source', tabindex: 0, 'aria-label': `Source of ${box.label}`, 'aria-live': 'off' },
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
          title: 'Show its numbers, a histogram, and its gradient'
        })
      : parameter.name;
  }

  private runsIn(frames: readonly GraphBox[]): [string, Child][] {
    return frames.map((frame, index): [string, Child] => [
      index > 0 ? '' : 'Runs in',
      button(frame.label, () => this.events.onBox(frame.id), {
        class: 'hl-link',
        title: `Show this ${frame.kind}`
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
      ? button(location.label, () => onLocation(location), { class: 'hl-link', title: 'Go to this line' })
      : h('span', {}, location.label);
  }

  private blockLink(path: string, modelName: string): HTMLElement {
    return button(accessPath(modelName, path), () => this.events.onBlock(path), {
      class: 'hl-link',
      title: 'Select this Block'
    });
  }
}

const BOX_KINDS: Record<GraphBox['kind'], string> = {
  block: 'Block',
  fold: 'alike Blocks in a row',
  part: 'part of a long graph',
  kernel: 'kernel',
  session: 'session',
  prologue: 'prologue: runs when a parameter changes'
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
