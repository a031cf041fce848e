// Save, Reload, Compare, Undo, Open without code: the buttons, and what they act on. What came of an action belongs to
// the kernel and the model that it was meant for, see ActionScope.

import type { Requester } from '../protocol/channel';
import { RequestError, asRequestError } from '../protocol/channel';
import type { FolderReply, Model, Progress, Saving } from '../protocol/messages';
import type { ActionResults } from './action-results';
import { ActionScope, EVERY } from './action-scope';
import { AutosavePart } from './autosave-part';
import type { DiffOptions, GraphMark } from './diff-view';
import type { Child } from './dom';
import { button, h, replace } from './dom';
import { FilePart } from './file-part';
import { HistoryPart } from './history-part';
import type { SavesOptions } from './saved-values';
import { OpenPart } from './open-part';
import type { SideBySide } from './compare-view';
import type { SideBySideHost } from './reload-part';
import { compare, reload, reloaded } from './reload-part';
import type { SaveTarget, Undoable } from './save-part';
import { save, saveEvery, saved } from './save-part';
import { SHARE, share } from './share-part';
import { accessPath } from './words';
import { __ } from '../text';

export interface ActionBarOptions {
  /** Without it there is no "Open without code" (the widget belongs to one model). */
  withOpen: boolean;
  /** Called after anything that changed a model of the kernel in front, or made a new one. */
  onChanged: (model: Model | null) => void;
  /** Show a Block in the graph, with these operators marked; without it differences have no button for it. */
  onShowInGraph?: (block: string, marks: GraphMark[]) => void;
  /** Show the graphs of a comparison side by side. */
  sideBySide?: SideBySideHost;
  /** Open the tab of earlier saves; without it the menu has no entry for them. */
  onSaves?: () => void;
  /** The code that gives the Block at a path of the model in front. */
  codeOf?: (path: string) => string;
  /** Called when `outcome` shows something that the user has to see: a question, a form, a result, an error. */
  onOutcome?: () => void;
}

export class ActionBar {
  /** Save, Reload, Compare and Undo, for a toolbar. */
  readonly buttons: HTMLElement;
  /** The rarer actions, for a menu: every model, another file, a Block alone, earlier saves, the autosave. */
  readonly more: HTMLElement;
  /** The saves of the model's file, for a place of their own; `showSaves` when it is opened. */
  readonly saves: HTMLElement;
  /** Forms, questions, results and errors, for a place where they move nothing else. */
  readonly outcome: HTMLElement;

  constructor(private readonly options: ActionBarOptions) {
    this.diffOptions = options.onShowInGraph ? { onShow: options.onShowInGraph } : {};
    this.saveButton = button(__('Save'), () => void this.save(), {
      class: 'hl-button hl-primary hl-icon hl-icon-save',
      title: __('Save every graph and all parameters of this model to one file')
    });
    this.saveAllButton = button(__('Save every model'), () => void this.saveEvery(), {
      title: __('Save each model of this kernel to its own file')
    });
    this.reloadAllButton = button(__('Reload all'), () => void this.reloadEvery(), {
      title: __('Load each model of this kernel from its own file; Undo reverts it')
    });
    this.reloadButton = button(__('Reload'), () => void this.reload(), {
      class: 'hl-button hl-icon hl-icon-reload',
      title: __('Load graphs and parameters from the file into this model; Undo reverts it')
    });
    this.compareButton = button(__('Compare…'), () => void this.compare(), {
      class: 'hl-button hl-icon hl-icon-compare',
      title: __('Show what differs between the file and this model; nothing is changed')
    });
    this.undoButton = button(__('Undo'), () => void this.undo(), { class: 'hl-button hl-icon hl-icon-undo' });
    this.shareButton = button(__('Share as a page'), () => void this.share(), { title: SHARE });
    this.file = new FilePart(name => {
      if (this.model && this.scope) {
        this.scope.files.set(this.model.id, name);
        this.history.show(this.requester, this.model, this.fileOf(this.model));
      }
    });
    this.opening = new OpenPart(() => this.scope?.of(EVERY) ?? null, {
      onShown: () => this.options.onOutcome?.(),
      onOpened: (requester, model) => requester === this.requester && this.options.onChanged(model)
    });
    this.history = new HistoryPart({
      onCompare: (file, other) => void this.compare(file, '', other),
      onReload: file => void this.reload(file),
      onRestore: file => void this.restore(file)
    });
    this.autosave = new AutosavePart((requester, model) => this.changed(requester, model));
    this.results = h('div', {});
    this.blockButtons = h('div', { class: 'hl-buttons hl-block-buttons' });
    this.buttons = h(
      'div',
      { class: 'hl-buttons', role: 'group', 'aria-label': __('Save and reload') },
      this.saveButton,
      this.reloadButton,
      this.compareButton,
      this.undoButton
    );
    this.more = h(
      'div',
      { class: 'hl-actions' },
      h(
        'div',
        { class: 'hl-buttons' },
        this.saveAllButton,
        this.reloadAllButton,
        options.withOpen && this.opening.button,
        this.shareButton
      ),
      this.file.element,
      this.blockButtons,
      options.onSaves &&
        h(
          'div',
          { class: 'hl-buttons' },
          button(__('Earlier saves'), () => options.onSaves?.(), {
            title: __('Compare earlier saves of the file, reload or restore one')
          })
        ),
      this.autosave.element
    );
    this.saves = this.history.element;
    this.outcome = h('div', { class: 'hl-actions' }, this.opening.element, this.results, this.autosave.alert);
    this.enable();
  }

  /** Whom to ask; null with a reason where nobody can be asked. Each has an outcome of its own. */
  connect(requester: Requester | null, reason = ''): void {
    const isOther = requester !== this.requester;
    this.requester = requester;
    this.reason = reason;
    this.scope = requester ? this.scopeOf(requester) : null;
    this.opening.connect(requester, reason);
    if (isOther) {
      this.model = null;
      this.block = '';
      this.showOutcome();
    }
    this.enable();
  }

  /** Where the kernel's files go. */
  setPlace(place: FolderReply | null): void {
    this.file.setPlace(place);
  }

  /** The model the buttons act on. */
  setModel(model: Model | null): void {
    const isOther = model?.id !== this.model?.id;
    this.model = model;
    if (isOther) {
      this.block = '';
      this.showOutcome();
    }
    this.file.show(model ? this.fileOf(model) : '', model?.file ?? '', isOther);
    this.enable();
  }

  /** All models, and how the kernel saves them. */
  setModels(models: readonly Model[], saving: Readonly<Record<string, Saving>> = {}): void {
    this.models = models;
    this.saving = saving;
    this.scope?.keep(new Set(models.map(model => model.id)));
    this.enable();
  }

  /** The Block that is selected, which can be saved and reloaded alone; '' is the model. */
  setBlock(path: string): void {
    if (path !== this.block) {
      this.block = path;
      this.enable();
    }
  }

  /** The code that gives the Block at a path of a model in the notebook. */
  private nameOf(model: Model, path: string): string {
    const isShown = model.id === this.model?.id;
    return path === ''
      ? model.name
      : (isShown && this.options.codeOf?.(path)) || accessPath(model.name, path);
  }

  /** Save the model, or a Block of it, to its file. */
  async save(file = '', path = ''): Promise<void> {
    await this.run(__('Saving'), file, path, async (requester, target, results, onProgress) => {
      const { model } = target;
      const reply = await save(requester, target, results, onProgress);
      if (!reply) {
        return [h('p', {}, __('%1 was not saved.', target.name))];
      }
      const undo = (token: string): void => void this.undoAll(requester, model.id, [{ model, token }]);
      return [saved(target, reply, inner => this.nameOf(model, inner), undo)];
    });
  }

  /** Save each model to its own file; what needs an answer is asked at the end. */
  async saveEvery(): Promise<void> {
    const targets = this.models.map(model => ({
      model,
      path: '',
      name: model.name,
      file: this.fileOf(model)
    }));
    await this.runEvery(__('Saving every model'), async (requester, results, onProgress) => {
      const { lines, undoable } = await saveEvery(requester, targets, this.saving, results, onProgress);
      return [
        ...lines,
        undoable.length > 0 && this.undoAllButton(requester, __('Undo these saves'), undoable)
      ];
    });
  }

  /** Load the model's file, or the one that is given, into it. */
  async reload(file = '', path = ''): Promise<void> {
    await this.run(__('Loading'), file, path, (requester, target, results, onProgress) =>
      this.reloadOne(requester, target, results, onProgress, [])
    );
  }

  /** Load each model's own file into it. */
  async reloadEvery(): Promise<void> {
    const targets = this.models
      .filter(model => !this.saving[model.id]?.left_out || this.scope?.files.has(model.id))
      .map(model => ({ model, path: '', name: model.name, file: this.fileOf(model) }));
    await this.runEvery(__('Reloading all'), async (requester, results, onProgress) => {
      const lines: Child[] = [];
      const undoable: Undoable[] = [];
      for (const target of targets) {
        try {
          lines.push(h('p', {}, h('b', {}, target.model.name)));
          lines.push(...(await this.reloadOne(requester, target, results, onProgress, undoable)));
        } catch (caught) {
          const { message, next } = asRequestError(caught);
          lines.push(
            h('p', { class: 'hl-alert', role: 'alert' }, [message, next].filter(text => text).join(' '))
          );
        }
      }
      return [
        ...lines,
        undoable.length > 1 && this.undoAllButton(requester, __('Undo these reloads'), undoable)
      ];
    });
  }

  private async reloadOne(
    requester: Requester,
    target: SaveTarget,
    results: ActionResults,
    onProgress: (progress: Progress) => void,
    undoable: Undoable[]
  ): Promise<Child[]> {
    const { model, name } = target;
    const options: DiffOptions = { ...this.diffOptions };
    const reply = await reload(requester, target, results, options, onProgress);
    if (!reply) {
      return [h('p', {}, __('%1 was not changed.', name))];
    }
    if (reply.undo) {
      undoable.push({ model, token: reply.undo });
    }
    const undo = (): void => void this.undoAll(requester, model.id, [{ model, token: reply.undo }]);
    return [reloaded(target, reply, options, undo)];
  }

  /** Show what differs between a file and the model, the selected Block, or another file. */
  async compare(file = '', path = '', other: string | null = null): Promise<void> {
    await this.run(__('Comparing'), file, path, (requester, target, _, onProgress) => {
      const { sideBySide } = this.options;
      const isInFront = (): boolean => requester === this.requester && target.model.id === this.model?.id;
      const host = sideBySide && {
        opens: sideBySide.opens,
        show: (shown: SideBySide) => isInFront() && sideBySide.show(shown)
      };
      return compare(requester, target, this.diffOptions, onProgress, other, host);
    });
  }

  /** Write the page of the model. */
  async share(): Promise<void> {
    await this.run(__('Sharing'), '', '', (requester, { model }, _, onProgress) =>
      share(requester, model, onProgress)
    );
  }

  /** Make an earlier save the model's file again. */
  private async restore(file: string): Promise<void> {
    await this.run(__('Restoring'), file, '', async (requester, { model }) => {
      const reply = await requester.request('restore', { model: model.id, file });
      const undo = (): void => void this.undoAll(requester, model.id, [{ model, token: reply.undo }]);
      return [
        h(
          'div',
          { class: 'hl-result' },
          h('p', {}, `${reply.summary}.`),
          h('p', { class: 'hl-path' }, h('code', {}, reply.path), __(' on %1', reply.host)),
          reply.undo !== '' && button(__('Undo'), undo)
        )
      ];
    });
  }

  /** Undo the model's last save or reload. */
  async undo(): Promise<void> {
    const { model, requester } = this;
    if (!model || !requester || model.undo === '') {
      const reason = requester ? __('There is no save or reload to undo.') : this.reason;
      this.tell(new RequestError(requester ? 'nothing-to-undo' : 'closed', reason));
      return;
    }
    await this.undoAll(requester, model.id, [{ model, token: model.undo }]);
  }

  /** Undo saves or reloads; what comes of it is shown where their own outcome was. */
  private async undoAll(requester: Requester, place: string, undoable: readonly Undoable[]): Promise<void> {
    await this.act(requester, place, __('Undoing'), async () => {
      const lines: Child[] = [];
      for (const { model, token } of undoable) {
        const reply = await requester.request('undo', { model: model.id, undo: token });
        lines.push(h('p', {}, reply.summary || __('%1 is as it was.', model.name)));
      }
      return lines;
    });
  }

  private undoAllButton(requester: Requester, text: string, undoable: readonly Undoable[]): HTMLElement {
    return h(
      'div',
      { class: 'hl-buttons' },
      button(text, () => void this.undoAll(requester, EVERY, undoable))
    );
  }

  /** What the part of a view needs that shows the saves over time. */
  readonly savesOptions: SavesOptions = {
    file: () => (this.model ? this.fileOf(this.model) : ''),
    onCompare: file => void this.compare(file),
    onReload: file => void this.reload(file)
  };

  /** Bring the saves of the model's file up to date. */
  showSaves(): Promise<void> {
    return this.history.load();
  }

  /** Unfold the form of "Open without code". */
  showOpenForm(): Promise<void> {
    return this.opening.show();
  }

  /** Do something with the model in front. */
  private async run(
    doing: string,
    file: string,
    path: string,
    step: (
      requester: Requester,
      target: SaveTarget,
      results: ActionResults,
      onProgress: (progress: Progress) => void
    ) => Promise<Child[]>
  ): Promise<void> {
    const { requester, model } = this;
    if (!requester || !model) {
      this.tell(
        new RequestError('closed', requester ? __('There is no model in this kernel.') : this.reason)
      );
      return;
    }
    const name = this.nameOf(model, path);
    const target = { model, path, name, file: file || (path ? '' : this.fileOf(model)) };
    await this.act(requester, model.id, `${doing} ${name} …`, (results, onProgress) =>
      step(requester, target, results, onProgress)
    );
  }

  /** Do something with all models of the kernel in front. */
  private async runEvery(
    doing: string,
    step: (
      requester: Requester,
      results: ActionResults,
      onProgress: (progress: Progress) => void
    ) => Promise<Child[]>
  ): Promise<void> {
    const { requester } = this;
    if (!requester || this.models.length === 0) {
      this.tell(
        new RequestError('closed', requester ? __('There is no model in this kernel.') : this.reason)
      );
      return;
    }
    await this.act(requester, EVERY, `${doing} …`, (results, onProgress) =>
      step(requester, results, onProgress)
    );
  }

  /** One action of a kernel, whichever is in front when it ends. */
  private async act(
    requester: Requester,
    place: string,
    doing: string,
    step: (results: ActionResults, onProgress: (progress: Progress) => void) => Promise<Child[]>
  ): Promise<void> {
    const results = this.scopeOf(requester).of(place);
    if (results.busy) {
      return;
    }
    const model = this.models.find(each => each.id === place) ?? null;
    if (requester === this.requester) {
      this.clearOthers(place);
    }
    results.begin(doing);
    try {
      results.finish(await step(results, progress => results.showProgress(progress)));
    } catch (caught) {
      results.finish([]);
      results.fail(asRequestError(caught));
    }
    this.changed(requester, model);
  }

  /** What is shown beside the outcome of a new action, and is done, goes: the newest is what counts. */
  private clearOthers(place: string): void {
    for (const other of [EVERY, this.model?.id ?? EVERY]) {
      if (other !== place) {
        this.scope?.of(other).clear();
      }
    }
  }

  /** A model of this kernel changed, or all may have: of another kernel than the one in front nothing is shown. */
  private changed(requester: Requester, model: Model | null): void {
    if (requester === this.requester) {
      this.options.onChanged(model?.id === this.model?.id ? model : null);
      void this.history.load();
    }
  }

  /** Say that nothing can be done. */
  private tell(error: RequestError): void {
    const results = this.scope?.of(this.model?.id ?? EVERY);
    if (results) {
      results.fail(error);
    } else {
      replace(this.results, h('p', { class: 'hl-alert', role: 'alert' }, error.message));
      this.options.onOutcome?.();
    }
  }

  private scopeOf(requester: Requester): ActionScope {
    let scope = this.scopes.get(requester);
    if (!scope) {
      const own = new ActionScope(
        () => this.enable(),
        model => this.shown(own, model)
      );
      scope = own;
      this.scopes.set(requester, own);
      void requester.closed?.then(() => {
        own.discard();
        this.scopes.delete(requester);
      });
    }
    return scope;
  }

  /** A model's outcome has something to be seen: it is shown where this is the model in front. */
  private shown(scope: ActionScope, model: string): void {
    if (scope === this.scope && (model === EVERY || model === this.model?.id)) {
      this.showOutcome();
      this.options.onOutcome?.();
    }
  }

  private showOutcome(): void {
    const { scope, model } = this;
    const every = scope?.of(EVERY);
    const places = [
      ...(every && (!every.isEmpty || !model) ? [every] : []),
      ...(scope && model ? [scope.of(model.id)] : [])
    ];
    replace(this.results, ...places.map(place => place.element));
    if (places.some(place => place.asks)) {
      this.options.onOutcome?.(); // it was asked before another notebook came in front
    }
  }

  private fileOf(model: Model): string {
    return this.scope?.files.get(model.id) || model.file;
  }

  private enable(): void {
    const { model, block, scope } = this;
    const can = this.requester !== null;
    const onModel = can && model !== null && !scope?.isBusy(model.id);
    const onEvery = can && !scope?.isBusy(EVERY);
    const wanted = this.models.filter(each => !this.saving[each.id]?.left_out).length;
    this.saveButton.textContent = model ? __('Save %1', model.name) : __('Save');
    this.reloadButton.textContent = model ? __('Reload %1', model.name) : __('Reload');
    this.saveAllButton.textContent = __('Save every model (%1)', wanted);
    for (const each of [this.saveAllButton, this.reloadAllButton]) {
      each.hidden = this.models.length < 2;
      each.disabled = !onEvery;
    }
    this.saveButton.disabled = !onModel;
    this.reloadButton.disabled = !onModel;
    this.compareButton.disabled = !onModel;
    this.undoButton.disabled = !onModel || !model.undo;
    this.undoButton.title = model?.undoes ? __('Undo %1', model.undoes) : __('Nothing to undo');
    this.opening.button.disabled = !onEvery;
    this.shareButton.disabled = !onModel;
    this.file.enable(this.requester, can && model !== null);
    this.history.show(this.requester, model, model ? this.fileOf(model) : '');
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
    const plain = (text: string): string =>
      text.replace(/[^\p{L}\p{N}_.-]+/gu, '_').replace(/^[_.]+|[_.]+$/g, '');
    const file = `${plain(this.model.name)}.${plain(path)}.hlab`;
    replace(
      this.blockButtons,
      h('span', { class: 'hl-summary' }, __('Block %1:', this.nameOf(this.model, path))),
      button(__('Save Block'), () => void this.save(file, path), {
        title: __('Save this Block alone, as %1', file)
      }),
      button(__('Reload Block'), () => void this.reload(file, path), {
        title: __('Load %1 into this Block; Undo reverts it', file)
      }),
      button(__('Compare Block…'), () => void this.compare(file, path), {
        title: __('Show what differs between %1 and this Block', file)
      })
    );
  }

  private readonly diffOptions: DiffOptions;
  private readonly scopes = new WeakMap<Requester, ActionScope>();
  private readonly file: FilePart;
  private readonly opening: OpenPart;
  private readonly history: HistoryPart;
  private readonly autosave: AutosavePart;
  private readonly saveButton: HTMLButtonElement;
  private readonly saveAllButton: HTMLButtonElement;
  private readonly reloadAllButton: HTMLButtonElement;
  private readonly reloadButton: HTMLButtonElement;
  private readonly compareButton: HTMLButtonElement;
  private readonly shareButton: HTMLButtonElement;
  private readonly undoButton: HTMLButtonElement;
  private readonly results: HTMLElement;
  private readonly blockButtons: HTMLElement;
  private requester: Requester | null = null;
  private scope: ActionScope | null = null;
  private reason = __('There is no running kernel.');
  private model: Model | null = null;
  private models: readonly Model[] = [];
  private saving: Readonly<Record<string, Saving>> = {};
  private block = '';
  private blockKey = '';
}
