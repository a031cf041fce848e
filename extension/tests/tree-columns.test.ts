// The columns of the tree: which are shown, the numbers of the kernel, what if.

import { buttonOf, click, mount, press, settle } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RequestError } from '../src/protocol/channel';
import type { BlockWork, SummaryReply } from '../src/protocol/messages';
import { BlockTree } from '../src/view/block-tree';
import type { PaneMemory } from '../src/view/panes';
import { fleetingMemory } from '../src/view/panes';
import { TreeColumns } from '../src/view/tree-columns';
import { memoryText, preciseText } from '../src/view/words';
import { TableKernel, block, model, network } from './records';

const work = (path: string, flop: number | null, changes: Partial<BlockWork> = {}): BlockWork => ({
  path,
  counted_at: null,
  calls: flop === null ? 0 : 1,
  parameters: 850,
  multiply_adds: flop,
  flop,
  activations: flop,
  outputs: [{ shape: [2, 10], dtype: 'float32' }],
  ...changes
});

const reply = (changes: Partial<SummaryReply> = {}): SummaryReply => ({
  inputs: 'f32[2,3]',
  what_if: false,
  headline: '',
  missing: '',
  blocks: [
    work('', 4_089_184_256),
    work('features', 1_022_296_064),
    work('features.0', null),
    work('output', 20)
  ],
  ...changes
});

function shown(
  answer: (body: { inputs: string; batch: number; dtype: string }) => SummaryReply,
  memory: PaneMemory = fleetingMemory()
): { tree: BlockTree; columns: TreeColumns; kernel: TableKernel } {
  const columns: TreeColumns = new TreeColumns(memory, () => tree.showColumns(), true);
  const tree = new BlockTree({ onSelect: () => undefined }, columns);
  mount(tree.element);
  document.body.append(columns.panel);
  const kernel = new TableKernel({ summary: answer });
  columns.connect(kernel);
  tree.show(network(), 'm1');
  return { tree, columns, kernel };
}

const cells = (tree: BlockTree, path: string): (string | null)[] =>
  [...tree.element.querySelectorAll(`[data-path="${path}"] > .hl-col`)].map(cell => cell.textContent);

test('a narrow tree has no columns and asks for no numbers', async () => {
  const { tree, columns, kernel } = shown(() => reply());
  columns.resize(200);
  columns.show(model(), 850);
  await settle();
  assert.equal(tree.element.querySelector('.hl-tree')?.getAttribute('role'), 'tree');
  assert.deepEqual(kernel.asked, []);
  columns.resize(320);
  await settle();
  assert.deepEqual(cells(tree, ''), ['850', '4.09 G']);
});

test('with columns the tree is a treegrid with a head, rows and cells', async () => {
  const { tree, columns } = shown(() => reply());
  columns.resize(600);
  columns.show(model(), 850);
  const before = [...tree.element.querySelectorAll('.hl-row')].length;
  await settle();
  const grid = tree.element.querySelector('[role=treegrid]');
  assert.ok(grid);
  assert.deepEqual(
    [...grid.querySelectorAll('[role=columnheader]')].map(head => head.textContent),
    ['Block', 'Output', 'Params', 'FLOP', 'Memory']
  );
  const rows = [...grid.querySelectorAll<HTMLElement>('[role=rowgroup] > [role=row]')];
  assert.equal(rows.length, before);
  for (const row of rows) {
    assert.equal(row.querySelectorAll('[role=gridcell]').length, 5);
    assert.ok(row.getAttribute('aria-level') && row.getAttribute('aria-posinset'));
  }
  assert.equal(grid.querySelectorAll('[tabindex="0"]').length, 1);
  assert.deepEqual(cells(tree, 'features'), ['(2, 10)', '850', '1.02 G', '974.9 MiB']);
  const flop = tree.element.querySelector<HTMLElement>('[data-path=features] .hl-col-flop');
  assert.equal(flop?.style.getPropertyValue('--hl-part'), '0.2500');
  assert.equal(flop.title, '1,022,296,064 operations, 25.0% of the whole');
  assert.deepEqual(cells(tree, 'features.0').slice(2), ['–', '–']); // not called
  const top = rows[0];
  assert.ok(top);
  top.focus();
  press(top, 'ArrowDown');
  assert.equal(document.activeElement?.getAttribute('data-path'), 'features');
});

test('columns are chosen, and remembered', async () => {
  const memory = fleetingMemory();
  const { tree, columns } = shown(() => reply(), memory);
  await settle();
  const box = columns.panel.querySelector<HTMLInputElement>('[data-column=multiply_adds]');
  assert.ok(box);
  box.checked = true;
  box.dispatchEvent(new Event('change'));
  assert.deepEqual(memory.read().columns, ['multiply_adds']);
  columns.show(model(), 850);
  await settle();
  assert.deepEqual(cells(tree, 'output'), ['20']);
  columns.resize(900);
  assert.deepEqual(cells(tree, 'output'), ['20'], 'what was chosen stays, however wide the tree is');
});

test('what if: other inputs, a refusal, and back', async () => {
  const { tree, columns, kernel } = shown(({ inputs, batch }) => {
    if (inputs === 'big') {
      throw new RequestError('failed', "'big' is no shape", 'Write shapes.');
    }
    return batch ? reply({ inputs: 'f32[64,3]', what_if: true, blocks: [work('', 64)] }) : reply();
  });
  columns.resize(600);
  columns.show(model(), 850);
  await settle();
  const [inputs, batch] = [...columns.panel.querySelectorAll<HTMLInputElement>('.hl-columns-form input')];
  const says = columns.panel.querySelector('[role=status]');
  assert.ok(inputs && batch && says);
  batch.value = '64';
  click(buttonOf(columns.panel, 'Count'));
  await settle();
  assert.deepEqual(kernel.asked.at(-1)?.body, { model: 'm1', inputs: '', batch: 64, dtype: '' });
  assert.deepEqual(cells(tree, ''), ['(2, 10)', '850', '64', '64 B']);
  assert.ok(tree.element.querySelector('.hl-tree-what-if'));
  assert.match(says.textContent ?? '', /Counted for f32\[64,3\]/);
  inputs.value = 'big';
  press(inputs, 'Enter');
  await settle();
  assert.equal(says.textContent, "'big' is no shape Write shapes.");
  assert.deepEqual(cells(tree, ''), ['(2, 10)', '850', '64', '64 B'], 'a refusal changes nothing');
  click(buttonOf(columns.panel, 'Back to the last call'));
  await settle();
  assert.deepEqual(cells(tree, '')[2], '4.09 G');
  assert.equal(inputs.value, '');
});

test('why there are no numbers is said, and a busy kernel is asked again after the cell', async () => {
  let busy = true;
  const { tree, columns, kernel } = shown(() => {
    if (busy) {
      throw new RequestError('busy', 'a cell is running', '');
    }
    return reply({ inputs: '', missing: 'Shapes are unknown until the model is called.', blocks: [] });
  });
  columns.resize(600);
  columns.show(model(), null);
  await settle();
  assert.equal(
    tree.element.querySelector<HTMLElement>('[data-path=""] .hl-col-flop')?.title,
    'a cell is running'
  );
  busy = false;
  columns.show(model(), null); // the same revision
  await settle();
  assert.equal(kernel.asked.length, 2);
  const cell = tree.element.querySelector<HTMLElement>('[data-path=""] .hl-col-flop');
  assert.deepEqual([cell?.textContent, cell?.title], ['–', 'Shapes are unknown until the model is called.']);
});

test('another model starts anew; the same one of the same revision is not counted again', async () => {
  const { tree, columns, kernel } = shown(() => reply());
  columns.resize(600);
  columns.show(model(), 850);
  await settle();
  columns.show(model(), 850);
  await settle();
  assert.equal(kernel.asked.length, 1);
  tree.show(block('', { class: 'Other', parameter_count: 7 }), 'm2');
  columns.show(model({ id: 'm2' }), 7);
  tree.showColumns();
  assert.deepEqual(cells(tree, ''), ['', '7', '', '']);
  await settle();
  assert.equal(kernel.asked.length, 2);
});

test('numbers are written as the kernel writes them', () => {
  assert.deepEqual([0, 12, 999, 1000, 25_557_032, 4_089_184_256, 3e15].map(preciseText), [
    '0',
    '12',
    '999',
    '1 k',
    '25.6 M',
    '4.09 G',
    '3000 T'
  ]);
  assert.deepEqual([12, 1536, 3 * 2 ** 20, 5 * 2 ** 40].map(memoryText), [
    '12 B',
    '1.5 KiB',
    '3.0 MiB',
    '5120.0 GiB'
  ]);
});

test('the details say counts with their units, apart where there is no prefix', async () => {
  const { columns } = shown(() => reply());
  columns.resize(320);
  columns.show(model(), 850);
  await settle();
  const texts = (path: string): string | undefined => columns.facts(path)[0]?.[1];
  assert.match(texts('output') ?? '', /^20 MAC, 20 FLOP, 20 B of activations/);
  assert.match(texts('') ?? '', /^4\.09 GMAC, 4\.09 GFLOP/);
});
