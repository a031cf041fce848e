// The connection of one notebook to its kernel's hybrid_lab: opens the comm, keeps it open over reloads and restarts.

import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel } from '@jupyterlab/services';
import { KernelMessage } from '@jupyterlab/services';
import type { JSONObject } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';
import { Channel, RequestError, asRequestError } from '../protocol/channel';
import type {
  CurvesReply,
  WorkPush,
  FolderReply,
  HelloReply,
  ModelsReply,
  WorkersReply
} from '../protocol/messages';
import { PROTOCOL, TARGET } from '../protocol/messages';
import { NOT_IMPORTED, mismatch, newerKernel } from '../protocol/versions';
import { VERSION } from '../version';
import type { KernelState } from '../view/panel-view';
import { __ } from '../text';

/** Seconds after which a kernel that is busy, or was restarted, is asked again whether it imported hybrid_lab meanwhile. */
const WHILE_BUSY = [2, 5, 10, 20];

/** How long a subshell may take to start before the comm opens without one. */
const SUBSHELL_PATIENCE = 3000;

/** Milliseconds after which an idle kernel that has not answered is asked once more, by a cell's end or *Connect*. */
const LOST = 10_000;

/** How long a kernel that was restarted may take to tell who it is, before it is asked again later. */
const RESTART_PATIENCE = 2000;

export interface LinkOptions {
  /** Whether the notebook's code is about hybrid_lab: only then is a kernel asked unbidden. */
  mentions: () => boolean;
  /** The notebook's path on the server. */
  path: () => string;
}

let links = 0;

export class KernelLink implements IDisposable {
  constructor(
    private readonly session: ISessionContext,
    private readonly options: LinkOptions
  ) {
    session.kernelChanged.connect(this.onKernelChanged, this);
    session.statusChanged.connect(this.onStatus, this);
    session.iopubMessage.connect(this.onIOPub, this);
    session.propertyChanged.connect(this.onPropertyChanged, this);
    this.onKernelChanged();
  }

  /** Emitted whenever `state` may look different. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get channel(): Channel | null {
    return this.hello && !this.problem ? this.open : null;
  }

  /** Requests are answered while a cell runs, or no cell runs. */
  get answersNow(): boolean {
    return this.channel !== null && (this.hello?.subshells === true || !this.busy);
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Everything the panel shows about the kernel. */
  get state(): KernelState {
    const base = {
      key: `${this.number}|${this.generation}`,
      hello: this.hello,
      models: this.models,
      curves: this.curves,
      work: this.work,
      workers: this.workers,
      place: this.place,
      note: this.note
    };
    const off = (text: string): KernelState => ({ ...base, text, kind: 'off', requester: null });
    if (!this.kernel) {
      return off(__('This notebook has no running kernel.'));
    }
    if (this.problem) {
      return { ...base, text: this.problem, kind: 'problem', requester: null };
    }
    if (!this.isPython) {
      return off(__('Hybrid Lab works with Python kernels.'));
    }
    if (!this.hello) {
      return off(this.opening ? __('Asking the kernel …') : NOT_IMPORTED);
    }
    const { kernel, python, subshells, engine } = this.hello;
    const who = [`hybrid_lab ${kernel}`, engine && __('engine %1', engine), __('Python %1', python)]
      .filter(text => text !== '')
      .join(', ');
    const busy = subshells ? __('a cell is running') : __('busy: requests wait for the running cell');
    return {
      ...base,
      text: this.busy ? `${busy} — ${who}` : who,
      kind: this.busy ? 'busy' : 'ready',
      requester: this.channel
    };
  }

  /** Try to reach hybrid_lab in the kernel; where that is under way, again if it fails. Does nothing where it is done. */
  async connect(): Promise<void> {
    const { kernel } = this;
    if (this.opening) {
      this.again = true;
      if (kernel?.status === 'idle' && Date.now() > this.openingSince + LOST) {
        this.giveUp(__('The kernel did not answer in time.'));
      }
      return;
    }
    if (!kernel || this.open || this.isDisposed) {
      return;
    }
    this.opening = true;
    this.openingSince = Date.now();
    const { generation } = this;
    let comm: Kernel.IComm | null = null;
    const given = new Promise<never>((_, reject) => {
      this.giveUp = reason => reject(new RequestError('closed', reason));
    });
    const unlessGivenUp = <T>(answer: Promise<T>): Promise<T> => {
      answer.catch(() => undefined); // nothing waits for it any more once it is given up
      return Promise.race([answer, given]);
    };
    given.catch(() => undefined); // also while nothing waits for it
    try {
      // Of a kernel that goes before its first answer this promise is never settled.
      const info = await unlessGivenUp(kernel.info);
      this.isPython = info.language_info.name === 'python';
      if (!this.isPython) {
        return;
      }
      this._changed.emit();
      if (this.restarting) {
        // A comm that is opened while the kernel restarts would never be answered.
        await unlessGivenUp(answerOf(kernel));
        this.sameSince(generation);
        this.restarting = false;
        this.retries.forEach(clearTimeout);
      }
      comm = kernel.createComm(TARGET);
      await subshellOf(comm, kernel.supportsSubshells);
      this.sameSince(generation);
      const channel = this.talk(comm);
      const hello = await unlessGivenUp(
        channel.request('hello', {
          front_end: VERSION,
          protocol: PROTOCOL,
          notebook: this.options.path()
        })
      );
      channel.kernelId = hello.kernel_id;
      this.problem = mismatch(VERSION, hello);
      this.hello = hello;
      if (!this.problem) {
        await Promise.all([this.look(channel), this.locate(channel)]);
        this.models ??= await channel.request('models', {});
        if (!this.isTold) {
          this.busy = this.models.busy; // the page was reloaded while a cell runs
        }
      }
    } catch (caught) {
      const error = asRequestError(caught);
      if (error.code !== 'closed' && generation === this.generation) {
        this.problem = [error.message, error.next].filter(text => text !== '').join(' ');
      }
      if (error.code === 'closed' && comm && comm === this.comm) {
        this.drop(error.message);
      }
      if (comm && !comm.isDisposed) {
        comm.dispose(); // also gives the subshell back
      }
    } finally {
      this.opening = false;
      this._changed.emit();
      const { again } = this;
      this.again = false;
      if (again) {
        void this.connect(); // the cell that imports hybrid_lab, or a restart, came after the kernel was asked
      }
    }
  }

  /** Fails where the kernel was restarted or changed meanwhile. */
  private sameSince(generation: number): void {
    if (generation !== this.generation) {
      throw new RequestError('closed', __('The kernel was restarted.'));
    }
  }

  /** Ask again for the models, e.g. from a timer while a cell runs. */
  async refresh(): Promise<void> {
    const { channel } = this;
    if (channel?.waiting === 0) {
      try {
        this.models = await channel.request('models', {});
        this._changed.emit();
      } catch {
        // The status line tells what is wrong with the connection.
      }
    }
  }

  /**
   * Note whether a viewer, such as the side panel, is seen. The kernel computes nothing for a page that nobody sees;
   * when one comes into view, what was missed is asked for.
   */
  async setVisible(viewer: object, visible: boolean): Promise<void> {
    const before = this.viewers.size > 0;
    this.viewers[visible ? 'add' : 'delete'](viewer);
    const { channel } = this;
    if (channel && before !== this.viewers.size > 0) {
      try {
        await this.look(channel);
      } catch {
        // The status line tells what is wrong with the connection.
      }
    }
  }

  private async look(channel: Channel): Promise<void> {
    const visible = this.viewers.size > 0;
    const answers: Promise<unknown>[] = [channel.request('watch', { visible })];
    if (visible) {
      answers.push(
        channel.request('models', {}).then(models => (this.models = models)),
        channel.request('curves', {}).then(curves => (this.curves = curves)),
        channel.request('workers', {}).then(
          workers => (this.workers = workers),
          () => undefined // an older kernel
        )
      );
    }
    await Promise.all(answers);
    this._changed.emit();
  }

  /** Ask where the kernel's files go, and whether the notebook is there too. */
  private async locate(channel: Channel): Promise<void> {
    this.place = await channel.request('folder', { notebook: this.options.path(), path: '' });
  }

  private onPropertyChanged(): void {
    const { channel } = this;
    this._changed.emit();
    if (channel) {
      this.locate(channel).then(
        () => this._changed.emit(),
        () => undefined // the status line tells what is wrong with the connection
      );
    }
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    clearTimeout(this.busyTimer);
    if (this.comm && !this.comm.isDisposed && this.kernel) {
      this.comm.close(); // so that the kernel stops sending to nobody
    }
    this.reset(__('The notebook was closed.'));
    Signal.clearData(this);
  }

  private talk(comm: Kernel.IComm): Channel {
    const channel = new Channel(message => {
      if (comm.isDisposed) {
        throw new Error(__('The connection to the kernel is closed.'));
      }
      comm.send(message as unknown as JSONObject);
    });
    channel.onModels = push => {
      this.models = push;
      if (push.folder !== this.place?.folder) {
        this.onPropertyChanged(); // a cell called os.chdir
      }
      this._changed.emit();
    };
    channel.onCurves = push => {
      this.curves = push;
      this._changed.emit();
    };
    channel.onWork = push => {
      this.work = push;
      this._changed.emit();
    };
    channel.onWorkers = push => {
      this.workers = push;
      this._changed.emit();
    };
    channel.onUnknown = () => {
      this.note = newerKernel(VERSION, this.hello?.kernel ?? '');
      this._changed.emit();
    };
    channel.onMalformed = message => {
      this.problem = message;
      this._changed.emit();
    };
    comm.onMsg = message => channel.receive(message.content.data);
    comm.onClose = () => {
      if (this.open === channel) {
        this.forget();
      }
      channel.close(__('The kernel closed the connection.'));
      this._changed.emit();
    };
    this.open = channel;
    this.comm = comm;
    comm.open();
    return channel;
  }

  private onKernelChanged(): void {
    this.reset(__('The kernel was changed.'));
    if (this.kernel) {
      this.connectUnbidden();
    }
  }

  private onStatus(_: unknown, status: Kernel.Status): void {
    if (
      status === 'restarting' ||
      status === 'autorestarting' ||
      status === 'dead' ||
      status === 'terminating'
    ) {
      this.reset(__('The kernel was restarted.'));
      if (status === 'restarting' || status === 'autorestarting') {
        // The server may tell of a restart late, when cells have run in the new kernel and nothing else will be told.
        this.restarting = true;
        this.executed = true;
        this.askLater();
      }
    }
  }

  private onIOPub(_: unknown, message: KernelMessage.IMessage): void {
    if (KernelMessage.isStatusMsg(message) && isAboutExecution(message)) {
      this.isTold = true;
      this.setBusy(message.content.execution_state === 'busy');
      if (message.content.execution_state === 'idle' && this.executed) {
        this.executed = false;
        this.connectUnbidden();
      }
    }
    if (!KernelMessage.isExecuteInputMsg(message)) {
      return;
    }
    this.executed = true;
    this.restarting = false;
    this.mentioned ||= mentionsHybridLab(message.content.code);
    this.retries.forEach(clearTimeout);
    if (!this.hello && this.kernel?.supportsSubshells) {
      this.askLater();
    }
  }

  /** Ask the kernel after some seconds, and again while it does not answer. */
  private askLater(): void {
    this.retries.forEach(clearTimeout);
    this.retries = WHILE_BUSY.map(seconds => setTimeout(() => this.connectUnbidden(), seconds * 1000));
  }

  /** Whether a cell runs. Requests make the kernel busy, too, and end its busy state while a cell still runs. */
  private setBusy(busy: boolean): void {
    clearTimeout(this.busyTimer);
    if (busy !== this.busy) {
      // Short cells should not make the panel flicker.
      this.busyTimer = setTimeout(
        () => {
          this.busy = busy;
          this._changed.emit();
        },
        busy ? 300 : 50
      );
    }
  }

  private connectUnbidden(): void {
    if (this.mentioned || this.options.mentions()) {
      void this.connect();
    }
  }

  /** Close the channel, and forget what came over it. */
  private drop(reason: string): void {
    const { open } = this;
    this.forget();
    open?.close(reason);
  }

  /** Forget the connection, and what the kernel said over it. */
  private forget(): void {
    this.open = null;
    this.comm = null;
    this.hello = null;
    this.place = null;
    this.models = null;
    this.curves = null;
    this.work = null;
    this.workers = null;
  }

  private reset(reason: string): void {
    this.generation++;
    const { open, comm } = this;
    this.forget();
    this.problem = null;
    this.note = '';
    this.isPython = true;
    this.mentioned = false;
    this.executed = false;
    this.busy = false;
    this.isTold = false;
    this.restarting = false;
    this.retries.forEach(clearTimeout);
    this.giveUp(reason);
    open?.close(reason);
    if (comm && !comm.isDisposed) {
      comm.onClose = () => undefined;
      comm.dispose();
    }
    this._changed.emit();
  }

  private get kernel(): Kernel.IKernelConnection | null {
    const kernel = this.session.session?.kernel ?? null;
    return kernel && !kernel.isDisposed && kernel.status !== 'dead' ? kernel : null;
  }

  /** Tells this notebook from others, whatever its path becomes. */
  private readonly number = ++links;
  private open: Channel | null = null;
  private comm: Kernel.IComm | null = null;
  private hello: HelloReply | null = null;
  private place: FolderReply | null = null;
  private models: ModelsReply | null = null;
  private curves: CurvesReply | null = null;
  private work: WorkPush | null = null;
  private workers: WorkersReply | null = null;
  private readonly viewers = new Set<object>();
  private problem: string | null = null;
  /** A message that is shown once for each connection. */
  private note = '';
  private opening = false;
  private openingSince = 0;
  /** Ends the asking that is under way. */
  private giveUp: (reason: string) => void = () => undefined;
  /** Somebody asked to connect while the kernel was being asked. */
  private again = false;
  private isPython = true;
  /** A cell has begun, and its end was not told yet. That the kernel is idle may mean that a request has ended. */
  private executed = false;
  private mentioned = false;
  private busy = false;
  /** The kernel has told whether a cell runs. Its answer to `models` may be older than that. */
  private isTold = false;
  /** A restart was told of, and nothing has come from the kernel since. */
  private restarting = false;
  private busyTimer: ReturnType<typeof setTimeout> | undefined;
  private retries: ReturnType<typeof setTimeout>[] = [];
  private generation = 0;
  private _isDisposed = false;
  private readonly _changed = new Signal<this, void>(this);
}

/** Whether code is about hybrid_lab, or about MXNet, whose code it runs. */
export function mentionsHybridLab(source: string): boolean {
  return /\b(hybrid_lab|mxnet)\b/.test(source);
}

/** Whether a message came from running a cell (and not from a request of a panel). */
function isAboutExecution(message: KernelMessage.IMessage): boolean {
  const parent = message.parent_header;
  return 'msg_type' in parent && parent.msg_type === 'execute_request';
}

/** Wait until the kernel tells who it is. */
async function answerOf(kernel: Kernel.IKernelConnection): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const patience = new Promise<never>((_, reject) => {
    const late = new RequestError('closed', __('The kernel did not answer in time.'));
    timer = setTimeout(() => reject(late), RESTART_PATIENCE);
  });
  try {
    await Promise.race([kernel.requestKernelInfo(), patience]);
  } finally {
    clearTimeout(timer);
  }
}

/** Wait until the comm has its subshell, where the kernel has subshells at all. */
async function subshellOf(comm: Kernel.IComm, supported: boolean): Promise<void> {
  const started = (comm as Partial<{ subshellStarted: Promise<void> }>).subshellStarted;
  if (supported && started) {
    const patience = new Promise<void>(resolve => setTimeout(resolve, SUBSHELL_PATIENCE));
    await Promise.race([started.catch(() => undefined), patience]);
  }
}
