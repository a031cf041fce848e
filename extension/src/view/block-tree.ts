// The tree of Blocks: ARIA tree, with columns a treegrid; keyboard, search.

import { STATES } from '../protocol/messages';
import type { BlockNode, OverlayItem } from '../protocol/messages';
import { BlockIndex } from './block-index';
import { append, h, replace } from './dom';
import { RowWindow } from './row-window';
import type { ColumnId, TreeColumns } from './tree-columns';
import { countText, shapeText } from './words';
import { __, _n } from '../text';

/** One visible line of the tree. */
interface Row {
  node: BlockNode;
  level: number;
  position: number;
  siblings: number;
  parent: string | null;
}

/** Trees up to this many Blocks start fully expanded; larger ones show two levels. */
const EXPAND_ALL = 40;

export interface BlockTreeEvents {
  onSelect: (node: BlockNode) => void;
  /** Enter or a double click on a Block. */
  onOpen?: (node: BlockNode) => void;
}

export class BlockTree {
  readonly element: HTMLElement;

  /** `columns`: numbers beside the Blocks; null where nothing can be counted. */
  constructor(
    private readonly events: BlockTreeEvents,
    private readonly columns: TreeColumns | null = null
  ) {
    this.search = h('input', {
      type: 'search',
      class: 'hl-input hl-tree-search',
      placeholder: __('Filter by name, class or state'),
      'aria-label': __('Filter the Blocks by name, class or state'),
      oninput: () => {
        this.query = this.search.value.trim().toLowerCase();
        this.render();
      },
      onkeydown: event => {
        if ((event as KeyboardEvent).key === 'ArrowDown') {
          event.preventDefault();
          this.focusRow(this.rows[0]?.node.path);
        }
      }
    });
    this.count = h('span', { class: 'hl-visually-hidden', role: 'status' });
    this.list = h('div', {
      class: 'hl-tree',
      role: 'tree',
      'aria-label': __('Blocks'),
      onkeydown: event => this.onKey(event as KeyboardEvent),
      onclick: event => this.onClick(event as MouseEvent),
      ondblclick: event => {
        const node = this.nodeAt(event.target);
        if (node) {
          this.events.onOpen?.(node);
        }
      }
    });
    this.empty = h('div', { class: 'hl-empty' }, __('No Block matches.'));
    this.body = h('div', { class: 'hl-tree-rows', role: 'none' });
    this.head = h('div', { class: 'hl-tree-head', role: 'row' });
    this.list.append(this.head, this.body);
    this.window = new RowWindow(this.list, this.body, index => this.rowFor(index));
    const tools = h('div', { class: 'hl-tree-tools' }, this.search, columns?.button);
    this.element = h('div', { class: 'hl-tree-part' }, tools, this.count, this.list, this.empty);
    this.showHead();
    if (columns && typeof ResizeObserver !== 'undefined') {
      new ResizeObserver(() => columns.resize(this.element.clientWidth)).observe(this.element);
    }
  }

  /** Other columns are chosen, or their numbers came. */
  showColumns(): void {
    this.showHead();
    this.render();
  }

  private showHead(): void {
    const shown = this.columns?.shown ?? [];
    this.list.setAttribute('role', shown.length > 0 ? 'treegrid' : 'tree');
    this.list.classList.toggle('hl-tree-columns', shown.length > 0);
    this.list.classList.toggle('hl-tree-what-if', this.columns?.isWhatIf ?? false);
    this.body.setAttribute('role', shown.length > 0 ? 'rowgroup' : 'none');
    this.head.hidden = shown.length === 0;
    replace(
      this.head,
      h('span', { class: 'hl-row-block', role: 'columnheader' }, __('Block')),
      ...shown.map(column =>
        h(
          'span',
          { class: `hl-col hl-col-${column.id}`, role: 'columnheader', title: column.about },
          column.head
        )
      )
    );
  }

  get selected(): string | null {
    return this.selectedPath;
  }

  /** Show a tree. What was expanded and selected stays, by path; a new tree starts with its top selected. */
  show(root: BlockNode, key: string): void {
    const index = new BlockIndex(root);
    if (key !== this.key) {
      this.key = key;
      this.expanded = new Set();
      this.selectedPath = null;
      const expand = (node: BlockNode, level: number): void => {
        if (index.size <= EXPAND_ALL || level < 2) {
          this.expanded.add(node.path);
          node.children.forEach(child => expand(child, level + 1));
        }
      };
      expand(root, 1);
    }
    this.index = index;
    if (this.selectedPath === null || !index.node(this.selectedPath)) {
      this.selectedPath = root.path;
    }
    this.search.hidden = index.size < 6;
    this.render();
  }

  /** Select a Block by path and show it; false where the tree has none. */
  select(path: string, focus = false): boolean {
    if (!this.index?.node(path)) {
      return false;
    }
    this.index.ancestors(path).forEach(ancestor => this.expanded.add(ancestor));
    this.selectedPath = path;
    this.render();
    const row = this.places.get(path);
    if (row !== undefined) {
      this.window.reveal(row);
    }
    if (focus) {
      this.focusRow(path);
    }
    return true;
  }

  /** The code that gives the Block at a path in the notebook. */
  code(path: string): string {
    return this.index?.code(path) ?? path;
  }

  node(path: string): BlockNode | null {
    return this.index?.node(path) ?? null;
  }

  /** What an overlay says of Blocks, by path. */
  measure(items: ReadonlyMap<string, OverlayItem>): void {
    if (items.size > 0 || this.measured.size > 0) {
      this.measured = items;
      this.render();
    }
  }

  private render(): void {
    const { index } = this;
    if (!index) {
      return;
    }
    const hadFocus = this.list.contains(this.list.ownerDocument.activeElement);
    const matches = this.query ? index.matching(this.query) : null;
    this.rows = [];
    const visit = (
      node: BlockNode,
      level: number,
      position: number,
      siblings: number,
      parent: string | null
    ): void => {
      if (matches && !matches.shown.has(node.path)) {
        return;
      }
      this.rows.push({ node, level, position, siblings, parent });
      if (matches || this.expanded.has(node.path)) {
        const children = matches
          ? node.children.filter(child => matches.shown.has(child.path))
          : node.children;
        children.forEach((child, i) => visit(child, level + 1, i + 1, children.length, node.path));
      }
    };
    visit(index.root, 1, 1, 1, null);
    this.places = new Map(this.rows.map((row, place) => [row.node.path, place]));
    this.hits = matches?.hits ?? null;
    const stop = this.rows[this.places.get(this.selectedPath ?? '') ?? 0]?.node.path ?? null;
    this.tabStop = stop;
    this.window.show(this.rows.length, stop === null ? -1 : (this.places.get(stop) ?? -1));
    this.empty.hidden = this.rows.length > 0;
    this.count.textContent = this.hits
      ? _n('%1 match', '%1 matches', this.hits.size).replace('matchs', 'matches')
      : '';
    if (hadFocus && stop !== null) {
      this.focusRow(stop);
    }
  }

  private rowFor(place: number): HTMLElement {
    const row = this.rows[place];
    if (!row) {
      throw new RangeError(__('the tree has no row %1', place));
    }
    const { node } = row;
    const { hits } = this;
    const folder = node.children.length > 0;
    const open = folder && (hits !== null || this.expanded.has(node.path));
    const state = STATES[node.state];
    const why = node.why || __(state.meaning);
    const measured = this.measured.get(node.path);
    const columns = this.columns?.shown ?? [];
    const hasColumns = columns.length > 0;
    const output = hasColumns ? '' : node.output.map(tensor => shapeText(tensor.shape)).join(' ');
    // Before the first call the number of a layer's inputs may be unknown: the details say so.
    const count = hasColumns ? null : node.parameter_count;
    const details = h(
      'span',
      { class: 'hl-row-details' },
      output && h('span', { class: 'hl-row-output', title: __('Output shape of the last call') }, output),
      count !== null &&
        count !== 0 &&
        h(
          'span',
          { class: 'hl-row-count', title: __('Size of all parameters, nested Blocks included') },
          countText(count)
        ),
      measured &&
        h(
          'span',
          {
            class: `hl-chip hl-chip-measured${measured.bad ? ' hl-chip-findings' : ''}`,
            title: measured.text
          },
          measured.short
        )
    );
    const element = h('div', {
      class: `hl-row${hits?.has(node.path) ? ' hl-hit' : ''}`,
      role: hasColumns ? 'row' : 'treeitem',
      id: this.rowId(node.path),
      'data-path': node.path,
      'aria-level': row.level,
      'aria-posinset': row.position,
      'aria-setsize': row.siblings,
      'aria-expanded': folder ? (open ? 'true' : 'false') : undefined,
      'aria-selected': node.path === this.selectedPath ? 'true' : 'false',
      tabindex: node.path === this.tabStop ? 0 : -1,
      style: `--hl-level: ${row.level - 1}`
    });
    const block = hasColumns ? h('span', { class: 'hl-row-block', role: 'gridcell' }) : element;
    append(block, [
      h('span', { class: 'hl-twisty', 'aria-hidden': 'true' }, folder ? (open ? '▾' : '▸') : ''),
      h('span', { class: 'hl-row-name' }, node.attr || node.name),
      h('span', { class: 'hl-row-class' }, node.class),
      node.shared_with !== null &&
        h(
          'span',
          { class: 'hl-chip', title: __('The same Block as %1', this.code(node.shared_with)) },
          __('shared')
        ),
      !node.group && h('span', { class: `hl-chip hl-state-${node.state}`, title: why }, __(state.word)),
      node.findings > 0 &&
        h(
          'span',
          { class: 'hl-chip hl-chip-findings', title: _n('%1 finding', '%1 findings', node.findings) },
          `${node.findings} !`
        ),
      details
    ]);
    if (block !== element) {
      append(element, [block, ...columns.map(column => this.cellFor(column.id, node))]);
    }
    return element;
  }

  private cellFor(id: ColumnId, node: BlockNode): HTMLElement {
    const cell = this.columns?.cell(id, node) ?? { text: '', title: '' };
    return h(
      'span',
      {
        class: `hl-col hl-col-${id}`,
        role: 'gridcell',
        title: cell.title,
        ...(cell.share !== undefined && { style: `--hl-part: ${cell.share.toFixed(4)}` })
      },
      cell.text
    );
  }

  private onClick(event: MouseEvent): void {
    const node = this.nodeAt(event.target);
    if (!node) {
      return;
    }
    if ((event.target as Element).closest('.hl-twisty') && node.children.length > 0) {
      this.toggle(node, !this.expanded.has(node.path));
    } else {
      this.choose(node);
    }
    this.focusRow(node.path);
  }

  private onKey(event: KeyboardEvent): void {
    const index = this.places.get((event.target as HTMLElement).dataset.path ?? '\0') ?? -1;
    const row = this.rows[index];
    if (!row || event.altKey || event.ctrlKey || event.metaKey) {
      return;
    }
    const open = this.expanded.has(row.node.path) && row.node.children.length > 0;
    const moveTo = (target: Row | undefined): void => {
      if (target) {
        this.choose(target.node);
        this.focusRow(target.node.path);
      }
    };
    switch (event.key) {
      case 'ArrowDown':
        moveTo(this.rows[index + 1]);
        break;
      case 'ArrowUp':
        moveTo(this.rows[index - 1]);
        break;
      case 'Home':
        moveTo(this.rows[0]);
        break;
      case 'End':
        moveTo(this.rows[this.rows.length - 1]);
        break;
      case 'ArrowRight':
        if (row.node.children.length === 0) {
          break;
        }
        if (open) {
          moveTo(this.rows[index + 1]);
        } else {
          this.toggle(row.node, true);
        }
        break;
      case 'ArrowLeft':
        if (open) {
          this.toggle(row.node, false);
        } else {
          moveTo(row.parent === null ? undefined : this.rows[this.places.get(row.parent) ?? -1]);
        }
        break;
      case '*':
        this.rows
          .filter(candidate => candidate.parent === row.parent)
          .forEach(candidate => this.expanded.add(candidate.node.path));
        this.render();
        break;
      case 'Enter':
        this.choose(row.node);
        this.events.onOpen?.(row.node);
        break;
      case ' ':
        this.choose(row.node);
        break;
      default:
        if (event.key.length !== 1) {
          return;
        }
        moveTo(this.typedAhead(event.key, index));
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** The next row whose name starts with what was typed within the last half second. */
  private typedAhead(key: string, from: number): Row | undefined {
    const now = Date.now();
    this.typed = now - this.typedAt < 500 ? this.typed + key.toLowerCase() : key.toLowerCase();
    this.typedAt = now;
    const start = this.typed.length > 1 ? from : from + 1;
    const order = [...this.rows.slice(start), ...this.rows.slice(0, start)];
    return order.find(row => (row.node.attr || row.node.name).toLowerCase().startsWith(this.typed));
  }

  private toggle(node: BlockNode, open: boolean): void {
    if (open) {
      this.expanded.add(node.path);
    } else {
      this.expanded.delete(node.path);
    }
    this.render();
  }

  private choose(node: BlockNode): void {
    if (node.path !== this.selectedPath) {
      this.selectedPath = node.path;
      this.render();
    }
    this.events.onSelect(node);
  }

  private nodeAt(target: EventTarget | null): BlockNode | null {
    const element = target instanceof Element ? target.closest('.hl-row') : null;
    const path = element?.getAttribute('data-path');
    return path !== null && path !== undefined ? this.node(path) : null;
  }

  private rowId(path: string): string {
    return `${this.prefix}-${path}`;
  }

  private focusRow(path: string | undefined): void {
    const place = path === undefined ? undefined : this.places.get(path);
    if (path === undefined || place === undefined) {
      return;
    }
    this.list.querySelector('.hl-row[tabindex="0"]')?.setAttribute('tabindex', '-1');
    this.tabStop = path;
    const element = this.window.reveal(place);
    element?.setAttribute('tabindex', '0');
    element?.focus({ preventScroll: true });
    this.window.keep(place);
  }

  private readonly search: HTMLInputElement;
  private readonly list: HTMLElement;
  private readonly count: HTMLElement;
  private readonly empty: HTMLElement;
  private readonly head: HTMLElement;
  private readonly body: HTMLElement;
  private readonly window: RowWindow;
  private readonly prefix = `hl-tree-${Math.random().toString(36).slice(2, 8)}`;
  private index: BlockIndex | null = null;
  private key: string | null = null;
  private rows: Row[] = [];
  private measured: ReadonlyMap<string, OverlayItem> = new Map();
  /** Path -> place in `rows`. */
  private places = new Map<string, number>();
  /** Paths that match the filter; null without one. */
  private hits: Set<string> | null = null;
  /** The row that Tab goes to. */
  private tabStop: string | null = null;
  private expanded = new Set<string>();
  private selectedPath: string | null = null;
  private query = '';
  private typed = '';
  private typedAt = 0;
}
