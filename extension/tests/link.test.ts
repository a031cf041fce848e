// What the panel knows of a kernel: whether a cell runs, by what the kernel tells and by its answers.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Signal } from '@lumino/signaling';
import type { ISessionContext } from '@jupyterlab/apputils';
import { KernelLink } from '../src/lab/link';
import { PROTOCOL } from '../src/protocol/messages';
import { VERSION } from '../src/version';

const ANSWERS: Record<string, object> = {
  hello: {
    kernel: VERSION,
    kernel_id: 'k',
    protocol: PROTOCOL,
    python: '3.11',
    host: '',
    folder: '/f',
    engine: 'auto',
    subshells: true
  },
  watch: {},
  folder: { folder: '/f', host: '', beside: true, path: '', folders: [], archives: [] }
};

/** A notebook's session with a kernel that answers requests, `models` when it is told to. */
class FakeSession {
  readonly kernelChanged = new Signal<this, unknown>(this);
  readonly statusChanged = new Signal<this, unknown>(this);
  readonly iopubMessage = new Signal<this, unknown>(this);
  readonly propertyChanged = new Signal<this, unknown>(this);
  readonly session = {
    kernel: {
      isDisposed: false,
      status: 'idle',
      createComm: () => this.comm(),
      requestKernelInfo: () => this.knock(),
      info: Promise.resolve({ language_info: { name: 'python' } })
    }
  };
  /** How often the kernel was asked for its information before it answered; comms are answered only after that. */
  knocks = 0;
  /** How many of these questions are lost, as while a kernel restarts. */
  lost = 0;
  comms = 0;
  /** How many of the first comms are never answered. */
  silent = 0;
  /** Whether hybrid_lab is imported in the kernel. */
  imported = true;
  private modelsId: string | null = null;
  private reply: (data: object) => void = () => undefined;

  /** The kernel tells that it runs this cell. */
  run(code: string): void {
    this.tell('busy');
    this.iopubMessage.emit({
      channel: 'iopub',
      header: { msg_type: 'execute_input' },
      parent_header: { msg_type: 'execute_request' },
      content: { code }
    });
  }

  /** The kernel tells that a cell begins or ends. */
  tell(state: 'busy' | 'idle'): void {
    this.iopubMessage.emit({
      channel: 'iopub',
      header: { msg_type: 'status' },
      parent_header: { msg_type: 'execute_request' },
      content: { execution_state: state }
    });
  }

  /** Resolves when the models were asked for. */
  async askedForModels(): Promise<void> {
    while (this.modelsId === null) {
      await pause(5);
    }
  }

  /** The answer to `models` comes. */
  answerModels(busy: boolean): void {
    assert.ok(this.modelsId !== null);
    this.answer(this.modelsId, { models: [], busy, notes: [] });
    this.modelsId = null;
  }

  private knock(): Promise<object> {
    this.knocks++;
    return this.knocks > this.lost ? Promise.resolve({}) : new Promise(() => undefined);
  }

  private comm(): object {
    const isSilent = ++this.comms <= this.silent;
    const comm = {
      isDisposed: false,
      onMsg: (_: object) => undefined,
      onClose: () => undefined,
      open: () => {
        if (!this.imported) {
          setTimeout(() => comm.onClose(), 20);
        }
      },
      close: () => undefined,
      dispose: () => undefined,
      send: ({ id, type }: { id: string; type: string }) => {
        if (type === 'models') {
          this.modelsId = id;
        } else if (this.imported && !isSilent) {
          setTimeout(() => this.answer(id, ANSWERS[type] ?? {}));
        }
      }
    };
    this.reply = data => comm.onMsg({ content: { data } });
    return comm;
  }

  private answer(id: string, body: object): void {
    this.reply({ hybrid_lab: PROTOCOL, id, type: 'ok', body });
  }
}

const pause = (milliseconds: number): Promise<void> =>
  new Promise(resolve => setTimeout(resolve, milliseconds));

function linked(mentions = false): [FakeSession, KernelLink, Promise<void>] {
  const session = new FakeSession();
  const link = new KernelLink(session as unknown as ISessionContext, {
    mentions: () => mentions,
    path: () => 'a.ipynb'
  });
  return [session, link, link.connect()];
}

test('an answer that is older than the beginning of a cell does not end it', async () => {
  const [session, link, connected] = linked();
  await session.askedForModels();
  session.tell('busy');
  await pause(350);
  session.answerModels(false); // the kernel gave it between two cells
  await connected;
  assert.equal(link.state.kind, 'busy');
  session.tell('idle');
  await pause(100);
  assert.equal(link.state.kind, 'ready');
  link.dispose();
});

test('after a reload of the page the answer tells that a cell runs', async () => {
  const [session, link, connected] = linked();
  await session.askedForModels();
  session.answerModels(true);
  await connected;
  assert.equal(link.state.kind, 'busy');
  link.dispose();
});

test('a cell that imports while the kernel is asked is followed by another question when it ends', async () => {
  const session = new FakeSession();
  session.imported = false;
  const link = new KernelLink(session as unknown as ISessionContext, {
    mentions: () => true,
    path: () => 'a'
  });
  await pause(5); // the comm is open, and not answered yet
  session.run('import hybrid_lab as mx');
  await pause(50);
  session.statusChanged.emit('idle'); // of the comm, which has a subshell
  await pause(50);
  assert.equal(link.state.kind, 'off');
  session.imported = true;
  session.tell('idle'); // the cell ends
  await session.askedForModels();
  session.answerModels(false);
  await pause(50);
  assert.equal(link.state.kind, 'ready');
  link.dispose();
});

/** A link whose models were answered, in a notebook whose code is about hybrid_lab. */
async function connectedLink(): Promise<[FakeSession, KernelLink]> {
  const [session, link, connected] = linked(true);
  await session.askedForModels();
  session.answerModels(false);
  await connected;
  assert.equal(link.state.kind, 'ready');
  return [session, link];
}

test('a restart that is told late, and nothing after it, lets the kernel be asked again', async () => {
  const [session, link] = await connectedLink();
  session.statusChanged.emit('restarting');
  session.statusChanged.emit('autorestarting');
  assert.equal(link.channel, null);
  await session.askedForModels();
  session.answerModels(false);
  await pause(50);
  assert.equal(link.state.kind, 'ready');
  assert.equal(session.comms, 2);
  link.dispose();
});

test('no comm is opened before a restarted kernel has answered', async () => {
  const [session, link] = await connectedLink();
  session.lost = 1;
  session.statusChanged.emit('restarting');
  session.tell('idle');
  await pause(100);
  assert.deepEqual([session.knocks, session.comms], [1, 1]);
  await session.askedForModels();
  session.answerModels(false);
  await pause(50);
  assert.equal(link.state.kind, 'ready');
  assert.equal(session.comms, 2);
  link.dispose();
});

test('a restart that is told while the new kernel is being asked is followed by another question', async () => {
  const [session, link] = linked(true);
  await session.askedForModels();
  session.statusChanged.emit('restarting');
  session.answerModels(false); // to a closed channel
  assert.equal(link.channel, null);
  await session.askedForModels();
  session.answerModels(false);
  await pause(50);
  assert.equal(link.state.kind, 'ready');
  link.dispose();
});

test('a kernel that goes before its first answer is not waited for', async () => {
  const session = new FakeSession();
  const { info } = session.session.kernel;
  session.session.kernel.info = new Promise(() => undefined);
  const link = new KernelLink(session as unknown as ISessionContext, {
    mentions: () => true,
    path: () => 'a'
  });
  await pause(5);
  assert.equal(link.state.text, 'Asking the kernel …');
  session.statusChanged.emit('dead');
  session.session.kernel.info = info;
  session.kernelChanged.emit(null);
  await session.askedForModels();
  session.answerModels(false);
  await pause(50);
  assert.equal(link.state.kind, 'ready');
  link.dispose();
});

test('a comm that an idle kernel has not answered for long is opened again when a cell ends', async () => {
  const session = new FakeSession();
  session.silent = 1;
  const link = new KernelLink(session as unknown as ISessionContext, {
    mentions: () => true,
    path: () => 'a'
  });
  await pause(5);
  const now = Date.now;
  try {
    session.run('x = 1');
    session.tell('idle');
    await pause(20);
    assert.equal(session.comms, 1); // it may still answer
    Date.now = () => now() + 60_000;
    session.run('x = 1');
    session.tell('idle');
    await session.askedForModels();
    session.answerModels(false);
    await pause(50);
    assert.equal(link.state.kind, 'ready');
    assert.equal(session.comms, 2);
  } finally {
    Date.now = now;
    link.dispose();
  }
});

test('a kernel that is gone, or a notebook that is closed, is not asked again', async () => {
  const [session, link] = await connectedLink();
  session.statusChanged.emit('restarting');
  session.statusChanged.emit('dead');
  await pause(2500);
  assert.deepEqual([session.knocks, session.comms], [0, 1]);
  session.statusChanged.emit('restarting');
  link.dispose();
  await pause(2500);
  assert.deepEqual([session.knocks, session.comms], [0, 1]);
});
