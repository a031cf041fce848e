// Requests with exactly one reply each, over anything that carries JSON (a comm, a widget's custom messages).

import { ProtocolError, anything, integer, record, text } from './check';
import type {
  CurvesReply,
  WorkPush,
  ErrorBody,
  ModelsReply,
  Progress,
  Reply,
  RequestType,
  Requests,
  WorkersReply
} from './messages';
import {
  PROTOCOL,
  REPLIES,
  curvesReply,
  workPush,
  errorBody,
  modelsReply,
  progress,
  workersReply
} from './messages';
import { __ } from '../text';

/** Codes of errors: the kernel's, and three that arise on this side. */
export type FailureCode = ErrorBody['code'] | 'closed' | 'timeout' | 'malformed';

/** A request that was not answered with `ok`. */
export class RequestError extends Error {
  override name = 'RequestError';
  constructor(
    readonly code: FailureCode,
    message: string,
    readonly next = '',
    readonly details: readonly string[] = []
  ) {
    super(message);
  }
}

/** What can go wrong, in the form the views show. */
export function asRequestError(error: unknown): RequestError {
  if (error instanceof RequestError) {
    return error;
  }
  return new RequestError('failed', error instanceof Error ? error.message : String(error));
}

/** One line with the message of an error and the next step. */
export function errorText(error: unknown): string {
  const { message, next } = asRequestError(error);
  return [message, next].filter(text => text !== '').join(' ');
}

export interface RequestOptions {
  onProgress?: (progress: Progress) => void;
  /** Milliseconds after which the request fails with code `timeout`; none by default: a cell may run for hours. */
  timeout?: number;
}

/** Anything the views can ask. */
export interface Requester {
  request: <T extends RequestType>(type: T, body: Requests[T], options?: RequestOptions) => Promise<Reply<T>>;
  /** Resolves when nobody answers any more: the kernel is gone. */
  readonly closed?: Promise<void>;
}

interface Pending {
  accept: (body: unknown) => void;
  reject: (error: RequestError) => void;
  onProgress?: (progress: Progress) => void;
}

/** One conversation with one kernel. */
export class Channel implements Requester {
  /** Called with each `models` push. */
  onModels: (push: ModelsReply) => void = () => undefined;
  /** Called with each `curves` push. */
  onCurves: (push: CurvesReply) => void = () => undefined;
  /** Called with each `work` push. */
  onWork: (push: WorkPush) => void = () => undefined;
  /** Called with each `workers` push. */
  onWorkers: (push: WorkersReply) => void = () => undefined;
  /** Called once, when the kernel sent a kind of message that only a newer front end knows; it is ignored. */
  onUnknown: () => void = () => undefined;
  /** Called with a sentence when the kernel sent something that is not in the protocol. */
  onMalformed: (message: string) => void = () => undefined;

  /** The kernel that requests are meant for, as its answer to `hello` says; it refuses those for another one. */
  kernelId = '';

  readonly closed: Promise<void>;

  constructor(private readonly send: (message: Envelope) => void) {
    this.closed = new Promise(resolve => (this.onClosed = resolve));
  }

  get waiting(): number {
    return this.pending.size;
  }

  request<T extends RequestType>(
    type: T,
    body: Requests[T],
    options: RequestOptions = {}
  ): Promise<Reply<T>> {
    return new Promise((resolve, reject) => {
      if (this.reason !== null) {
        reject(new RequestError('closed', this.reason));
        return;
      }
      const id = `r${++this.count}`;
      let timer: ReturnType<typeof setTimeout> | undefined;
      const settle = (): void => {
        clearTimeout(timer);
        this.pending.delete(id);
      };
      this.pending.set(id, {
        accept: value => {
          settle();
          try {
            resolve(REPLIES[type](value, type) as Reply<T>);
          } catch (error) {
            reject(malformed(error));
          }
        },
        reject: error => {
          settle();
          reject(error);
        },
        onProgress: options.onProgress
      });
      if (options.timeout !== undefined) {
        timer = setTimeout(
          () =>
            this.pending
              .get(id)
              ?.reject(new RequestError('timeout', __('The kernel did not answer in time.'))),
          options.timeout
        );
      }
      try {
        this.send({ hybrid_lab: PROTOCOL, kernel_id: this.kernelId, id, type, body });
      } catch (error) {
        this.pending.get(id)?.reject(new RequestError('closed', asRequestError(error).message));
      }
    });
  }

  /** Take one message of the kernel. Never throws. */
  receive(data: unknown): void {
    try {
      const message = frame(data, '');
      const pending = this.pending.get(message.id); // none: a push, or a reply after its timeout
      switch (message.type) {
        case 'models':
          this.onModels(modelsReply(message.body, 'models'));
          break;
        case 'curves':
          this.onCurves(curvesReply(message.body, 'curves'));
          break;
        case 'work':
          this.onWork(workPush(message.body, 'work'));
          break;
        case 'workers':
          this.onWorkers(workersReply(message.body, 'workers'));
          break;
        case 'ok':
          pending?.accept(message.body);
          break;
        case 'error':
          pending?.reject(kernelError(message.body));
          break;
        case 'progress':
          pending?.onProgress?.(progress(message.body, 'progress'));
          break;
        default:
          if (!this.hasUnknown) {
            this.hasUnknown = true;
            this.onUnknown();
          }
      }
    } catch (error) {
      this.onMalformed(malformed(error).message);
    }
  }

  /** Fail everything that waits, and every later request, with this reason. */
  close(reason: string): void {
    this.reason = reason;
    this.onClosed();
    for (const pending of [...this.pending.values()]) {
      pending.reject(new RequestError('closed', reason));
    }
  }

  private onClosed: () => void = () => undefined;
  /** Why nobody answers any more. */
  private reason: string | null = null;
  private count = 0;
  private hasUnknown = false;
  private readonly pending = new Map<string, Pending>();
}

/** Any message of the kernel. A newer kernel may send kinds of messages that this front end does not know. */
const frame = record({ hybrid_lab: integer, id: text, type: text, body: anything });

/** A request as it travels. */
export interface Envelope {
  hybrid_lab: number;
  kernel_id: string;
  id: string;
  type: RequestType;
  body: Requests[RequestType];
}

function kernelError(body: unknown): RequestError {
  try {
    const error = errorBody(body, 'error');
    return new RequestError(error.code, error.message, error.next, error.details);
  } catch (error) {
    return malformed(error);
  }
}

function malformed(error: unknown): RequestError {
  const reason = error instanceof ProtocolError ? error.message : asRequestError(error).message;
  return new RequestError(
    'malformed',
    __('The kernel sent something this front end does not understand (%1).', reason),
    __('Upgrade hybrid-lab in the kernel and in JupyterLab to the same version.')
  );
}
