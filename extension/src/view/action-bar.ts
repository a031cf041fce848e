// Save all, Reload all, Undo, Open without code; what came of them is shown in place.

import { Requester, RequestError, asRequestError } from '../protocol/channel';
import type { Archive, Model, Progress, ReloadReply, SaveReply } from '../protocol/messages';
import { Child, append, button, h, replace, uniqueId } from './dom';
import { agoText, bytesText, plural } from './words';

export interface ActionBarOptions {
  /** Without it there is no "Open without code" (the widget belongs to one model). */
  withOpen: boolean;
  /** Called after anything that changed a model or made a new one. */
  onChanged(model: Model | null): void;
}

export class ActionBar {
  readonly element: HTMLElement;

  constructor(private readonly options: ActionBarOptions) {
    const listId = uniqueId('archives');
    this.archiveNames = h('datalist', { id: listId });
    this.fileInput = h('input', {
      class: 'hl-input',
      type: 'text',
      list: listId,
      spellcheck: 'false',
      'aria-label': "Archive's file name, in the notebook's folder",
      title: "Archive's file name, in the notebook's folder",
      oninput: () => {
        if (this.model) {
          this.files.set(this.model.id, this.fileInput.value.trim());
        }
      },
      onfocus: () => void this.listArchives()
    });
    this.saveButton = button('Save all', () => void this.save(), {
      class: 'hl-button hl-primary',
      title: 'Save every graph and all parameters of this model to one file'
    });
    this.reloadButton = button('Reload all', () => void this.reload(), {
      title: 'Load graphs and parameters from the file into this model; Undo reverts it'
    });
    this.undoButton = button('Undo', () => void this.undo(), { title: 'Undo the last reload' });
    this.openButton = button('Open without code', () => void this.showOpenForm(), {
      title: 'Load an archive as a new model; its Python code is not needed',
      'aria-expanded': 'false'
    });
    this.fileRow = h('label', { class: 'hl-file' }, h('span', {}, 'File'), this.fileInput, this.archiveNames);
    this.openForm = h('div', { class: 'hl-open-form' });
    this.openForm.hidden = true;
    this.results = h('div', { class: 'hl-results', role: 'status', 'aria-live': 'polite' });
    this.alerts = h('div', { class: 'hl-results', role: 'alert' });
    this.element = h(
      'div',
      { class: 'hl-actions', role: 'group', 'aria-label': 'Save and reload' },
      h(
        'div',
        { class: 'hl-buttons' },
        this.saveButton,
        this.reloadButton,
        this.undoButton,
        options.withOpen && this.openButton
      ),
      this.fileRow,
      this.openForm,
      this.results,
      this.alerts
    );
    this.enable();
  }

  /** Whom to ask; null with a reason where nobody can be asked. */
  connect(requester: Requester | null, reason = ''): void {
    this.requester = requester;
    this.reason = reason;
    if (!requester) {
      this.openForm.hidden = true;
    }
    this.enable();
  }

  /** Forget what came of earlier actions: another notebook or kernel is in front. */
  reset(): void {
    this.undoable = [];
    this.files.clear();
    this.closeOpenForm();
    if (!this.busy) {
      replace(this.results);
      replace(this.alerts);
    }
  }

  /** The model the buttons act on. */
  setModel(model: Model | null): void {
    const other = model?.id !== this.model?.id;
    this.model = model;
    if (document.activeElement !== this.fileInput || other) {
      this.fileInput.value = model ? this.fileOf(model) : '';
    }
    this.enable();
  }

  /** Save these models (by default the shown one), each to its own file. */
  async save(models: readonly Model[] = this.model ? [this.model] : []): Promise<void> {
    await this.run(models, 'Saving', async (requester, model, onProgress) => {
      const body = { model: model.id, file: this.fileOf(model), overwrite: false };
      let reply: SaveReply;
      try {
        reply = await requester.request('save', body, { onProgress });
      } catch (error) {
        if (asRequestError(error).code !== 'exists') {
          throw error;
        }
        if (!(await this.confirm(`${body.file} exists already.`, 'Replace it'))) {
          return [h('p', {}, `${model.name} was not saved.`)];
        }
        reply = await requester.request('save', { ...body, overwrite: true }, { onProgress });
      }
      this.options.onChanged(model);
      return [saved(model, reply)];
    });
  }

  /** Load each model's file into it. */
  async reload(models: readonly Model[] = this.model ? [this.model] : []): Promise<void> {
    const undoable: Undoable[] = [];
    await this.run(models, 'Loading', async (requester, model, onProgress) => {
      const body = { model: model.id, file: this.fileOf(model), graphs: 'code' as 'code' | 'file' };
      let reply: ReloadReply;
      try {
        reply = await requester.request('reload', body, { onProgress });
      } catch (caught) {
        const error = asRequestError(caught);
        if (error.code !== 'differs') {
          throw error;
        }
        if (!(await this.confirm(failure(error), "Use the file's graphs"))) {
          return [h('p', {}, `${model.name} was not changed.`)];
        }
        reply = await requester.request('reload', { ...body, graphs: 'file' }, { onProgress });
      }
      if (reply.undo) {
        undoable.push({ model, token: reply.undo });
      }
      this.options.onChanged(model);
      return [reloaded(model, reply)];
    });
    if (undoable.length > 0) {
      this.undoable = undoable;
      this.enable();
    }
  }

  /** Undo the last reload. */
  async undo(models: readonly Model[] = this.model ? [this.model] : []): Promise<void> {
    const steps =
      this.undoable.length > 0
        ? this.undoable
        : models.filter(model => model.undo !== '').map(model => ({ model, token: model.undo }));
    if (steps.length === 0) {
      this.fail(new RequestError('nothing-to-undo', 'There is no reload to undo.'));
      return;
    }
    this.undoable = [];
    await this.run(
      steps.map(step => step.model),
      'Undoing',
      async (requester, model) => {
        const token = steps.find(step => step.model === model)?.token ?? '';
        const reply = await requester.request('undo', { model: model.id, undo: token });
        this.options.onChanged(model);
        return [h('p', {}, reply.summary || `${model.name} is as it was before the reload.`)];
      }
    );
  }

  /** Unfold the form of "Open without code". */
  async showOpenForm(): Promise<void> {
    if (!this.openForm.hidden) {
      this.closeOpenForm();
      return;
    }
    const requester = this.requester;
    if (!requester) {
      this.fail(new RequestError('closed', this.reason));
      return;
    }
    this.openButton.setAttribute('aria-expanded', 'true');
    this.openForm.hidden = false;
    replace(this.openForm, h('p', { role: 'status' }, 'Looking for archives …'));
    try {
      const { archives, folder } = await requester.request('archives', {});
      this.fillArchives(archives);
      this.buildOpenForm(archives, folder);
    } catch (error) {
      this.closeOpenForm();
      this.fail(asRequestError(error));
    }
  }

  private buildOpenForm(archives: readonly Archive[], folder: string): void {
    if (archives.length === 0) {
      replace(
        this.openForm,
        h('p', { class: 'hl-empty' }, `There is no archive (.hlab) in ${folder}.`),
        button('Close', () => this.closeOpenForm())
      );
      return;
    }
    const now = Date.now() / 1000;
    const file = h(
      'select',
      { class: 'hl-input', 'aria-label': 'Archive', onchange: () => proposeName() },
      ...archives.map(archive => {
        const facts = archive.problem || `${archive.class}, ${plural(archive.graphs, 'graph')}`;
        return h(
          'option',
          { value: archive.file, disabled: archive.problem !== '' },
          `${archive.file} (${facts}, ${bytesText(archive.bytes)}, ${agoText(archive.modified, now)})`
        );
      })
    );
    const name = h('input', {
      class: 'hl-input',
      type: 'text',
      spellcheck: 'false',
      'aria-label': 'Variable'
    });
    const proposeName = (): void => {
      const stem = file.value.replace(/\.hlab$/, '').replace(/[^A-Za-z0-9_]/g, '_');
      name.value = /^[A-Za-z_]/.test(stem) ? stem : `net_${stem}`;
    };
    proposeName();
    const open = (): void => void this.open(file.value, name.value.trim());
    replace(
      this.openForm,
      h('label', {}, h('span', {}, 'Archive'), file),
      h('label', {}, h('span', {}, 'Variable'), name),
      h(
        'div',
        { class: 'hl-buttons' },
        button('Open', open, { class: 'hl-button hl-primary' }),
        button('Cancel', () => this.closeOpenForm())
      )
    );
    file.focus();
  }

  private async open(file: string, name: string): Promise<void> {
    const requester = this.requester;
    if (!requester) {
      return;
    }
    this.begin(`Opening ${file} …`);
    try {
      let reply;
      try {
        reply = await requester.request('open', { file, name, replace: false });
      } catch (error) {
        if (asRequestError(error).code !== 'name-taken') {
          throw error;
        }
        if (!(await this.confirm(`The variable ${name} exists already.`, 'Replace it'))) {
          this.finish([]);
          return;
        }
        reply = await requester.request('open', { file, name, replace: true });
      }
      this.closeOpenForm();
      this.finish([
        h('p', {}, `Opened as `, h('code', {}, reply.model.name), `. ${reply.summary}`),
        h('p', { class: 'hl-path' }, reply.path)
      ]);
      this.options.onChanged(reply.model);
    } catch (error) {
      this.finish([]);
      this.fail(asRequestError(error));
    }
  }

  private closeOpenForm(): void {
    this.openForm.hidden = true;
    this.openButton.setAttribute('aria-expanded', 'false');
    replace(this.openForm);
  }

  private async run(
    models: readonly Model[],
    doing: string,
    step: (requester: Requester, model: Model, onProgress: (progress: Progress) => void) => Promise<Child[]>
  ): Promise<void> {
    const { requester } = this;
    if (!requester || models.length === 0) {
      this.fail(new RequestError('closed', requester ? 'There is no model in this kernel.' : this.reason));
      return;
    }
    if (this.busy) {
      return;
    }
    const lines: Child[] = [];
    const failures: RequestError[] = [];
    for (const model of models) {
      this.begin(`${doing} ${model.name} …`);
      try {
        lines.push(...(await step(requester, model, progress => this.showProgress(progress))));
      } catch (error) {
        failures.push(asRequestError(error));
      }
    }
    this.finish(lines);
    failures.forEach(error => this.fail(error));
  }

  private begin(text: string): void {
    this.busy = true;
    this.enable();
    replace(this.alerts);
    replace(this.results, h('p', {}, text));
    // A kernel without subshells, or one that waits for a step boundary: say so instead of seeming dead.
    clearTimeout(this.patience);
    this.patience = setTimeout(
      () => append(this.results, [h('p', { class: 'hl-empty' }, 'The kernel is busy; the request waits.')]),
      3000
    );
  }

  private finish(lines: Child[]): void {
    clearTimeout(this.patience);
    this.busy = false;
    replace(this.results, ...lines);
    this.enable();
  }

  private showProgress(progress: Progress): void {
    clearTimeout(this.patience);
    const known = progress.total > 0;
    replace(
      this.results,
      h('p', {}, progress.text),
      h('progress', known ? { max: progress.total, value: progress.done } : {})
    );
  }

  private fail(error: RequestError): void {
    append(this.alerts, [h('div', { class: 'hl-alert' }, ...failure(error))]);
  }

  /** Ask in place; resolves with the answer. */
  private confirm(question: string | Child[], yes: string): Promise<boolean> {
    clearTimeout(this.patience);
    return new Promise(resolve => {
      const go = button(yes, () => resolve(true), { class: 'hl-button hl-primary' });
      const children = typeof question === 'string' ? [h('p', {}, question)] : question;
      replace(
        this.results,
        h(
          'div',
          { class: 'hl-confirm', role: 'group', 'aria-label': 'Please confirm' },
          ...children,
          h(
            'div',
            { class: 'hl-buttons' },
            go,
            button('Cancel', () => resolve(false))
          )
        )
      );
      go.focus();
    });
  }

  private async listArchives(): Promise<void> {
    try {
      const reply = await this.requester?.request('archives', {}, { timeout: 5000 });
      this.fillArchives(reply?.archives ?? []);
    } catch {
      // The list only proposes names; the field works without it.
    }
  }

  private fillArchives(archives: readonly Archive[]): void {
    replace(this.archiveNames, ...archives.map(archive => h('option', { value: archive.file })));
  }

  private fileOf(model: Model): string {
    return this.files.get(model.id) || model.file;
  }

  private enable(): void {
    const can = this.requester !== null && !this.busy;
    const onModel = can && this.model !== null;
    this.saveButton.disabled = !onModel;
    this.reloadButton.disabled = !onModel;
    this.undoButton.disabled = !onModel || (this.undoable.length === 0 && !this.model?.undo);
    this.openButton.disabled = !can;
    this.fileInput.disabled = !onModel;
  }

  private readonly saveButton: HTMLButtonElement;
  private readonly reloadButton: HTMLButtonElement;
  private readonly undoButton: HTMLButtonElement;
  private readonly openButton: HTMLButtonElement;
  private readonly fileInput: HTMLInputElement;
  private readonly fileRow: HTMLElement;
  private readonly archiveNames: HTMLElement;
  private readonly openForm: HTMLElement;
  private readonly results: HTMLElement;
  private readonly alerts: HTMLElement;
  private readonly files = new Map<string, string>();
  private requester: Requester | null = null;
  private reason = 'There is no running kernel.';
  private model: Model | null = null;
  private undoable: Undoable[] = [];
  private busy = false;
  private patience: ReturnType<typeof setTimeout> | undefined;
}

interface Undoable {
  model: Model;
  token: string;
}

/** An error as the user reads it: what, everything that differs, what to do next. */
function failure(error: RequestError): Child[] {
  return [
    h('p', {}, error.message),
    error.details.length > 0 && h('ul', {}, ...error.details.map(line => h('li', {}, line))),
    error.next !== '' && h('p', { class: 'hl-next' }, error.next)
  ];
}

function saved(model: Model, reply: SaveReply): HTMLElement {
  const graphs = reply.graphs.map(
    graph => `${graph.path || model.name} (${plural(graph.operators, 'operator')})`
  );
  return h(
    'div',
    { class: 'hl-result' },
    h(
      'p',
      {},
      `Saved ${model.name}: ${plural(reply.graphs.length, 'graph')}, ${plural(reply.blocks, 'Block')}, ` +
        `${bytesText(reply.bytes)}, ${reply.seconds.toFixed(2)} s.`
    ),
    h('p', { class: 'hl-path' }, h('code', {}, reply.path), ` on ${reply.host}`),
    reply.note !== '' && h('p', {}, reply.note),
    graphs.length > 0 &&
      h('details', {}, h('summary', {}, 'Graphs'), h('ul', {}, ...graphs.map(line => h('li', {}, line))))
  );
}

function reloaded(model: Model, reply: ReloadReply): HTMLElement {
  return h(
    'div',
    { class: 'hl-result' },
    h('p', {}, reply.summary || `Loaded ${plural(reply.graphs, 'graph')} into ${model.name}.`),
    h('p', { class: 'hl-path' }, h('code', {}, reply.path), ` on ${reply.host}`),
    reply.diff.length > 0
      ? h(
          'details',
          {},
          h('summary', {}, `${plural(reply.diff.length, 'change')} (Undo takes them back)`),
          h('ul', {}, ...reply.diff.map(line => h('li', {}, line)))
        )
      : h('p', {}, 'Nothing changed.')
  );
}
