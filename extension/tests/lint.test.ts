// Lint: who is asked, how often, and where a finding stands in the editor.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Text } from '@codemirror/state';
import { callMarks } from '../src/lab/editor-marks';
import type { CellDiagnostics } from '../src/lint/lint-client';
import { LintClient } from '../src/lint/lint-client';
import { changesOf, offsetAt, rangeOf } from '../src/lint/positions';
import { diagnostic } from './records';

const cells = [{ id: 'a', source: 'x.shape' }];
const found = (message: string): CellDiagnostics => ({ a: [diagnostic({ message })] });

test('the kernel answers first', async () => {
  const client = new LintClient(() => ({
    kernel: async () => found('kernel'),
    server: async () => found('server')
  }));
  assert.equal((await client.lint(cells))?.a?.[0]?.message, 'kernel');
});

test('the server answers where the kernel cannot', async () => {
  const late = new LintClient(() => ({
    kernel: () => Promise.reject(new Error('timeout')),
    server: async () => found('server')
  }));
  assert.equal((await late.lint(cells))?.a?.[0]?.message, 'server');
  const none = new LintClient(() => ({ kernel: null, server: async () => found('server') }));
  assert.equal((await none.lint(cells))?.a?.[0]?.message, 'server');
});

test('nobody answers: null, so that what is shown stays', async () => {
  const client = new LintClient(() => ({ kernel: null, server: () => Promise.reject(new Error('404')) }));
  assert.equal(await client.lint(cells), null);
});

test('equal questions are asked once, until answers are forgotten', async () => {
  let asked = 0;
  const kernel = async (): Promise<CellDiagnostics> => {
    asked++;
    return found('kernel');
  };
  const client = new LintClient(() => ({ kernel, server: null }));
  await Promise.all([client.lint(cells), client.lint(cells)]);
  await client.lint(cells);
  assert.equal(asked, 1);
  client.forget();
  await client.lint(cells);
  await client.lint([{ id: 'a', source: 'other' }]);
  assert.equal(asked, 3);
});

const doc = Text.of(['def f(x):', '    é = "😀😀"; x.shape', '', 'end']);

test('columns count characters, offsets count UTF-16 units', () => {
  const col = [...doc.line(2).text].indexOf('x');
  assert.equal(doc.sliceString(offsetAt(doc, 2, col), offsetAt(doc, 2, col + 7)), 'x.shape');
});

test('ranges are clamped to the text', () => {
  const place = (line: number, col: number, end_line: number, end_col: number): string => {
    const { from, to } = rangeOf(doc, { line, col, end_line, end_col });
    return doc.sliceString(from, to);
  };
  assert.equal(place(1, 4, 1, 5), 'f');
  assert.equal(place(1, 4, 1, 4), 'f(x):'); // an empty range underlines the rest of its line
  assert.equal(place(4, 0, 99, 99), 'end');
  assert.equal(place(99, 0, 99, 5), 'end');
  assert.equal(place(-3, -1, 1, 3), 'def');
  assert.equal(place(3, 5, 3, 9), '');
});

test('calls that lead to a finding are marked in their own cell', () => {
  const location = {
    file: '',
    label: '',
    cell: null,
    cell_id: 'b',
    line: 7,
    col: 8,
    end_line: 7,
    end_col: 13
  };
  const fix = { title: '', safe: true, edits: [] };
  const marks = callMarks(
    { a: [diagnostic({ fix, calls: [{ message: 'calls `scale`', location }] })], b: [] },
    (id, { line }) => ({ place: `${id}, line ${line}`, jump: null })
  );
  assert.deepEqual(Object.keys(marks), ['b']);
  const [mark] = marks.b ?? [];
  assert.deepEqual(
    [mark?.diagnostic.message, mark?.diagnostic.line, mark?.diagnostic.end_col, mark?.diagnostic.fix],
    ['calls `scale`', 7, 13, null]
  );
  assert.equal(mark?.finding?.place, 'a, line 2');
});

test('MXNet rules are another question', async () => {
  const targets: string[] = [];
  const client = new LintClient(() => ({
    kernel: async (_, target) => {
      targets.push(target);
      return found('kernel');
    },
    server: null
  }));
  await client.lint(cells);
  await client.lint(cells, 'mxnet');
  assert.deepEqual(targets, ['', 'mxnet']);
});

test('a fix changes the text that was checked, and no other', () => {
  const checked = Text.of(['a', 'x.shape', 'b']);
  const edits = [{ line: 2, col: 0, end_line: 2, end_col: 1, text: 'y' }];
  assert.deepEqual(changesOf(checked, checked, edits), [{ from: 2, to: 3, insert: 'y' }]);
  assert.deepEqual(changesOf(checked, Text.of(['long', 'x.shape']), edits), [
    { from: 5, to: 6, insert: 'y' }
  ]);
  assert.equal(changesOf(checked, Text.of(['new', 'a', 'x.shape']), edits), null);
  assert.equal(changesOf(checked, Text.of(['a']), edits), null);
});
