// A tree of Blocks for quick look-ups: by path, upwards, and by what a user types into the filter.

import { type BlockNode, type ChangesReply, STATES } from '../protocol/messages';
import { accessPath } from './words';
import { __ } from '../text';

interface Entry {
  node: BlockNode;
  parent: string | null;
  /** What the filter looks through, in lower case. */
  text: string;
}

export class BlockIndex {
  constructor(readonly root: BlockNode) {
    const add = (node: BlockNode, parent: string | null): void => {
      const texts = [node.attr, node.name, node.class, node.path, __(STATES[node.state].word)];
      this.entries.set(node.path, { node, parent, text: texts.join('\n').toLowerCase() });
      node.children.forEach(child => add(child, node.path));
    };
    add(root, null);
  }

  get size(): number {
    return this.entries.size;
  }

  node(path: string): BlockNode | null {
    return this.entries.get(path)?.node ?? null;
  }

  /** The code that gives the Block in the notebook: `net.features[0]`. */
  code(path: string): string {
    this.codes ??= codesOf(this.root);
    return this.codes.get(path) ?? accessPath(this.root.attr, path);
  }

  /** The paths above a Block, nearest first. */
  ancestors(path: string): string[] {
    const found: string[] = [];
    for (let at = this.entries.get(path)?.parent ?? null; at !== null;) {
      found.push(at);
      at = this.entries.get(at)?.parent ?? null;
    }
    return found;
  }

  /** Paths that match the query, and those to show: the matches and what leads to them. */
  matching(query: string): { hits: Set<string>; shown: Set<string> } {
    const hits = new Set<string>();
    const shown = new Set<string>();
    for (const [path, entry] of this.entries) {
      if (entry.text.includes(query)) {
        hits.add(path);
        for (let at: string | null = path; at !== null && !shown.has(at);) {
          shown.add(at);
          at = this.entries.get(at)?.parent ?? null;
        }
      }
    }
    return { hits, shown };
  }

  private readonly entries = new Map<string, Entry>();
  private codes: ReadonlyMap<string, string> | null = null;
}

/** By path, the code that gives each Block in the notebook; the code of the top is its name. */
export function codesOf(root: BlockNode): ReadonlyMap<string, string> {
  const codes = new Map<string, string>();
  const add = (node: BlockNode, code: string): void => {
    codes.set(node.path, code);
    node.children.forEach((child, place) => {
      const [before, after] = node.codes[place] ?? [];
      // An older kernel, and the page of an earlier one, do not say how a child is read.
      const own =
        before === undefined || after === undefined
          ? accessPath(root.attr, child.path)
          : before + code + after;
      add(child, own);
    });
  };
  add(root, root.attr);
  return codes;
}

/** A tree with changed Blocks put in; null where only the whole tree tells what changed. */
export function withChanges(root: BlockNode, { whole, blocks }: ChangesReply): BlockNode | null {
  const old = new Map<string, BlockNode>();
  const note = (node: BlockNode): void => {
    old.set(node.path, node);
    node.children.forEach(note);
  };
  note(root);
  const changed = new Map(blocks.map(block => [block.path, block]));
  const isKnown = (path: string): boolean => changed.has(path) || old.has(path);
  const build = (path: string): BlockNode => {
    const { below, ...row } = changed.get(path) ?? {
      ...(old.get(path) ?? root),
      below: (old.get(path) ?? root).children.map(child => child.path)
    };
    return { ...row, children: below.map(build) };
  };
  return whole || !blocks.every(block => block.below.every(isKnown)) ? null : build('');
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
