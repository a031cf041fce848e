// Finding nodes and boxes: words and regular expressions over names, operators, shapes, types and states.

import type { GraphBox, GraphNode, Tensor } from '../protocol/messages';
import type { Pattern } from './pattern';
import { PatternError, pattern } from './pattern';
import type { Scene } from './scene';
import { __ } from '../text';

/** What a word may be asked of: `op:conv`. */
export const FIELDS = ['name', 'op', 'shape', 'dtype', 'state', 'class', 'block', 'param', 'kind'] as const;
type Field = (typeof FIELDS)[number];

/** Fields that a word without one looks at: numbers of shapes would be everywhere. */
const PLAIN: ReadonlySet<Field> = new Set(['name', 'op', 'class', 'block', 'param', 'kind']);

const SPECIAL = /[\\^$*+?.()[\]{}|]/;

interface Term {
  field: Field | null;
  test: (values: readonly string[], field: Field) => boolean;
}

export interface Query {
  terms: readonly Term[];
  /** What is wrong with an expression, or "". */
  problem: string;
}

/** What was found, in the order of the graph: boxes before nodes. */
export interface Found {
  hits: string[];
  problem: string;
}

/** `op:conv shape:64 "two words" relu|gelu` as the words that must all be there. */
export function query(text: string): Query {
  const terms: Term[] = [];
  const problems: string[] = [];
  for (const [, name, quoted, bare] of text.matchAll(/(?:([a-z]+):)?(?:"([^"]*)"?|(\S+))/gi)) {
    const field = FIELDS.find(known => known === name?.toLowerCase()) ?? null;
    const word = (field === null && name !== undefined ? `${name}:` : '') + (quoted ?? bare ?? '');
    if (word === '') {
      continue;
    }
    let expression: Pattern | null = null;
    if (quoted === undefined && SPECIAL.test(word)) {
      try {
        expression = pattern(word);
      } catch (error) {
        if (!(error instanceof PatternError)) {
          throw error;
        }
        problems.push(
          __('%1 is no regular expression (%2), so it is searched for as text', word, error.message)
        );
      }
    }
    terms.push(termOf(field, word, expression));
  }
  return { terms, problem: problems.join('; ') };
}

function termOf(field: Field | null, word: string, expression: Pattern | null): Term {
  const lower = word.toLowerCase();
  const dims = /^[([]?[\d?]+(?:[,x×][\d?]+)*,?[)\]]?$/.test(lower) ? lower.match(/[\d?]+/g) : null;
  const hits = (value: string): boolean =>
    value.toLowerCase().includes(lower) || (expression?.test(value) ?? false);
  return {
    field,
    test: (values, of) =>
      of === 'shape' && dims ? values.some(value => holds(value.split(','), dims)) : values.some(hits)
  };
}

/** Whether a shape has these sizes one after the other. */
function holds(shape: readonly string[], dims: readonly string[]): boolean {
  return shape.some((_, start) => dims.every((dim, i) => shape[start + i] === dim));
}

/**
 * Ids of nodes and boxes that have every word of a query. A word without a field may stand in any of their names.
 * `stateOf`: the state of the Block at a path, in words.
 */
export function search(scene: Scene, text: string, stateOf: (path: string) => string = () => ''): Found {
  const { terms, problem } = query(text);
  const hits: string[] = [];
  if (terms.length > 0) {
    const fits = (facts: Facts): boolean => terms.every(term => fitsTerm(term, facts));
    for (const box of scene.boxes.values()) {
      if (scene.layer(box.id).members.length > 0 && fits(factsOfBox(box, stateOf))) {
        hits.push(box.id);
      }
    }
    for (const node of scene.nodes.values()) {
      if (fits(factsOfNode(node, scene, stateOf))) {
        hits.push(node.id);
      }
    }
  }
  return { hits, problem };
}

type Facts = Record<Field, readonly string[]>;

function fitsTerm(term: Term, facts: Facts): boolean {
  if (term.field !== null) {
    return term.test(facts[term.field], term.field);
  }
  return FIELDS.some(field => PLAIN.has(field) && term.test(facts[field], field));
}

function factsOfBox(box: GraphBox, stateOf: (path: string) => string): Facts {
  return {
    name: [box.label],
    op: [],
    shape: box.outputs.map(shapeOf),
    dtype: box.outputs.map(output => output.dtype),
    state: box.block === null ? [] : [stateOf(box.block)],
    class: [box.class],
    block: [box.block ?? ''],
    param: [],
    kind: [box.kind]
  };
}

function factsOfNode(node: GraphNode, scene: Scene, stateOf: (path: string) => string): Facts {
  const details = Object.entries(node.attributes).map(([name, value]) => `${name}=${value}`);
  return {
    name: [node.label, ...details],
    op: [node.op],
    shape: [...node.outputs, ...node.badges].map(shapeOf),
    dtype: [...node.outputs, ...node.badges].map(({ dtype }) => dtype),
    state: [stateOf(node.block)],
    class: [scene.only(node.id)?.class ?? ''],
    block: [node.block],
    param: node.badges.flatMap(badge => [badge.name, badge.path]),
    kind: [node.kind]
  };
}

function shapeOf({ shape }: Pick<Tensor, 'shape'>): string {
  return shape === null ? '?' : shape.map(size => (size === null ? '?' : String(size))).join(',');
}
