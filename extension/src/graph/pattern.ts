// Regular expressions that are matched in linear time: one that somebody types must not freeze the page, as the browser's
// own matcher does for (a+)+$. All states of the expression advance together, one character at a time (Thompson 1968).

import { __ } from '../text';

/** Why an expression is none. */
export class PatternError extends Error {}

export interface Pattern {
  /** Whether it matches somewhere in a text; upper and lower case are the same. */
  test: (text: string) => boolean;
}

/** Characters of an expression, and steps of its program. */
const LIMITS = { characters: 200, steps: 2000, repeat: 200 } as const;

type Test = (code: number) => boolean;
/** Whether a place between two characters fits; -1 stands for the start and the end of the text. */
type Place = (before: number, after: number) => boolean;

type Tree =
  | { kind: 'character'; test: Test }
  | { kind: 'place'; test: Place }
  | { kind: 'sequence' | 'choice'; parts: Tree[] }
  | { kind: 'repeat'; part: Tree; least: number; most: number };

type Step =
  | { kind: 'character'; test: Test }
  | { kind: 'place'; test: Place }
  | { kind: 'split'; to: number[] }
  | { kind: 'match' };

/** Throws PatternError. */
export function pattern(source: string): Pattern {
  if (source.length > LIMITS.characters) {
    throw new PatternError(__('longer than %1 characters', LIMITS.characters));
  }
  const steps: Step[] = [];
  const lower = source.toLowerCase();
  emit(new Parser(lower.length === source.length ? lower : source, source).parse(), steps);
  steps.push({ kind: 'match' });
  return { test: text => matches(steps, text.toLowerCase()) };
}

class Parser {
  private at = 0;

  /** `written`: as the user wrote it; classes such as \D differ from \d by their case. */
  constructor(
    private readonly source: string,
    private readonly written: string
  ) {}

  parse(): Tree {
    const tree = this.choice();
    if (this.at < this.source.length) {
      throw new PatternError(__('a ) without its ('));
    }
    return tree;
  }

  private choice(): Tree {
    const parts = [this.sequence()];
    while (this.take('|')) {
      parts.push(this.sequence());
    }
    const [first] = parts;
    return first !== undefined && parts.length === 1 ? first : { kind: 'choice', parts };
  }

  private sequence(): Tree {
    const parts: Tree[] = [];
    while (this.at < this.source.length && !'|)'.includes(this.peek())) {
      parts.push(this.repeated(this.atom()));
    }
    return { kind: 'sequence', parts };
  }

  private repeated(part: Tree): Tree {
    const [least, most] = this.times();
    if (least === 1 && most === 1) {
      return part;
    }
    this.take('?'); // lazy: the same where only the whole counts
    if (this.at < this.source.length && '*+?'.includes(this.peek())) {
      throw new PatternError(__('nothing to repeat before %1', this.peek()));
    }
    return { kind: 'repeat', part, least, most };
  }

  private times(): [number, number] {
    if (this.take('*')) {
      return [0, Infinity];
    }
    if (this.take('+')) {
      return [1, Infinity];
    }
    if (this.take('?')) {
      return [0, 1];
    }
    const found = /^\{(\d+)(?:(,)(\d*))?\}/.exec(this.source.slice(this.at));
    if (!found) {
      return [1, 1];
    }
    this.at += found[0].length;
    const least = Number(found[1]);
    const most = found[2] === undefined ? least : found[3] === '' ? Infinity : Number(found[3]);
    if (most < least) {
      throw new PatternError(__('{%1,%2} counts down', least, most));
    }
    if (Math.max(least, most === Infinity ? 0 : most) > LIMITS.repeat) {
      throw new PatternError(__('more than %1 times', LIMITS.repeat));
    }
    return [least, most];
  }

  private atom(): Tree {
    const character = this.next();
    switch (character) {
      case '(':
        return this.group();
      case '[':
        return { kind: 'character', test: this.set() };
      case '.':
        return { kind: 'character', test: () => true };
      case '^':
        return { kind: 'place', test: before => before < 0 };
      case '$':
        return { kind: 'place', test: (_, after) => after < 0 };
      case '\\':
        return this.escape();
      case '*':
      case '+':
      case '?':
        throw new PatternError(__('nothing to repeat before %1', character));
      default:
        return { kind: 'character', test: is(character) };
    }
  }

  private group(): Tree {
    if (this.take('?') && !this.take(':')) {
      throw new PatternError(__('look-around and named groups are not supported'));
    }
    const tree = this.choice();
    if (!this.take(')')) {
      throw new PatternError(__('a ( without its )'));
    }
    return tree;
  }

  private escape(): Tree {
    const letter = this.written[this.at];
    if (letter === 'b' || letter === 'B') {
      this.at++;
      const isEdge: Place = (before, after) => isWord(before) !== isWord(after);
      return { kind: 'place', test: letter === 'b' ? isEdge : (before, after) => !isEdge(before, after) };
    }
    return { kind: 'character', test: this.escaped() };
  }

  private escaped(): Test {
    const letter = this.written[this.at];
    if (letter === undefined) {
      throw new PatternError(__('it ends with a backslash'));
    }
    this.at++;
    const test = CLASSES[letter.toLowerCase()];
    if (test) {
      return letter === letter.toLowerCase() ? test : code => !test(code);
    }
    if (/[1-9]/.test(letter)) {
      throw new PatternError(__('back-references are not supported'));
    }
    return is(letter.toLowerCase());
  }

  private set(): Test {
    const isNot = this.take('^');
    const tests: Test[] = [];
    for (let isFirst = true; isFirst || this.peek() !== ']'; isFirst = false) {
      if (this.at >= this.source.length) {
        throw new PatternError(__('a [ without its ]'));
      }
      const from = this.next();
      if (from === '\\') {
        tests.push(this.escaped());
      } else if (this.peek() === '-' && (this.source[this.at + 1] ?? ']') !== ']') {
        this.at++;
        const [low, high] = [from.charCodeAt(0), this.next().charCodeAt(0)];
        if (high < low) {
          throw new PatternError(__('a range that goes backwards'));
        }
        tests.push(code => code >= low && code <= high);
      } else {
        tests.push(is(from));
      }
    }
    this.at++;
    return code => tests.some(test => test(code)) !== isNot;
  }

  private peek(): string {
    return this.source[this.at] ?? '';
  }

  private next(): string {
    return this.source[this.at++] ?? '';
  }

  private take(character: string): boolean {
    const isThere = this.peek() === character && character !== '';
    this.at += isThere ? 1 : 0;
    return isThere;
  }
}

function is(character: string): Test {
  const wanted = character.charCodeAt(0);
  return code => code === wanted;
}

const isDigit: Test = code => code >= 48 && code <= 57;
const isWord: Test = code => isDigit(code) || (code >= 97 && code <= 122) || code === 95;
const isSpace: Test = code => code === 32 || (code >= 9 && code <= 13) || code === 160;
const CLASSES: Record<string, Test> = { d: isDigit, w: isWord, s: isSpace };

function emit(tree: Tree, steps: Step[]): void {
  if (steps.length > LIMITS.steps) {
    throw new PatternError(__('too many repetitions'));
  }
  switch (tree.kind) {
    case 'character':
    case 'place':
      steps.push(tree);
      return;
    case 'sequence':
      tree.parts.forEach(part => emit(part, steps));
      return;
    case 'choice': {
      const split: Step = { kind: 'split', to: [] };
      const ends: { kind: 'split'; to: number[] }[] = [];
      steps.push(split);
      for (const part of tree.parts) {
        split.to.push(steps.length);
        emit(part, steps);
        const end: Step = { kind: 'split', to: [] };
        ends.push(end);
        steps.push(end);
      }
      ends.forEach(end => end.to.push(steps.length));
      return;
    }
    case 'repeat': {
      for (let i = 0; i < tree.least; i++) {
        emit(tree.part, steps);
      }
      if (tree.most === Infinity) {
        const split: Step = { kind: 'split', to: [steps.length + 1] };
        const start = steps.length;
        steps.push(split);
        emit(tree.part, steps);
        steps.push({ kind: 'split', to: [start] });
        split.to.push(steps.length);
        return;
      }
      const splits: { kind: 'split'; to: number[] }[] = [];
      for (let i = tree.least; i < tree.most; i++) {
        const split: Step = { kind: 'split', to: [steps.length + 1] };
        splits.push(split);
        steps.push(split);
        emit(tree.part, steps);
      }
      splits.forEach(split => split.to.push(steps.length));
    }
  }
}

/** At most as many operations as the text has characters, times the steps of the program. */
function matches(steps: readonly Step[], text: string): boolean {
  const seen = new Int32Array(steps.length).fill(-1);
  let now: number[] = [];
  let then: number[] = [];
  const waiting: number[] = [];
  /** Put a step, and what it leads to without a character, among `list`; true at the end of the expression. */
  const add = (start: number, list: number[], at: number): boolean => {
    const before = at > 0 ? text.charCodeAt(at - 1) : -1;
    const after = at < text.length ? text.charCodeAt(at) : -1;
    waiting.push(start);
    for (let index = waiting.pop(); index !== undefined; index = waiting.pop()) {
      if (seen[index] === at) {
        continue;
      }
      seen[index] = at;
      const step = steps[index];
      if (step?.kind === 'match') {
        waiting.length = 0;
        return true;
      }
      if (step?.kind === 'split') {
        waiting.push(...step.to);
      } else if (step?.kind === 'character') {
        list.push(index);
      } else if (step?.test(before, after)) {
        waiting.push(index + 1);
      }
    }
    return false;
  };
  for (let at = 0; at <= text.length; at++) {
    if (add(0, now, at)) {
      return true;
    }
    if (at === text.length) {
      return false;
    }
    const code = text.charCodeAt(at);
    then = [];
    for (const index of now) {
      const step = steps[index];
      if (step?.kind === 'character' && step.test(code) && add(index + 1, then, at + 1)) {
        return true;
      }
    }
    now = then;
  }
  return false;
}
