// The tree of Blocks: ARIA tree, keyboard, search.

import type { BlockNode } from '../protocol/messages';
import { append, h, replace } from './dom';
import { STATE_TEXT, countText, plural, shapeText } from './words';

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
  onSelect(node: BlockNode): void;
  /** Enter or a double click on a Block. */
  onOpen?(node: BlockNode): void;
}

export class BlockTree {
  readonly element: HTMLElement;

  constructor(private readonly events: BlockTreeEvents) {
    this.search = h('input', {
      type: 'search',
      class: 'hl-input hl-tree-search',
      placeholder: 'Filter by name or class',
      'aria-label': 'Filter the Blocks by name or class',
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
      'aria-label': 'Blocks',
      onkeydown: event => this.onKey(event as KeyboardEvent),
      onclick: event => this.onClick(event as MouseEvent),
      ondblclick: event => {
        const node = this.nodeAt(event.target);
        if (node) {
          this.events.onOpen?.(node);
        }
      }
    });
    this.element = h('div', { class: 'hl-tree-part' }, this.search, this.count, this.list);
  }

  get selected(): string | null {
    return this.selectedPath;
  }

  /** Show a tree. What was expanded and selected stays, by path; a new tree starts with its top selected. */
  show(root: BlockNode, key: string): void {
    if (key !== this.key) {
      this.key = key;
      this.expanded = new Set();
      this.selectedPath = null;
      const total = size(root);
      const expand = (node: BlockNode, level: number): void => {
        if (total <= EXPAND_ALL || level < 2) {
          this.expanded.add(node.path);
          node.children.forEach(child => expand(child, level + 1));
        }
      };
      expand(root, 1);
    }
    this.root = root;
    if (this.selectedPath === null || !find(root, this.selectedPath)) {
      this.selectedPath = root.path;
    }
    this.search.hidden = size(root) < 6;
    this.render();
  }

  /** Select a Block by path and show it; false where the tree has none. */
  select(path: string, focus = false): boolean {
    const node = this.root && find(this.root, path);
    if (!this.root || !node) {
      return false;
    }
    for (const ancestor of ancestors(this.root, path)) {
      this.expanded.add(ancestor);
    }
    this.selectedPath = path;
    this.render();
    this.rowElement(path)?.scrollIntoView?.({ block: 'nearest' });
    if (focus) {
      this.focusRow(path);
    }
    return true;
  }

  node(path: string): BlockNode | null {
    return this.root && find(this.root, path);
  }

  private render(): void {
    const root = this.root;
    if (!root) {
      return;
    }
    const hadFocus = this.list.contains(this.list.ownerDocument.activeElement);
    const matches = this.query ? matching(root, this.query) : null;
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
    visit(root, 1, 1, 1, null);
    const tabStop = this.rows.some(row => row.node.path === this.selectedPath)
      ? this.selectedPath
      : this.rows[0]?.node.path;
    const hits = matches?.hits ?? null;
    replace(
      this.list,
      ...this.rows.map(row => this.rowFor(row, row.node.path === tabStop, hits)),
      this.rows.length === 0 && h('div', { class: 'hl-empty' }, 'No Block matches.')
    );
    this.count.textContent = hits ? plural(hits.size, 'match').replace('matchs', 'matches') : '';
    if (hadFocus && tabStop !== undefined && tabStop !== null) {
      this.focusRow(tabStop);
    }
  }

  private rowFor(row: Row, tabStop: boolean, hits: Set<string> | null): HTMLElement {
    const { node } = row;
    const folder = node.children.length > 0;
    const open = folder && (hits !== null || this.expanded.has(node.path));
    const state = STATE_TEXT[node.state];
    const why = node.why || state.meaning;
    const output = node.output.map(tensor => shapeText(tensor.shape)).join(' ');
    const details = h(
      'span',
      { class: 'hl-row-details' },
      output && h('span', { class: 'hl-row-output', title: 'Output shape of the last call' }, output),
      node.parameter_count !== 0 &&
        h(
          'span',
          { class: 'hl-row-count', title: 'Size of all parameters, nested Blocks included' },
          countText(node.parameter_count)
        )
    );
    const element = h(
      'div',
      {
        class: `hl-row${hits?.has(node.path) ? ' hl-hit' : ''}`,
        role: 'treeitem',
        id: this.rowId(node.path),
        'data-path': node.path,
        'aria-level': row.level,
        'aria-posinset': row.position,
        'aria-setsize': row.siblings,
        'aria-expanded': folder ? (open ? 'true' : 'false') : undefined,
        'aria-selected': node.path === this.selectedPath ? 'true' : 'false',
        tabindex: tabStop ? 0 : -1,
        style: `--hl-level: ${row.level - 1}`
      },
      h('span', { class: 'hl-twisty', 'aria-hidden': 'true' }, folder ? (open ? '▾' : '▸') : ''),
      h('span', { class: 'hl-row-name' }, node.attr || node.name),
      h('span', { class: 'hl-row-class' }, node.class)
    );
    append(element, [
      node.shared_with !== null &&
        h('span', { class: 'hl-chip', title: `The same Block as ${node.shared_with}` }, 'shared'),
      h('span', { class: `hl-chip hl-state-${node.state}`, title: why }, state.word),
      node.findings > 0 &&
        h(
          'span',
          { class: 'hl-chip hl-chip-findings', title: plural(node.findings, 'finding') },
          `${node.findings} !`
        ),
      details
    ]);
    return element;
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
    const index = this.rows.findIndex(row => this.rowId(row.node.path) === (event.target as Element).id);
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
          moveTo(this.rows.find(candidate => candidate.node.path === row.parent));
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
    const element = target instanceof Element ? target.closest('[role=treeitem]') : null;
    const path = element?.getAttribute('data-path');
    return path !== null && path !== undefined ? this.node(path) : null;
  }

  private rowId(path: string): string {
    return `${this.prefix}-${path}`;
  }

  private rowElement(path: string): HTMLElement | undefined {
    return [...this.list.querySelectorAll<HTMLElement>('[role=treeitem]')].find(
      element => element.getAttribute('data-path') === path
    );
  }

  private focusRow(path: string | undefined): void {
    if (path === undefined) {
      return;
    }
    const element = this.rowElement(path);
    if (element) {
      this.list.querySelectorAll('[role=treeitem]').forEach(other => other.setAttribute('tabindex', '-1'));
      element.setAttribute('tabindex', '0');
      element.focus({ preventScroll: true });
      element.scrollIntoView?.({ block: 'nearest' });
    }
  }

  private readonly search: HTMLInputElement;
  private readonly list: HTMLElement;
  private readonly count: HTMLElement;
  private readonly prefix = `hl-tree-${Math.random().toString(36).slice(2, 8)}`;
  private root: BlockNode | null = null;
  private key: string | null = null;
  private rows: Row[] = [];
  private expanded = new Set<string>();
  private selectedPath: string | null = null;
  private query = '';
  private typed = '';
  private typedAt = 0;
}

function size(node: BlockNode): number {
  return node.children.reduce((total, child) => total + size(child), 1);
}

/** The Block at `path`, or null. */
export function find(node: BlockNode, path: string): BlockNode | null {
  if (node.path === path) {
    return node;
  }
  for (const child of node.children) {
    const found = find(child, path);
    if (found) {
      return found;
    }
  }
  return null;
}

/** The first Block, in tree order, for which `test` holds. */
export function first(node: BlockNode, test: (node: BlockNode) => boolean): BlockNode | null {
  if (test(node)) {
    return node;
  }
  for (const child of node.children) {
    const found = first(child, test);
    if (found) {
      return found;
    }
  }
  return null;
}

function ancestors(node: BlockNode, path: string): string[] {
  for (const child of node.children) {
    if (child.path === path) {
      return [node.path];
    }
    const below = ancestors(child, path);
    if (below.length > 0) {
      return [node.path, ...below];
    }
  }
  return [];
}

/** Paths that match the query, and those to show: the matches and what leads to them. */
function matching(root: BlockNode, query: string): { hits: Set<string>; shown: Set<string> } {
  const hits = new Set<string>();
  const shown = new Set<string>();
  const visit = (node: BlockNode): boolean => {
    const hit = [node.attr, node.name, node.class, node.path].some(text =>
      text.toLowerCase().includes(query)
    );
    const below = node.children.map(visit).some(found => found);
    if (hit) {
      hits.add(node.path);
    }
    if (hit || below) {
      shown.add(node.path);
    }
    return hit || below;
  };
  visit(root);
  return { hits, shown };
}
