// What the panel remembers of a notebook, and how it announces models.

import { buttonOf, click, mount, settle } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ViewMemory, browserStore } from '../src/lab/memory';
import type { Model } from '../src/protocol/messages';
import type { Looked } from '../src/view/model-view';
import type { KernelState } from '../src/view/panel-view';
import { PanelView } from '../src/view/panel-view';
import { TableKernel, graph, model, network, noLayout, noPanes } from './records';

const looked = (changes: Partial<Looked> = {}): Looked => ({
  model: 'net',
  block: 'features',
  program: '',
  open: [],
  scale: 1.5,
  ...changes
});

/** A state database in memory. */
function database(saved: unknown): {
  fetch: () => Promise<unknown>;
  save: (key: string, value: unknown) => Promise<void>;
  saved: unknown;
} {
  return {
    saved,
    async fetch() {
      return this.saved;
    },
    async save(_, value) {
      this.saved = value;
    }
  };
}

test('what was looked at is kept by notebook, and only so much of it', async () => {
  const state = database({ 'a.ipynb': looked(), 'b.ipynb': { model: 3 }, 'c.ipynb': null });
  const memory = new ViewMemory(state);
  await memory.ready;
  assert.deepEqual(memory.read('a.ipynb'), looked());
  assert.equal(memory.read('b.ipynb'), undefined);
  for (let i = 0; i < 80; i++) {
    memory.write(`${i}.ipynb`, looked({ model: `net${i}` }));
  }
  await settle(600);
  assert.equal(Object.keys(state.saved as object).length, 50);
  assert.equal(memory.read('79.ipynb')?.model, 'net79');
  assert.equal(memory.read('a.ipynb'), undefined);
});

test('two pages with a notebook each share what the browser keeps', async () => {
  const kept = new Map<string, string>();
  const storage = {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value)
  } as Storage;
  const open = (): ViewMemory => new ViewMemory(browserStore(storage, '/user/me/'));
  const [first, second] = [open(), open()];
  first.write('a.ipynb', looked({ block: '0' }));
  await settle(600);
  second.write('b.ipynb', looked());
  await settle(600);
  first.write('a.ipynb', looked({ block: '1' }));
  await settle(600);
  const third = open();
  await third.ready;
  assert.equal(third.read('a.ipynb')?.block, '1');
  assert.deepEqual(third.read('b.ipynb'), looked());
});

test('a damaged database, or none, is an empty one', async () => {
  for (const saved of ['text', 3, null, undefined, [1]]) {
    const memory = new ViewMemory(database(saved));
    await memory.ready;
    assert.equal(memory.read('0'), undefined);
  }
  const none = new ViewMemory(null);
  none.write('a', looked());
  assert.deepEqual(none.read('a'), looked());
});

function panel(
  memory?: { read: () => Looked | undefined; write: (value: Looked) => void },
  onTab?: () => void
): PanelView {
  const view = new PanelView({
    layout: noLayout,
    panes: noPanes,
    onLocation: () => undefined,
    onConnect: () => undefined,
    ...(onTab && { onTab }),
    ...(memory && { memory })
  });
  mount(view.element);
  return view;
}

function state(models: Model[]): KernelState {
  return {
    key: 'a.ipynb|1',
    text: 'ready',
    kind: 'ready',
    requester: new TableKernel({
      tree: ({ model: id }) => ({ model: models.find(item => item.id === id) ?? model(), root: network() }),
      graph: () => graph(),
      findings: () => ({ findings: [] })
    }),
    hello: null,
    models: { models, busy: false, notes: [], saving: {}, folder: '' },
    curves: null
  };
}

const chosen = (view: PanelView): string | null =>
  view.element.querySelector('[role=treeitem][aria-selected=true]')?.getAttribute('data-path') ?? null;

test('model and Block of the notebook are shown again', async () => {
  const view = panel({ read: () => looked({ model: 'other' }), write: () => undefined });
  view.update(state([model(), model({ id: 'm2', name: 'other' })]));
  await settle(20);
  assert.equal(view.element.querySelector('select')?.value, 'm2');
});

test('what is chosen is remembered; what nobody chose is not', async () => {
  const written: Looked[] = [];
  const view = panel({ read: () => undefined, write: value => written.push(value) });
  view.update(state([model()]));
  await settle(1200);
  assert.equal(written.length, 0);
  click(view.element.querySelector('[role=treeitem][data-path=features]'));
  await settle(1200);
  assert.equal(written.length, 1);
  assert.deepEqual([written[0]?.model, written[0]?.block], ['net', 'features']);
  const again = panel({ read: () => written[0], write: () => undefined });
  again.update(state([model()]));
  await settle(20);
  assert.equal(chosen(again), 'features');
});

test('a model that was picked from the list is remembered; the tab starts with it', async () => {
  const written: Looked[] = [];
  const view = panel({ read: () => undefined, write: value => written.push(value) }, () => undefined);
  view.update(state([model(), model({ id: 'm2', name: 'other' })]));
  await settle(20);
  const picker = view.element.querySelector('select')!;
  picker.value = 'm2';
  picker.dispatchEvent(new Event('change'));
  await settle(20);
  buttonOf(view.element, 'Open as a tab').click();
  assert.equal(written.at(-1)?.model, 'other');
});

test('another notebook is shown as it was left', async () => {
  let inFront = looked({ model: 'other', block: '' });
  const view = panel({ read: () => inFront, write: () => undefined });
  view.update(state([model(), model({ id: 'm2', name: 'other' })]));
  await settle(20);
  inFront = looked();
  view.update({ ...state([model({ id: 'm3' }), model({ id: 'm4', name: 'other' })]), key: 'b.ipynb|1' });
  await settle(20);
  assert.equal(view.element.querySelector('select')?.value, 'm3');
  assert.equal(chosen(view), 'features');
});

test('a model that is new is announced, the first ones are not', () => {
  const view = panel();
  const notes = (): string => view.element.querySelector('.hl-notes')?.textContent ?? '';
  view.update(state([model()]));
  assert.doesNotMatch(notes(), /New model/);
  view.update(state([model(), model({ id: 'm2', name: 'other', class: 'Net', blocks: 3 })]));
  assert.match(notes(), /New model: other, Net of 3 Blocks\./);
  view.update(state([model(), model({ id: 'm2', name: 'other' })]));
  assert.equal(notes().split('New model').length, 2);
});

const picked = (view: PanelView): string =>
  view.element.querySelector<HTMLSelectElement>('.hl-picker')?.selectedOptions[0]?.textContent ?? '';

test('the panel follows a name to the object that has it now', async () => {
  const view = panel();
  const [net, other] = [model(), model({ id: 'm2', name: 'other', class: 'Other' })];
  view.update(state([net, other]));
  await settle();
  assert.equal(picked(view), 'net: Net');

  const again = model({ id: 'm3', class: 'Again' });
  view.update(state([{ ...net, name: 'old' }, other, again]));
  assert.equal(picked(view), 'net: Again', 'old, net = net, Net()');

  view.update(
    state([
      model({ id: 'm1', held: 'in a view' }),
      other,
      { ...again, held: 'in a view' },
      model({ id: 'm4' })
    ])
  );
  assert.equal(picked(view), 'net: Net', 'views show the objects that had the name');

  const last = [{ ...other, name: 'renamed' }];
  view.update(state([...last, model({ id: 'm4', name: 'kept' })]));
  assert.equal(picked(view), 'kept: Net', 'nothing has the name: the object stays');

  view.update(state([model({ id: 'm5' }), model({ id: 'm6', held: 'in a view' })]));
  const list = view.element.querySelector<HTMLSelectElement>('.hl-picker')!;
  list.value = 'm6';
  list.dispatchEvent(new Event('change'));
  view.update(state([model({ id: 'm5' }), model({ id: 'm6', held: 'in a view' })]));
  assert.equal(picked(view), 'net: Net (in a view)', 'what was chosen by hand stays');
});

test('the selected Block stays selected when its variable has another object', async () => {
  const view = panel();
  view.update(state([model()]));
  await settle();
  click(view.element.querySelector('[data-path=features]'));
  await settle(200);
  view.update(state([model({ id: 'm2' })]));
  await settle(200);
  assert.equal(chosen(view), 'features');
});

test('other names of a model stand in the list', () => {
  const view = panel();
  view.update(
    state([
      model({ also: 'also best' }),
      model({ id: 'm2', name: 'b', held: 'in the list b', also: 'also c' })
    ])
  );
  const options = [...view.element.querySelectorAll('.hl-picker option')].map(option => option.textContent);
  assert.deepEqual(options, ['net: Net (also best)', 'b: Net (in the list b, also c)']);
});

test('a sentence about the versions is said once', () => {
  const view = panel();
  const notes = (): number => view.element.querySelectorAll('.hl-kept-notes li').length;
  const noted = { ...state([model()]), note: 'The kernel is newer.' };
  view.update(noted);
  assert.equal(notes(), 1);
  click(view.element.querySelector('[aria-label="Dismiss the notes"]'));
  view.update({ ...noted });
  assert.equal(view.element.querySelector<HTMLElement>('.hl-notes')?.hidden, true);
});
