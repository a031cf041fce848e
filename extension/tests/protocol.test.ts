// The channel and the validators: one reply per request, nothing malformed gets through.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import type { Envelope, RequestError } from '../src/protocol/channel';
import { Channel } from '../src/protocol/channel';
import {
  PROTOCOL,
  blockNode,
  diagnostic as checkDiagnostic,
  graphNode,
  graphReply
} from '../src/protocol/messages';
import { mismatch, newerKernel } from '../src/protocol/versions';
import { VERSION } from '../src/version';
import { block, diagnostic, graph, kernelBox, model, network } from './records';

function channel(): { channel: Channel; sent: Envelope[] } {
  const sent: Envelope[] = [];
  return { channel: new Channel(message => sent.push(message)), sent };
}

const reply = (id: string | undefined, type: string, body: unknown): unknown => ({
  hybrid_lab: 1,
  id,
  type,
  body
});

test('a request is answered by the reply with its id', async () => {
  const { channel: kernel, sent } = channel();
  const first = kernel.request('explain', { model: 'a' });
  const second = kernel.request('explain', { model: 'b' });
  kernel.receive(reply(sent[1]?.id, 'ok', { text: 'about b' }));
  kernel.receive(reply(sent[0]?.id, 'ok', { text: 'about a' }));
  assert.equal((await first).text, 'about a');
  assert.equal((await second).text, 'about b');
  assert.equal(kernel.waiting, 0);
});

test('an error keeps its code, next step and details', async () => {
  const { channel: kernel, sent } = channel();
  const request = kernel.request('reload', { model: 'a', file: '', graphs: 'code' });
  const body = {
    code: 'differs',
    message: 'net.hlab does not fit',
    next: 'Use the file',
    details: ['fc1: missing']
  };
  kernel.receive(reply(sent[0]?.id, 'error', body));
  await assert.rejects(request, (error: RequestError) => {
    assert.deepEqual([error.code, error.next, error.details], ['differs', 'Use the file', ['fc1: missing']]);
    return true;
  });
});

test('a malformed reply fails its request and names the field', async () => {
  const { channel: kernel, sent } = channel();
  const request = kernel.request('tree', { model: 'a' });
  kernel.receive(reply(sent[0]?.id, 'ok', { model: model(), root: { ...block(''), graphs: 'two' } }));
  await assert.rejects(request, /tree\.root\.graphs: expected an integer, got string/);
});

test('rubbish is reported and breaks nothing', () => {
  const { channel: kernel } = channel();
  const complaints: string[] = [];
  kernel.onMalformed = message => complaints.push(message);
  for (const rubbish of [
    null,
    7,
    'models',
    [],
    {},
    reply('', 7 as never, {}),
    reply('', 'models', { models: 3 })
  ]) {
    kernel.receive(rubbish);
  }
  assert.equal(complaints.length, 7);
});

test('what only a newer front end knows is ignored, and said once', async () => {
  const { channel: kernel, sent } = channel();
  const complaints: string[] = [];
  let unknown = 0;
  kernel.onMalformed = message => complaints.push(message);
  kernel.onUnknown = () => unknown++;
  const request = kernel.request('explain', { model: 'a' });
  for (const type of ['weather', 'weather', 'constructor', '']) {
    kernel.receive(reply('', type, { any: [1] }));
    kernel.receive(reply(sent[0]?.id, type, null));
  }
  assert.deepEqual([complaints, unknown, kernel.waiting], [[], 1, 1]);
  kernel.receive(reply(sent[0]?.id, 'ok', { text: 'here' }));
  assert.equal((await request).text, 'here');
});

test('progress and models pushes reach their listeners; late replies are ignored', async () => {
  const { channel: kernel, sent } = channel();
  const progress: string[] = [];
  const pushes: number[] = [];
  kernel.onModels = push => pushes.push(push.models.length);
  const request = kernel.request('explain', { model: 'a' }, { onProgress: step => progress.push(step.text) });
  kernel.receive(reply(sent[0]?.id, 'progress', { text: 'half', done: 1, total: 2 }));
  kernel.receive(reply('', 'models', { models: [model()], busy: false, notes: [] }));
  kernel.receive(reply(sent[0]?.id, 'ok', { text: '' }));
  kernel.receive(reply(sent[0]?.id, 'ok', { text: 'again' }));
  await request;
  assert.deepEqual([progress, pushes], [['half'], [1]]);
});

test('a timeout and a closed connection are errors with a code', async () => {
  const { channel: kernel } = channel();
  await assert.rejects(kernel.request('models', {}, { timeout: 5 }), { code: 'timeout' });
  const waiting = kernel.request('models', {});
  kernel.close('The kernel was restarted.');
  await assert.rejects(waiting, { code: 'closed', message: 'The kernel was restarted.' });
  await assert.rejects(kernel.request('models', {}), { code: 'closed' });
});

test('a kind of box that is not known is refused', () => {
  assert.deepEqual(graphReply(graph({ boxes: [kernelBox] }), 'graph').boxes, [kernelBox]);
  const unknown = graph({ boxes: [{ ...kernelBox, kind: 'cloud' as 'kernel' }] });
  assert.throws(() => graphReply(unknown, 'graph'), /boxes\[0\]\.kind: expected one of block, kernel/);
});

test('unknown fields of a newer kernel are dropped, bad node ids and endless trees refused', () => {
  const newer = { ...diagnostic(), future: true };
  assert.equal('future' in checkDiagnostic(newer, 'finding'), false);
  assert.throws(() => graphNode({ id: 'n1"]' }, 'node'), /node\.id/);
  let deep = block('x');
  for (let i = 0; i < 300; i++) {
    deep = block('x', { children: [deep] });
  }
  assert.throws(() => blockNode(deep, 'root'), /more than 200 deep/);
  assert.deepEqual(blockNode(network(), 'root'), network());
});

test('the older half is named, with the command that upgrades it', () => {
  assert.equal(mismatch('0.1.0', { kernel: '0.1.3', protocol: PROTOCOL }), null);
  assert.match(
    mismatch('0.2.0', { kernel: '0.1.0', protocol: PROTOCOL - 1 }) ?? '',
    /kernel's environment: pip install/
  );
  assert.match(
    mismatch('0.1.0', { kernel: '9.0', protocol: PROTOCOL + 1 }) ?? '',
    /extension \(0\.1\.0\) is older/
  );
});

test('a kernel that tells more than the front end knows is named', () => {
  assert.match(newerKernel('0.1.0', '9.0'), /hybrid_lab 9\.0 .*extension \(0\.1\.0\).*pip install -U/);
  assert.match(newerKernel('0.1.0', ''), /^The kernel's hybrid_lab tells/);
});

test('the version sent to the kernel is the package version', () => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  assert.equal(VERSION, version);
});
