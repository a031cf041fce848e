// What is known about one Block, or one node of its graph, as a table.

import type { BlockNode, GraphBox, GraphNode, Location } from '../protocol/messages';
import { Child, button, h, replace } from './dom';
import { STATE_TEXT, accessPath, countText, shapeText, tensorText } from './words';

export interface DetailsEvents {
  /** Go to a place in the user's code; absent where nothing can be jumped to. */
  onLocation?(location: Location): void;
  /** Select another Block. */
  onBlock(path: string): void;
  /** Show the box that an operator stands in. */
  onGroup(box: GraphBox): void;
}

export class Details {
  readonly element = h('div', {
    class: 'hl-details',
    role: 'region',
    'aria-label': 'Details',
    'aria-live': 'polite'
  });

  constructor(private readonly events: DetailsEvents) {}

  clear(): void {
    replace(this.element);
  }

  showBlock(block: BlockNode, modelName: string): void {
    const state = STATE_TEXT[block.state];
    replace(
      this.element,
      h('h4', {}, h('code', {}, accessPath(modelName, block.path))),
      this.table([
        ['Class', block.class],
        ['Is', block.repr !== `${block.class}(...)` && block.repr && h('code', {}, block.repr)],
        ['State', h('span', {}, h('b', {}, state.word), ` — ${block.why || state.meaning}`)],
        ['Engine', block.engine],
        ['Graphs', block.hybrid ? String(block.graphs) : ''],
        ['Output', block.output.length > 0 ? block.output.map(tensorText).join(', ') : 'not called yet'],
        ['Parameters', `${countText(block.parameter_count)} numbers, nested Blocks included`],
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
                h('td', {}, parameter.name, parameter.shared && h('span', { class: 'hl-chip' }, 'shared')),
                h('td', {}, shapeText(parameter.shape)),
                h('td', {}, parameter.dtype),
                h('td', {}, parameter.grad_req)
              )
            )
          )
        )
    );
  }

  showNode(node: GraphNode, box: GraphBox | undefined, modelName: string): void {
    const attributes = Object.entries(node.attributes);
    replace(
      this.element,
      h('h4', {}, h('code', {}, node.label || node.op)),
      this.table([
        ['Kind', node.kind],
        ['Operator', node.op && h('code', {}, node.op)],
        ['Outputs', node.outputs.map(tensorText).join(', ')],
        ['Block', this.blockLink(node.block, modelName)],
        ['Runs in', box && this.groupLink(box)],
        ['Engine', node.engine],
        ['Source', this.place(node.location)],
        ...attributes.map(([name, value]): [string, Child] => [name, h('code', {}, value)])
      ])
    );
  }

  /** `members`: the operators in it. */
  showGroup(group: GraphBox, members: readonly GraphNode[]): void {
    replace(
      this.element,
      h('h4', {}, h('code', {}, group.label)),
      this.table([
        ['Kind', group.kind],
        ['Holds', group.summary || `${group.operators} operators`],
        ...group.notes.map((note, index): [string, Child] => [index > 0 ? '' : 'Runs', note]),
        ['Operators', members.map(node => node.op).join(', ')]
      ]),
      group.text !== '' &&
        h(
          'pre',
          { class: 'hl-source', tabindex: 0, 'aria-label': `Source of ${group.label}`, 'aria-live': 'off' },
          group.text
        )
    );
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

  private groupLink(box: GraphBox): HTMLElement {
    return button(box.label, () => this.events.onGroup(box), { class: 'hl-link', title: 'Show its source' });
  }

  private blockLink(path: string, modelName: string): HTMLElement {
    return button(accessPath(modelName, path), () => this.events.onBlock(path), {
      class: 'hl-link',
      title: 'Select this Block'
    });
  }
}
