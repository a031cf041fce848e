// Questions about a model file, answered by the Jupyter server: the same requests that a kernel answers, over HTTP.

import type { Requester } from '../protocol/channel';
import { RequestError, asRequestError } from '../protocol/channel';
import type {
  DocumentAnswer,
  DocumentRequestType,
  DocumentRequests,
  Reply,
  RequestType,
  Requests
} from '../protocol/messages';
import { DOCUMENT_REPLIES, REPLIES, errorBody } from '../protocol/messages';
import { __ } from '../text';

/** Posts JSON to the server; resolves to the answer's status and its JSON, which is null if the answer is not JSON. */
export type Post = (body: unknown) => Promise<{ status: number; body: unknown }>;

const NO_ENDPOINT = __(
  'This Jupyter server cannot read model files: the package hybrid-lab is not installed in the environment that runs the server.'
);

export class FileRequester implements Requester {
  /** `path`: of the file, on the server. */
  constructor(
    readonly path: string,
    private readonly post: Post
  ) {}

  async request<T extends RequestType>(type: T, body: Requests[T]): Promise<Reply<T>> {
    return REPLIES[type](await this.send(type, body), type) as Reply<T>;
  }

  /** A request about the file itself. */
  async ask<T extends DocumentRequestType>(type: T, body: DocumentRequests[T]): Promise<DocumentAnswer<T>> {
    return DOCUMENT_REPLIES[type](await this.send(type, body), type) as DocumentAnswer<T>;
  }

  private async send(type: string, body: unknown): Promise<unknown> {
    let answer: { status: number; body: unknown };
    try {
      answer = await this.post({ file: this.path, type, body });
    } catch (error) {
      throw new RequestError('closed', __('The server did not answer: %1', asRequestError(error).message));
    }
    if (answer.status === 200) {
      return answer.body;
    }
    let error: RequestError;
    try {
      const { code, message, next, details } = errorBody(answer.body, 'error');
      error = new RequestError(code, message, next, details);
    } catch {
      const isMissing = answer.status === 404 || answer.status === 405;
      error = new RequestError(
        'failed',
        isMissing ? NO_ENDPOINT : __('The server answered %1.', answer.status),
        isMissing ? __('Run pip install hybrid-lab there, and start the server again.') : ''
      );
    }
    throw error;
  }
}
