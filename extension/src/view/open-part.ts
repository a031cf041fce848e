// "Open without code": the form that binds a model from a file to a new variable.

import type { Requester } from '../protocol/channel';
import { RequestError, asRequestError } from '../protocol/channel';
import type { Archive, ArchivesReply, Model } from '../protocol/messages';
import type { ActionResults } from './action-results';
import { button, h, replace, uniqueId } from './dom';
import { facts } from './save-part';
import { __ } from '../text';

export interface OpenPartOptions {
  onOpened: (requester: Requester, model: Model) => void;
  /** Called when the form unfolds. */
  onShown?: () => void;
}

export class OpenPart {
  readonly element: HTMLElement;
  readonly button: HTMLButtonElement;

  constructor(
    /** Where to show what comes of it; null where there is no kernel. */
    private readonly outcome: () => ActionResults | null,
    private readonly options: OpenPartOptions
  ) {
    this.button = button(__('Open without code'), () => void this.show(), {
      title: __('Load an archive as a new model; its Python code is not needed'),
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
    if (this.isOpen()) {
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
    replace(this.element, h('p', { role: 'status' }, __('Looking for archives …')));
    try {
      const reply = await requester.request('archives', {});
      if (requester === this.requester && this.isOpen()) {
        this.build(requester, reply);
      }
    } catch (error) {
      if (requester === this.requester) {
        this.close();
        this.outcome()?.fail(asRequestError(error));
      }
    }
  }

  private isOpen(): boolean {
    return !this.element.hidden;
  }

  close(): void {
    this.element.hidden = true;
    this.button.setAttribute('aria-expanded', 'false');
    replace(this.element);
  }

  private build(requester: Requester, start: ArchivesReply): void {
    let archives: readonly Archive[] = [];
    const listId = uniqueId('folders');
    const folders = h('datalist', { id: listId });
    const folder = h('input', {
      class: 'hl-input',
      type: 'text',
      list: listId,
      spellcheck: 'false',
      placeholder: __('the folder of the notebook'),
      'aria-label': __('Folder'),
      title: __('A folder in %1, such as runs/a', start.folder),
      oninput: () => void look()
    });
    const none = h('p', { class: 'hl-empty', role: 'status' });
    const file = h('select', {
      class: 'hl-input',
      'aria-label': __('Archive'),
      onchange: () => proposeName()
    });
    const list = (reply: ArchivesReply, path: string, wanted: string): void => {
      archives = reply.archives;
      const above = path === '' ? '' : `${path}/`;
      replace(folders, ...reply.folders.map(name => h('option', { value: above + name })));
      replace(
        file,
        ...archives.map(archive =>
          h(
            'option',
            { value: archive.file, disabled: archive.problem !== '' },
            `${archive.file.slice(above.length)} (${archive.problem || facts(archive)})`
          )
        )
      );
      const first = archives.find(archive => archive.problem === '');
      file.value = archives.some(archive => archive.file === wanted) ? wanted : (first?.file ?? '');
      none.textContent =
        archives.length === 0 ? __('There is no archive (.hlab) in %1.', path || reply.folder) : '';
      none.hidden = archives.length > 0;
      file.disabled = archives.length === 0;
      openButton.disabled = first === undefined;
      proposeName();
    };
    /** List the folder that is typed; a name of a file lists its folder. */
    const look = async (): Promise<void> => {
      const typed = folder.value.trim().replace(/^\/+|\/+$/g, '');
      const path = typed.endsWith('.hlab') ? typed.split('/').slice(0, -1).join('/') : typed;
      try {
        const reply = await requester.request('archives', { path });
        if (typed === folder.value.trim().replace(/^\/+|\/+$/g, '')) {
          list(reply, path, typed);
        }
      } catch (error) {
        list({ ...start, archives: [], folders: [] }, path, '');
        none.textContent = asRequestError(error).message;
      }
    };
    const name = h('input', {
      class: 'hl-input',
      type: 'text',
      spellcheck: 'false',
      'aria-label': __('Variable')
    });
    const proposeName = (): void => {
      const chosen = archives.find(archive => archive.file === file.value);
      const last = file.value.split('/').pop() ?? '';
      const stem = last.replace(/\.hlab$/, '').replace(/[^A-Za-z0-9_]/g, '_');
      name.value = chosen?.variable || (/^[A-Za-z_]/.test(stem) ? stem : `net_${stem}`);
    };
    const open = (): void => void this.open(file.value, name.value.trim());
    const openButton = button(__('Open'), open, { class: 'hl-button hl-primary' });
    list(start, '', '');
    replace(
      this.element,
      h('label', {}, h('span', {}, __('Folder')), folder, folders),
      h('label', {}, h('span', {}, __('Archive')), file),
      none,
      h('label', {}, h('span', {}, __('Variable')), name),
      h(
        'div',
        { class: 'hl-buttons' },
        openButton,
        button(__('Cancel'), () => this.close())
      )
    );
    (start.archives.length > 0 ? file : folder).focus();
  }

  private async open(file: string, name: string): Promise<void> {
    const { requester } = this;
    const results = this.outcome();
    if (!requester || !results || results.busy) {
      return;
    }
    results.begin(__('Opening %1 …', file));
    try {
      let reply;
      try {
        reply = await requester.request('open', { file, name, replace: false });
      } catch (error) {
        if (asRequestError(error).code !== 'name-taken') {
          throw error;
        }
        if (!(await results.confirm(__('The variable %1 exists already.', name), __('Replace it')))) {
          results.finish([]);
          return;
        }
        reply = await requester.request('open', { file, name, replace: true });
      }
      if (requester === this.requester) {
        this.close();
      }
      results.finish([
        h('p', {}, __('Opened as '), h('code', {}, reply.model.name), `. ${reply.summary}`),
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
