// The graph as a program: each line of an operator leads to its node, by click or by the arrow keys and Enter.

import type { GraphReply } from '../protocol/messages';
import { h, replace } from '../view/dom';
import { __ } from '../text';

/** A statement of the program itself; those of graphs inside an operator are indented further. */
const STATEMENT = /^ {2}%\S+: .* = (\w+)\(/;

/** The node of each line of a printed graph; null for lines of no operator. */
export function nodesOfLines({ text, nodes }: Pick<GraphReply, 'text' | 'nodes'>): (string | null)[] {
  const operators = nodes.filter(node => node.kind === 'operator');
  let next = 0;
  let inside: string | null = null;
  return text.split('\n').map(line => {
    const found = STATEMENT.exec(line);
    if (found) {
      const node = operators[next];
      const fits = node !== undefined && node.op === found[1];
      next += fits ? 1 : 0;
      inside = fits ? node.id : null;
      return inside;
    }
    inside = /^ {4}/.test(line) ? inside : null;
    return inside;
  });
}

export class GraphText {
  readonly element: HTMLElement;

  constructor(private readonly onNode: (id: string) => void) {
    this.element = h('pre', {
      class: 'hl-graph-text',
      tabindex: 0,
      role: 'listbox',
      'aria-label': __(
        'The graph as text. Arrow keys go from line to line, Enter shows the operator in the picture.'
      ),
      onclick: event => this.onClick(event),
      onkeydown: event => this.onKey(event as KeyboardEvent)
    });
  }

  show(graph: GraphReply): void {
    if (graph.text === this.shown) {
      return;
    }
    this.shown = graph.text;
    const ids = nodesOfLines(graph);
    this.lines = graph.text.split('\n').map((line, i) =>
      h(
        'span',
        {
          class: ids[i] === null ? 'hl-text-line' : 'hl-text-line hl-text-node',
          id: `${this.prefix}-${i}`,
          role: 'option',
          'aria-selected': 'false',
          'data-node': ids[i] ?? undefined
        },
        `${line}\n`
      )
    );
    replace(this.element, ...this.lines);
    this.at = -1;
  }

  /** The line of the selected node. */
  mark(id: string | null): void {
    const index = id === null ? -1 : this.lines.findIndex(line => line.dataset.node === id);
    this.goTo(index, !this.element.hidden);
  }

  private goTo(index: number, scroll: boolean): void {
    if (index !== this.at) {
      this.lines[this.at]?.setAttribute('aria-selected', 'false');
      this.at = index;
      this.lines[index]?.setAttribute('aria-selected', 'true');
    }
    const line = this.lines[index];
    if (line) {
      this.element.setAttribute('aria-activedescendant', line.id);
      if (scroll) {
        line.scrollIntoView({ block: 'nearest' });
      }
    } else {
      this.element.removeAttribute('aria-activedescendant');
    }
  }

  private onClick(event: Event): void {
    const line = (event.target as Element).closest<HTMLElement>('[data-node]');
    const selection = this.element.ownerDocument.getSelection();
    if (line?.dataset.node !== undefined && (selection === null || selection.isCollapsed)) {
      this.onNode(line.dataset.node);
    }
  }

  private onKey(event: KeyboardEvent): void {
    const way = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (way !== 0) {
      event.preventDefault();
      let next = this.at + way;
      while (this.lines[next] && this.lines[next]?.dataset.node === undefined) {
        next += way;
      }
      if (this.lines[next]) {
        this.goTo(next, true);
      }
    } else if (event.key === 'Enter') {
      const id = this.lines[this.at]?.dataset.node;
      if (id !== undefined) {
        event.preventDefault();
        this.onNode(id);
      }
    }
  }

  private readonly prefix = `hl-text-${Math.random().toString(36).slice(2, 8)}`;
  private lines: HTMLElement[] = [];
  private at = -1;
  private shown: string | null = null;
}
