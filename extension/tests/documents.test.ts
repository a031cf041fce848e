// Model files as tabs: the page of a file, the requests to the server, and the code that loads it.

import { buttonOf, click, mount, settle } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Target } from '../src/documents/document-view';
import { DocumentView } from '../src/documents/document-view';
import { FileRequester } from '../src/documents/file-requester';
import { isName, loadingCode, pythonString, relativePath } from '../src/documents/python-code';
import { RequestError } from '../src/protocol/channel';
import type { ContentsReply, DocumentReply } from '../src/protocol/messages';
import { ModelView } from '../src/view/model-view';
import { graph, model, network, noLayout, noPanes } from './records';

const file: DocumentReply = {
  file: 'net.hlab',
  host: 'lab-host',
  kind: 'archive',
  title: 'archive, schema 1.0',
  bytes: 123_867,
  modified: 1_700_000_000,
  facts: [{ name: 'Class', text: '<b>Net</b>' }],
  parts: 3,
  has_model: true,
  code: 'mx.gluon.load(FILE)',
  beside: '',
  problem: '',
  next: ''
};

function part(
  name: string,
  changes: Partial<ContentsReply['parts'][number]> = {}
): ContentsReply['parts'][number] {
  return {
    name,
    kind: 'tensor',
    shape: [4, 1],
    dtype: 'float32',
    bytes: 16,
    state: 'verified',
    digest: 'abcdef0123456789',
    minimum: -1,
    maximum: 1,
    mean: 0.123456,
    nan: 0,
    inf: 0,
    problem: '',
    ...changes
  };
}

/** A page of a file whose server answers from a table: by type, or by type and start. */
function page(
  answers: Record<string, unknown>,
  targets: Target[] = []
): { view: DocumentView; asked: string[]; ran: string[][] } {
  const asked: string[] = [];
  const ran: string[][] = [];
  const requester = new FileRequester('work/net.hlab', async request => {
    const { type, body } = request as { type: string; body: { start?: number } };
    asked.push(type);
    const answer = answers[body.start ? `${type}${body.start}` : type];
    return answer instanceof RequestError
      ? { status: 400, body: { code: answer.code, message: answer.message, next: answer.next, details: [] } }
      : { status: answer === undefined ? 404 : 200, body: answer };
  });
  const view = new DocumentView({
    requester,
    model: new ModelView({ layout: noLayout, panes: noPanes }),
    targets: () => targets,
    run: async (target, code) => void ran.push([target, code]),
    others: async () => ['work/other.hlab']
  });
  mount(view.element);
  return { view, asked, ran };
}

const whole = {
  document: file,
  models: { models: [model()], busy: false, notes: [] },
  tree: { model: model(), root: network() },
  findings: { findings: [] },
  graph: graph(),
  contents: { parts: [part('0.weight')], next: 1 },
  contents1: { parts: [part('0.bias'), part('tree.json', { kind: 'member', shape: null })], next: -1 }
};

const tab = (root: Element, name: string): void =>
  click([...root.querySelectorAll('[role=tab]')].find(item => item.textContent === name));

test('the page shows what the file is, its tree, and asks for nothing else', async () => {
  const { view, asked } = page(whole);
  await view.open();
  await settle(5);
  const text = view.element.textContent ?? '';
  assert.match(text, /net\.hlab.*archive, schema 1\.0, 124 kB/);
  assert.match(text, /<b>Net<\/b>/); // text, not HTML
  assert.equal(view.element.querySelectorAll('[role=treeitem]').length, 5);
  assert.ok(!asked.includes('contents'));
});

test('tensors are read in pieces when their tab is opened', async () => {
  const { view, asked } = page(whole);
  await view.open();
  tab(view.element, 'Tensors and digests');
  await settle(5);
  const rows = [...view.element.querySelectorAll('.hl-doc-contents tbody tr')].map(row => row.textContent);
  assert.equal(rows.length, 3);
  assert.match(rows[0] ?? '', /0\.weight\(4, 1\)float3216 bytes-110\.1235✓ abcdef012345/);
  assert.match(view.element.textContent ?? '', /3 parts verified: each matches its SHA-256/);
  assert.equal(asked.filter(type => type === 'contents').length, 2);
  tab(view.element, 'Compare');
  tab(view.element, 'Tensors and digests');
  await settle(5);
  assert.equal(asked.filter(type => type === 'contents').length, 2);
});

test('damage and numbers that are not finite are named', async () => {
  const parts = [
    part('a', { state: 'damaged', problem: 'tensor a does not match its digest', digest: 'x' }),
    part('b', { nan: 3, inf: 1 }),
    part('c')
  ];
  const { view } = page({ ...whole, contents: { parts, next: -1 } });
  await view.open();
  tab(view.element, 'Tensors and digests');
  await settle(5);
  assert.match(view.element.textContent ?? '', /1 damaged: it does not match the SHA-256 in the file/);
  assert.match(view.element.textContent ?? '', /3 NaN, 1 Inf/);
  assert.equal(view.element.querySelectorAll('.hl-bad-row').length, 2);
});

test('a file of tensors opens on its tensors; a damaged file says what is wrong and what to do', async () => {
  const tensors = page({ ...whole, document: { ...file, has_model: false, title: 'safetensors' } });
  await tensors.view.open();
  await settle(5);
  assert.match(tensors.view.element.textContent ?? '', /verified/);
  assert.ok(!tensors.asked.includes('tree'));
  const broken = page({
    document: { ...file, problem: 'damaged archive', next: 'Take a copy.', has_model: false }
  });
  await broken.view.open();
  assert.equal(broken.view.element.querySelector('.hl-alert')?.textContent, 'damaged archive Take a copy.');
  assert.ok(broken.view.element.querySelector<HTMLElement>('.hl-doc-load')?.hidden);
});

test('a server without the package says how to get it', async () => {
  const { view } = page({});
  await view.open();
  assert.match(
    view.element.querySelector('.hl-alert')?.textContent ?? '',
    /not installed.*pip install hybrid-lab/
  );
});

test('the file is compared with another one', async () => {
  const lines = [{ change: 'changed', what: 'tensor', name: 'fc.weight', text: 'differs by up to 0.3' }];
  const { view } = page({
    ...whole,
    difference: { other: 'other.hlab', summary: '1 tensor changed', count: 1, lines, graphs: null }
  });
  await view.open();
  tab(view.element, 'Compare');
  await settle(5);
  assert.equal(view.element.querySelector<HTMLInputElement>('.hl-doc-other')?.value, 'work/other.hlab');
  view.element.querySelector('form')?.dispatchEvent(new Event('submit', { cancelable: true }));
  await settle(5);
  assert.match(view.element.textContent ?? '', /1 tensor changed:.*~ tensorfc\.weightdiffers by up to 0\.3/);
});

test('the file is loaded into the kernel of the notebook that is chosen', async () => {
  const { view, ran } = page(whole, [{ id: 'p1', name: 'a.ipynb', folder: 'work/deep' }]);
  await view.open();
  const name = view.element.querySelector<HTMLInputElement>('.hl-doc-name');
  assert.ok(name);
  name.value = 'my net';
  name.dispatchEvent(new Event('input'));
  assert.ok(buttonOf(view.element, 'Load into kernel').disabled);
  name.value = 'other';
  name.dispatchEvent(new Event('input'));
  click(buttonOf(view.element, 'Load into kernel'));
  await settle();
  assert.deepEqual(ran, [['p1', 'import hybrid_lab as mx\nother = mx.gluon.load("../net.hlab")']]);
  const none = page(whole);
  await none.view.open();
  assert.match(
    none.view.element.textContent ?? '',
    /in a notebook:import hybrid_lab as mx\nnet = mx\.gluon\.load\("net\.hlab"\)/
  );
});

test('code: paths, names and strings', () => {
  assert.equal(relativePath('a/b/net.hlab', 'a/c'), '../b/net.hlab');
  assert.equal(relativePath('net.hlab', ''), 'net.hlab');
  assert.equal(relativePath('a/net.hlab', 'a'), 'net.hlab');
  assert.equal(pythonString('a"\\\u202eb\n'), '"a\\"\\\\\\u202eb\\n"');
  assert.deepEqual(['net', 'class', '1a', 'a b', 'mx', 'ä'].map(isName), [
    true,
    false,
    false,
    false,
    false,
    false
  ]);
  const symbol = {
    code: "mx.gluon.SymbolBlock.imports(FILE, ['FILE', 'BESIDE'], BESIDE)",
    beside: "n'-0000.params"
  };
  assert.equal(
    loadingCode(symbol, 'a/$&-symbol.json', '', 'net'),
    `import hybrid_lab as mx\nnet = mx.gluon.SymbolBlock.imports("a/$&-symbol.json", ['FILE', 'BESIDE'], "a/n'-0000.params")`
  );
});

test('a file that is deleted under its tab leaves the reason and one button', async () => {
  const gone = new RequestError('failed', 'work/net.hlab is not there any more.', 'Save the model again.');
  const answers: Record<string, unknown> = { ...whole };
  const { view } = page(answers, [{ id: 'n', name: 'a.ipynb', folder: '' }]);
  await view.open();
  answers.document = answers.contents = gone;
  click(buttonOf(view.element, 'Tensors and digests'));
  await settle();
  const text = view.element.querySelector('.hl-alert')?.textContent;
  assert.equal(text, 'work/net.hlab is not there any more. Save the model again.');
  assert.equal(view.element.querySelector<HTMLElement>('.hl-doc-load')?.hidden, true);
  answers.document = file;
  click(buttonOf(view.element, 'Read again'));
  await settle();
  assert.equal(view.element.querySelector<HTMLElement>('.hl-doc-load')?.hidden, false);
});
