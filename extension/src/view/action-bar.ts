// Save, Reload, Compare, Undo, Open without code: the buttons, and what they act on.

import { Requester, RequestError, asRequestError } from '../protocol/channel';
import type { Archive, Model, Progress, Saving } from '../protocol/messages';
import { ActionResults } from './action-results';
import { AutosavePart } from './autosave-part';
import type { DiffOptions, GraphMark } from './diff-view';
import { Child, button, h, replace, uniqueId } from './dom';
import { HistoryPart } from './history-part';
import { OpenPart } from './open-part';
import { Undoable, compare, reload, reloaded } from './reload-part';
import { SaveTarget, everyModelForm, nameOf, save } from './save-part';

export interface ActionBarOptions {
  /** Without it there is no "Open without code" (the widget belongs to one model). */
  withOpen: boolean;
  /** Called after anything that changed a model or made a new one. */
  onChanged(model: Model | null): void;
  /** Show a Block in the graph, with these operators marked; without it differences have no button for it. */
  onShowInGraph?: (block: string, marks: GraphMark[]) => void;
  /** Called when `outcome` shows something that the user has to see: a question, a form, a result, an error. */
  onOutcome?: () => void;
}

export class ActionBar {
  /** Save, Reload, Compare and Undo, for a toolbar. */
  readonly buttons: HTMLElement;
  /** What is wanted less often, for a menu: every model, another file, a Block alone, earlier saves, the autosave. */
  readonly more: HTMLElement;
  /** Forms, questions, results and errors, for a place where they move nothing else. */
  readonly outcome: HTMLElement;

  constructor(private readonly options: ActionBarOptions) {
    const listId = uniqueId('archives');
    this.diffOptions = options.onShowInGraph ? { onShow: options.onShowInGraph } : {};
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
          this.history.show(this.requester, this.fileOf(this.model));
        }
      },
      onfocus: () => void this.listArchives()
    });
    this.saveButton = button('Save', () => void this.save(), {
      class: 'hl-button hl-primary hl-icon hl-icon-save',
      title: 'Save every graph and all parameters of this model to one file'
    });
    this.everyButton = button('Save every model', () => void this.saveEvery(), {
      title: 'List all models with their files, then save them'
    });
    this.reloadButton = button('Reload', () => void this.reload(), {
      class: 'hl-button hl-icon hl-icon-reload',
      title: 'Load graphs and parameters from the file into this model; Undo reverts it'
    });
    this.compareButton = button('Compare…', () => void this.compare(), {
      class: 'hl-button hl-icon hl-icon-compare',
      title: 'Show what differs between the file and this model; nothing is changed'
    });
    this.undoButton = button('Undo', () => void this.undo(), {
      class: 'hl-button hl-icon hl-icon-undo',
      title: 'Undo the last reload'
    });
    this.results.onBusy = () => this.enable();
    this.results.onShown = () => this.options.onOutcome?.();
    this.opening = new OpenPart(this.results, {
      onArchives: archives => this.fillArchives(archives),
      onShown: () => this.options.onOutcome?.(),
      onOpened: model => {
        this.told = [model.id];
        this.options.onChanged(model);
      }
    });
    this.history = new HistoryPart({
      onCompare: file => void this.compare(file),
      onReload: file => void this.reload(undefined, file)
    });
    this.autosave = new AutosavePart(() => this.options.onChanged(this.model));
    this.form = h('div', { class: 'hl-open-form' });
    this.form.hidden = true;
    this.blockButtons = h('div', { class: 'hl-buttons hl-block-buttons' });
    this.buttons = h(
      'div',
      { class: 'hl-buttons', role: 'group', 'aria-label': 'Save and reload' },
      this.saveButton,
      this.reloadButton,
      this.compareButton,
      this.undoButton
    );
    this.more = h(
      'div',
      { class: 'hl-actions' },
      h('div', { class: 'hl-buttons' }, this.everyButton, options.withOpen && this.opening.button),
      h('label', { class: 'hl-file' }, h('span', {}, 'File'), this.fileInput, this.archiveNames),
      this.blockButtons,
      this.history.element,
      this.autosave.element
    );
    this.outcome = h(
      'div',
      { class: 'hl-actions' },
      this.form,
      this.opening.element,
      this.results.element,
      this.autosave.alert
    );
    this.enable();
  }

  /** Whom to ask; null with a reason where nobody can be asked. */
  connect(requester: Requester | null, reason = ''): void {
    this.requester = requester;
    this.reason = reason;
    this.opening.connect(requester, reason);
    if (!requester) {
      this.closeForm();
    }
    this.enable();
  }

  /** Forget what came of earlier actions: another notebook or kernel is in front. */
  reset(): void {
    this.undoable = [];
    this.files.clear();
    this.opening.close();
    this.closeForm();
    this.results.clear();
  }

  /** The model the buttons act on. */
  setModel(model: Model | null): void {
    const other = model?.id !== this.model?.id;
    this.model = model;
    if (other) {
      this.block = '';
    }
    if (document.activeElement !== this.fileInput || other) {
      this.fileInput.value = model ? this.fileOf(model) : '';
    }
    this.fileInput.placeholder = model?.file ?? '';
    if (other && model && this.told.length > 0 && !this.told.includes(model.id)) {
      this.results.clear();
    }
    this.enable();
  }

  /** All models, and how the kernel saves them. */
  setModels(models: readonly Model[], saving: Readonly<Record<string, Saving>> = {}): void {
    this.models = models;
    this.saving = saving;
    this.enable();
  }

  /** The Block that is selected, which can be saved and reloaded alone; '' is the model. */
  setBlock(path: string): void {
    if (path !== this.block) {
      this.block = path;
      this.enable();
    }
  }

  /** Save these models (by default the shown one), each to its own file. */
  async save(models: readonly Model[] = this.model ? [this.model] : []): Promise<void> {
    await this.run(this.targets(models), 'Saving', async (requester, target, onProgress) => {
      const lines = await save(requester, target, this.results, onProgress);
      this.options.onChanged(target.model);
      return lines;
    });
    void this.history.load();
  }

  /** List every model with its file; the user then chooses which are saved. One model alone is saved at once. */
  async saveEvery(models: readonly Model[] = this.models): Promise<void> {
    const { requester } = this;
    if (!requester || models.length < 2) {
      await this.save(models);
      return;
    }
    if (!this.form.hidden) {
      this.closeForm();
      return;
    }
    try {
      const form = await everyModelForm(
        requester,
        this.targets(models),
        this.saving,
        chosen => {
          this.closeForm();
          void this.saveChosen(chosen);
        },
        () => this.closeForm()
      );
      replace(this.form, form);
      this.form.hidden = false;
      this.options.onOutcome?.();
      form.querySelector<HTMLElement>('.hl-primary')?.focus();
    } catch (error) {
      this.results.fail(asRequestError(error));
    }
  }

  private async saveChosen(chosen: readonly { target: SaveTarget; replaces: string }[]): Promise<void> {
    const versions = new Map(chosen.map(({ target, replaces }) => [target, replaces]));
    await this.run([...versions.keys()], 'Saving', async (requester, target, onProgress) => {
      const lines = await save(requester, target, this.results, onProgress, versions.get(target));
      this.options.onChanged(this.model);
      return lines;
    });
    void this.history.load();
  }

  /** Load each model's file, or the one that is given, into it. */
  async reload(models: readonly Model[] = this.model ? [this.model] : [], file = ''): Promise<void> {
    await this.reloadTargets(this.targets(models, file));
  }

  private async reloadTargets(targets: readonly SaveTarget[]): Promise<void> {
    const undoable: Undoable[] = [];
    const options: DiffOptions = { ...this.diffOptions };
    await this.run(targets, 'Loading', async (requester, target, onProgress) => {
      const reply = await reload(requester, target, this.results, options, onProgress);
      if (!reply) {
        return [h('p', {}, `${nameOf(target.model, target.path)} was not changed.`)];
      }
      if (reply.undo) {
        undoable.push({ model: target.model, token: reply.undo });
      }
      this.options.onChanged(target.model);
      return [reloaded(target, reply, options, () => void this.undo())];
    });
    if (undoable.length > 0) {
      this.undoable = undoable;
      this.enable();
    }
  }

  /** Show what differs between a file and the model, or the selected Block. */
  async compare(file = '', path = ''): Promise<void> {
    const targets = this.targets(this.model ? [this.model] : [], file, path);
    await this.run(targets, 'Comparing', (requester, target, onProgress) =>
      compare(requester, target, this.diffOptions, onProgress)
    );
  }

  /** Undo the last reload. */
  async undo(models: readonly Model[] = this.model ? [this.model] : []): Promise<void> {
    const steps =
      this.undoable.length > 0
        ? this.undoable
        : models.filter(model => model.undo !== '').map(model => ({ model, token: model.undo }));
    if (steps.length === 0) {
      this.results.fail(new RequestError('nothing-to-undo', 'There is no reload to undo.'));
      return;
    }
    this.undoable = [];
    const tokens = new Map(steps.map(step => [step.model, step.token]));
    await this.run(this.targets([...tokens.keys()]), 'Undoing', async (requester, { model }) => {
      const reply = await requester.request('undo', { model: model.id, undo: tokens.get(model) ?? '' });
      this.options.onChanged(model);
      return [h('p', {}, reply.summary || `${model.name} is as it was before the reload.`)];
    });
  }

  /** Unfold the form of "Open without code". */
  showOpenForm(): Promise<void> {
    return this.opening.show();
  }

  private async run(
    targets: readonly SaveTarget[],
    doing: string,
    step: (
      requester: Requester,
      target: SaveTarget,
      onProgress: (progress: Progress) => void
    ) => Promise<Child[]>
  ): Promise<void> {
    const { requester, results } = this;
    if (!requester || targets.length === 0) {
      results.fail(new RequestError('closed', requester ? 'There is no model in this kernel.' : this.reason));
      return;
    }
    if (results.busy) {
      return;
    }
    this.told = targets.map(target => target.model.id);
    const lines: Child[] = [];
    const failures: RequestError[] = [];
    for (const target of targets) {
      results.begin(`${doing} ${nameOf(target.model, target.path)} …`);
      try {
        lines.push(...(await step(requester, target, progress => results.showProgress(progress))));
      } catch (error) {
        failures.push(asRequestError(error));
      }
    }
    results.finish(lines);
    failures.forEach(error => results.fail(error));
  }

  private targets(models: readonly Model[], file = '', path = ''): SaveTarget[] {
    return models.map(model => ({ model, path, file: file || (path ? '' : this.fileOf(model)) }));
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

  private closeForm(): void {
    this.form.hidden = true;
    replace(this.form);
  }

  private enable(): void {
    const { model, block } = this;
    const can = this.requester !== null && !this.results.busy;
    const onModel = can && model !== null;
    const wanted = this.models.filter(each => !this.saving[each.id]?.left_out).length;
    this.saveButton.textContent = model ? `Save ${model.name}` : 'Save';
    this.reloadButton.textContent = model ? `Reload ${model.name}` : 'Reload';
    this.everyButton.textContent = `Save every model (${wanted})`;
    this.everyButton.hidden = this.models.length < 2;
    this.everyButton.disabled = !can;
    this.saveButton.disabled = !onModel;
    this.reloadButton.disabled = !onModel;
    this.compareButton.disabled = !onModel;
    this.undoButton.disabled = !onModel || (this.undoable.length === 0 && !model?.undo);
    this.opening.button.disabled = !can;
    this.fileInput.disabled = !onModel;
    this.history.show(this.requester, model ? this.fileOf(model) : '');
    this.autosave.show(this.requester, model, model ? this.saving[model.id]?.autosave : undefined);
    this.showBlockButtons(onModel ? block : '', !onModel);
  }

  private showBlockButtons(path: string, disabled: boolean): void {
    const key = `${this.model?.id ?? ''}|${path}|${disabled}`;
    if (key === this.blockKey) {
      return;
    }
    this.blockKey = key;
    this.blockButtons.hidden = path === '' || !this.model;
    if (path === '' || !this.model) {
      replace(this.blockButtons);
      return;
    }
    const { model } = this;
    const file = `${model.name}.${path}.hlab`;
    const targets = (): SaveTarget[] => this.targets([model], file, path);
    replace(
      this.blockButtons,
      h('span', { class: 'hl-summary' }, `Block ${path}:`),
      button('Save Block', () => void this.saveChosen(targets().map(target => ({ target, replaces: '' }))), {
        title: `Save this Block alone, as ${file}`
      }),
      button('Reload Block', () => void this.reloadTargets(targets()), {
        title: `Load ${file} into this Block; Undo reverts it`
      }),
      button('Compare Block…', () => void this.compare(file, path), {
        title: `Show what differs between ${file} and this Block`
      })
    );
  }

  private readonly diffOptions: DiffOptions;
  private readonly results = new ActionResults();
  private readonly opening: OpenPart;
  private readonly history: HistoryPart;
  private readonly autosave: AutosavePart;
  private readonly saveButton: HTMLButtonElement;
  private readonly everyButton: HTMLButtonElement;
  private readonly reloadButton: HTMLButtonElement;
  private readonly compareButton: HTMLButtonElement;
  private readonly undoButton: HTMLButtonElement;
  private readonly fileInput: HTMLInputElement;
  private readonly archiveNames: HTMLElement;
  private readonly form: HTMLElement;
  private readonly blockButtons: HTMLElement;
  private readonly files = new Map<string, string>();
  private requester: Requester | null = null;
  private reason = 'There is no running kernel.';
  private model: Model | null = null;
  private models: readonly Model[] = [];
  private saving: Readonly<Record<string, Saving>> = {};
  private block = '';
  private blockKey = '';
  /** Ids of the models that the results tell of. */
  private told: string[] = [];
  private undoable: Undoable[] = [];
}
