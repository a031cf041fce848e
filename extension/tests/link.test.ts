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
      info: Promise.resolve({ language_info: { name: 'python' } })
    }
  };
  private modelsId: string | null = null;
  private reply: (data: object) => void = () => undefined;

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
  }

  private comm(): object {
    const comm = {
      isDisposed: false,
      onMsg: (_: object) => undefined,
      open: () => undefined,
      close: () => undefined,
      dispose: () => undefined,
      send: ({ id, type }: { id: string; type: string }) => {
        if (type === 'models') {
          this.modelsId = id;
        } else {
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

function linked(): [FakeSession, KernelLink, Promise<void>] {
  const session = new FakeSession();
  const link = new KernelLink(session as unknown as ISessionContext, {
    mentions: () => false,
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
