// "Open without code": the form that binds a model from a file to a new variable.

import { RequestError, Requester, asRequestError } from '../protocol/channel';
import type { Archive, Model } from '../protocol/messages';
import { ActionResults } from './action-results';
import { button, h, replace } from './dom';
import { facts } from './save-part';

export interface OpenPartOptions {
  onOpened(requester: Requester, model: Model): void;
  /** Called when the form unfolds. */
  onShown?(): void;
}

export class OpenPart {
  readonly element: HTMLElement;
  readonly button: HTMLButtonElement;

  constructor(
    /** Where to show what comes of it; null where there is no kernel. */
    private readonly outcome: () => ActionResults | null,
    private readonly options: OpenPartOptions
  ) {
    this.button = button('Open without code', () => void this.show(), {
      title: 'Load an archive as a new model; its Python code is not needed',
      'aria-expanded': 'false'
    });
    this.element = h('div', { class: 'hl-open-form' });
    this.element.hidden = true;
  }

  connect(requester: Requester | null, reason: string): void {
    if (requester !== this.requester) {
      this.close(); // it is about the archives of another kernel
    }
    this.requester = requester;
    this.reason = reason;
  }

  /** Unfold the form, or fold it again. */
  async show(): Promise<void> {
    if (!this.element.hidden) {
      this.close();
      return;
    }
    const requester = this.requester;
    if (!requester) {
      this.outcome()?.fail(new RequestError('closed', this.reason));
      return;
    }
    this.button.setAttribute('aria-expanded', 'true');
    this.element.hidden = false;
    this.options.onShown?.();
    replace(this.element, h('p', { role: 'status' }, 'Looking for archives …'));
    try {
      const { archives, folder } = await requester.request('archives', {});
      if (requester === this.requester && !this.element.hidden) {
        this.build(archives, folder);
      }
    } catch (error) {
      if (requester === this.requester) {
        this.close();
        this.outcome()?.fail(asRequestError(error));
      }
    }
  }

  close(): void {
    this.element.hidden = true;
    this.button.setAttribute('aria-expanded', 'false');
    replace(this.element);
  }

  private build(archives: readonly Archive[], folder: string): void {
    if (archives.length === 0) {
      replace(
        this.element,
        h('p', { class: 'hl-empty' }, `There is no archive (.hlab) in ${folder}.`),
        button('Close', () => this.close())
      );
      return;
    }
    const file = h(
      'select',
      { class: 'hl-input', 'aria-label': 'Archive', onchange: () => proposeName() },
      ...archives.map(archive =>
        h(
          'option',
          { value: archive.file, disabled: archive.problem !== '' },
          `${archive.file} (${archive.problem || facts(archive)})`
        )
      )
    );
    const name = h('input', {
      class: 'hl-input',
      type: 'text',
      spellcheck: 'false',
      'aria-label': 'Variable'
    });
    const proposeName = (): void => {
      const chosen = archives.find(archive => archive.file === file.value);
      const stem = file.value.replace(/\.hlab$/, '').replace(/[^A-Za-z0-9_]/g, '_');
      name.value = chosen?.variable || (/^[A-Za-z_]/.test(stem) ? stem : `net_${stem}`);
    };
    proposeName();
    const open = (): void => void this.open(file.value, name.value.trim());
    replace(
      this.element,
      h('label', {}, h('span', {}, 'Archive'), file),
      h('label', {}, h('span', {}, 'Variable'), name),
      h(
        'div',
        { class: 'hl-buttons' },
        button('Open', open, { class: 'hl-button hl-primary' }),
        button('Cancel', () => this.close())
      )
    );
    file.focus();
  }

  private async open(file: string, name: string): Promise<void> {
    const { requester } = this;
    const results = this.outcome();
    if (!requester || !results || results.busy) {
      return;
    }
    results.begin(`Opening ${file} …`);
    try {
      let reply;
      try {
        reply = await requester.request('open', { file, name, replace: false });
      } catch (error) {
        if (asRequestError(error).code !== 'name-taken') {
          throw error;
        }
        if (!(await results.confirm(`The variable ${name} exists already.`, 'Replace it'))) {
          results.finish([]);
          return;
        }
        reply = await requester.request('open', { file, name, replace: true });
      }
      if (requester === this.requester) {
        this.close();
      }
      results.finish([
        h('p', {}, `Opened as `, h('code', {}, reply.model.name), `. ${reply.summary}`),
        h('p', { class: 'hl-path' }, reply.path)
      ]);
      this.options.onOpened(requester, reply.model);
    } catch (error) {
      results.finish([]);
      results.fail(asRequestError(error));
    }
  }

  private requester: Requester | null = null;
  private reason = '';
}
