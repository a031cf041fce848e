// The side panel's content, apart from JupyterLab's shell: one row of tools, one line about notebook and model, and
// below them the view of one model, which has all the rest of the height.

import type { Layout } from '../graph/worker';
import type { Requester } from '../protocol/channel';
import { asRequestError } from '../protocol/channel';
import type {
  CurvesReply,
  WorkPush,
  Diagnostic,
  FolderReply,
  HelloReply,
  Location,
  Model,
  ModelsReply,
  TreeReply,
  WorkersReply
} from '../protocol/messages';
import { ActionBar } from './action-bar';
import { withChanges } from './block-index';
import { CurvesView } from './curves';
import { KeptRuns } from './kept-runs';
import { button, h, replace } from './dom';
import type { ListedFinding } from './findings-list';
import { listed } from './findings-list';
import type { Looked } from './model-view';
import { ModelView } from './model-view';
import type { MakePanes, PaneMemory } from './panes';
import { Popover } from './popover';
import { toolbar } from './roving';
import { WorkersView } from './workers';
import { __, _n } from '../text';

/** What the panel knows about the kernel of the notebook in front. */
export interface KernelState {
  /** A new notebook or kernel has a new key. */
  key: string;
  /** The name of the notebook. */
  notebook?: string;
  /** One sentence: `Python 3.12, hybrid_lab 0.1.0`, or what to do. */
  text: string;
  /** How it looks. */
  kind: 'ready' | 'busy' | 'off' | 'problem';
  requester: Requester | null;
  hello: HelloReply | null;
  models: ModelsReply | null;
  /** The training runs, or the one that changed last. */
  curves: CurvesReply | null;
  /** Work of the running cell that takes long. */
  work?: WorkPush | null;
  /** The workers that train for the notebook. */
  workers?: WorkersReply | null;
  /** Where the kernel's files go. */
  place?: FolderReply | null;
  /** A sentence that is said once. */
  note?: string;
}

/** The state before a notebook is in front. */
export const NO_NOTEBOOK: KernelState = {
  key: '',
  text: __('Open a Python notebook.'),
  kind: 'off',
  requester: null,
  hello: null,
  models: null,
  curves: null
};

export interface PanelViewOptions {
  layout: Layout;
  /** Makes the panes of tree and graph. */
  panes: MakePanes;
  /** Where the sizes of panes and drawer are remembered. */
  sizes?: PaneMemory;
  onLocation: (location: Location) => void;
  /** The code of what is selected in the graph, null where it has none. */
  onCode?: (location: Location | null) => void;
  /** Try to reach the kernel again. */
  onConnect: () => void;
  /** Whether this is a tab as wide as the main area. */
  isTab?: boolean;
  /** Show the same in a tab of its own; absent where there are no tabs, and in the tab. */
  onTab?: () => void;
  /** What was looked at last in this notebook. */
  memory?: { read: () => Looked | undefined; write: (looked: Looked) => void };
}

/** Milliseconds from the user's last action to its being remembered. */
const REMEMBER = 1000;

export class PanelView {
  readonly element: HTMLElement;
  readonly actions: ActionBar;
  /** One line for what is to be known at once; what is in it takes the place of the model's headline. */
  readonly banner: HTMLElement;

  constructor(private readonly options: PanelViewOptions) {
    this.status = h('div', { class: 'hl-status', role: 'status' });
    this.banner = h('div', { class: 'hl-banner' });
    this.picker = h('select', {
      class: 'hl-input hl-picker',
      'aria-label': __('Model'),
      onchange: () => {
        this.chosenName = null;
        this.chosenId = this.pickedId = this.picker.value;
        this.startId = null;
        this.view.isPicked = true;
        this.showChosen();
        this.remember();
      }
    });
    this.actions = new ActionBar({
      withOpen: true,
      codeOf: path => this.view.nameOf(path),
      onChanged: model => {
        if (model) {
          this.chosenId = model.id;
          this.chosenName = null;
        }
        void this.refresh();
      },
      onShowInGraph: (block, marks) => this.view.showDifference(block, marks),
      sideBySide: {
        opens: options.isTab ?? false,
        show: shown => void this.view.showSideBySide(shown)
      },
      onSaves: () => {
        this.menu.close();
        this.view.drawer.open('saves');
      },
      onOutcome: () => {
        this.menu.close();
        this.view.drawer.open('results');
      }
    });
    this.rules = h('input', {
      type: 'checkbox',
      onchange: () => this.onTarget(this.rules.checked ? 'mxnet' : '')
    });
    this.rulesLabel = h(
      'label',
      { class: 'hl-rules' },
      this.rules,
      __(' Also mark what MXNet itself cannot do')
    );
    this.kept = new KeptRuns(() => {
      this.kept.element.open = this.curves.element.hidden;
      this.offerTraining();
    });
    this.curves = new CurvesView(() => void this.kept.refresh());
    const trainings = h(
      'div',
      { class: 'hl-trainings' },
      this.workers.element,
      this.curves.element,
      this.kept.element
    );
    const results = h(
      'div',
      {
        class: 'hl-results-tab',
        'data-empty': __('The results of saving, comparing and reloading appear here.')
      },
      this.actions.outcome
    );
    this.view = new ModelView({
      layout: options.layout,
      panes: options.panes,
      ...(options.sizes && { sizes: options.sizes }),
      isTab: options.isTab ?? false,
      tabs: [
        { id: 'results', name: __('Results'), content: results },
        {
          id: 'saves',
          name: __('Saves'),
          content: this.actions.saves,
          onShow: () => void this.actions.showSaves()
        },
        { id: 'training', name: __('Training'), content: trainings }
      ],
      onLocation: options.onLocation,
      ...(options.onCode && { onCode: options.onCode }),
      saves: this.actions.savesOptions,
      onCompare: file => void this.actions.compare(file),
      onModel: (model, path) => this.reveal(model, path, ''),
      onSelect: path => this.actions.setBlock(path)
    });
    this.banner.append(this.view.banner.element);
    toolbar(this.banner, __('Answers'));
    results.append(this.view.notices.list);
    this.view.drawer.offer('training', false);
    this.menu = new Popover('⋯', __('More actions'), this.actions.more, this.rulesLabel);
    const tools = h(
      'div',
      { class: 'hl-toolbar' },
      this.picker,
      this.actions.buttons,
      options.onTab &&
        button(__('Open as a tab'), () => this.openTab(), {
          class: 'hl-button hl-icon hl-icon-tab',
          title: __('Show tree, graph and details side by side in the main area')
        }),
      this.menu.button
    );
    toolbar(tools, 'Hybrid Lab');
    this.element = h(
      'div',
      { class: options.isTab ? 'hl-root hl-side hl-main' : 'hl-root hl-side' },
      tools,
      this.menu.panel,
      h('div', { class: 'hl-line' }, this.status, this.view.headline, this.banner),
      this.view.element
    );
    for (const action of ['click', 'keyup', 'wheel', 'pointerup']) {
      this.view.element.addEventListener(action, () => this.remember(), { passive: true });
    }
    this.update(NO_NOTEBOOK);
  }

  get models(): readonly Model[] {
    return this.state?.models?.models ?? [];
  }

  /** Show another state of the kernel. Cheap where nothing changed. */
  update(state: KernelState): void {
    const isNew = state.key !== this.state?.key;
    this.state = state;
    if (isNew) {
      this.shownRevision = '';
      this.modelFindings = [];
      this.view.notices.clear();
      this.view.drawer.close();
      this.curves.clear();
      this.knownModels = null;
      this.restore();
    }
    if (state.curves && state.curves !== this.lastCurves) {
      this.lastCurves = state.curves;
      this.curves.update(state.curves.runs);
    }
    this.workers.show(state.workers ?? null);
    this.view.works.show(state.kind === 'busy' ? (state.work ?? null) : null);
    this.offerTraining();
    this.kept.connect(state.requester);
    this.view.drawer.rename('training', training(state.curves) !== '' ? __('Training …') : __('Training'));
    this.showStatus(state);
    this.actions.connect(state.requester, state.text);
    this.actions.setPlace(state.place ?? null);
    this.view.connect(state.requester);
    this.addNotes(state.models);
    if (state.note && (isNew || state.note !== this.said)) {
      this.view.notices.say(state.note);
    }
    this.said = state.note ?? '';
    this.showModels();
    if (state.models !== this.answered) {
      this.answered = state.models;
      void this.view.banner.refresh();
      this.view.refreshSaved();
    }
  }

  /** Show a Block of a model: its id, or else the name before the first dot, tells which. */
  reveal(model: string, path: string, name: string): void {
    const found =
      this.models.find(each => each.id === model) ??
      this.models.find(each => each.name === name.split('.')[0]);
    if (found) {
      this.wanted = { model: found.id, path };
      this.chosenId = this.pickedId = found.id;
      this.chosenName = null;
      this.view.isPicked = true;
      this.showModels();
      this.revealWanted();
    }
  }

  private revealWanted(): void {
    const { wanted, loaded } = this;
    if (wanted && loaded?.tree.model.id === wanted.model) {
      this.wanted = null;
      this.view.reveal(wanted.path);
    }
  }

  /** Mark what a piece of code computes in the graph. */
  markCode(isThere: (location: Location) => boolean): void {
    this.view.markCode(isThere);
  }

  private offerTraining(): void {
    const parts = [this.workers.element, this.curves.element, this.kept.element];
    this.view.drawer.offer('training', !parts.every(part => part.hidden));
  }

  /** Called when the user asks for other rules. */
  onTarget: (target: '' | 'mxnet') => void = () => undefined;

  /** The rules that are asked for. */
  setTarget(target: '' | 'mxnet'): void {
    this.rules.checked = target === 'mxnet';
  }

  /** Findings of the notebook's cells, as the linter sees them while typing. */
  setCellFindings(findings: readonly ListedFinding[]): void {
    this.cellFindings = findings;
    this.showFindings();
  }

  private showStatus(state: KernelState): void {
    const { hello, kind, text, notebook = '' } = state;
    replace(
      this.status,
      h('span', { class: `hl-light hl-light-${kind}`, 'aria-hidden': 'true' }),
      notebook !== '' && h('span', { class: 'hl-notebook' }, notebook),
      h(
        'span',
        { class: kind === 'busy' ? 'hl-status-text' : 'hl-visually-hidden' },
        kind === 'busy' ? training(state.curves) || (text.split(' — ')[0] ?? '') : STATUS[kind]
      )
    );
    this.status.title = [notebook, text, hello && `${hello.host}: ${hello.folder}`]
      .filter(part => part)
      .join('\n');
  }

  private addNotes(push: ModelsReply | null): void {
    if (push && push !== this.lastPush) {
      this.lastPush = push;
      [...push.notes, ...this.announced(push)].forEach(note => this.view.notices.say(note));
    }
  }

  /** A sentence for each model that was not there before. */
  private announced({ models }: ModelsReply): string[] {
    const known = this.knownModels;
    this.knownModels = new Set(models.map(model => model.id));
    return models
      .filter(model => known !== null && !known.has(model.id))
      .map(model =>
        __('New model: %1, %2 of %3.', model.name, model.class, _n('%1 Block', '%1 Blocks', model.blocks))
      );
  }

  /** Go back to what was looked at in this notebook, unless the user has chosen something already. */
  recall(): void {
    if (!this.view.looked) {
      this.restore();
    }
  }

  /** Go back to what was looked at in the notebook in front. */
  private restore(): void {
    const looked = this.options.memory?.read();
    this.view.isPicked = false;
    if (looked) {
      this.chosenName = looked.model;
      this.chosenId = null;
      this.view.recall(looked);
    }
  }

  private remember(): void {
    clearTimeout(this.remembering);
    this.remembering = setTimeout(() => this.rememberNow(), REMEMBER);
  }

  private rememberNow(): void {
    const { looked } = this.view;
    if (looked && this.models.some(model => model.name === looked.model)) {
      this.options.memory?.write(looked);
    }
  }

  /** The tab starts with what is looked at here. */
  private openTab(): void {
    this.rememberNow();
    this.options.onTab?.();
  }

  private showModels(): void {
    const { models } = this;
    const found = this.chosen();
    // A loss that the panel started with, and that nobody has looked at, gives way to another model.
    const givesWay = found?.id === this.startId && !this.view.looked && this.isLoss(found);
    const chosen = givesWay ? this.start() : (found ?? this.start());
    if (chosen !== found) {
      this.startId = chosen?.id ?? null;
    }
    const { looked } = this.view;
    if (chosen && chosen.id !== this.chosenId && looked?.model === chosen.name) {
      this.view.recall(looked); // the variable has another object: the same Block of it
    }
    this.chosenId = chosen?.id ?? null;
    this.chosenName = chosen?.name ?? this.chosenName;
    this.picker.hidden = models.length === 0;
    const options = models.map(model => `${model.id}\n${optionText(model)}`);
    if (options.join() !== this.pickerKey) {
      this.pickerKey = options.join();
      replace(this.picker, ...models.map(model => h('option', { value: model.id }, optionText(model))));
    }
    if (chosen) {
      this.picker.value = chosen.id;
    }
    this.showChosen();
  }

  /** The chosen model: it is the one of the variable, whichever object that holds now. */
  private chosen(): Model | undefined {
    const same = this.models.find(model => model.id === this.chosenId);
    const isOwn = same && (same.held !== IN_A_VIEW || same.id === this.pickedId);
    if (isOwn && (this.chosenName === null || same.name === this.chosenName)) {
      return same;
    }
    const named = this.models.filter(model => model.name === this.chosenName);
    return named.find(model => model.held !== IN_A_VIEW) ?? same ?? named[0];
  }

  /** The model to start with: one that runs as a graph, else one that is no loss. */
  private start(): Model | undefined {
    const others = this.models.filter(model => !this.isLoss(model));
    return others.find(model => model.hybridized && model.graphs > 0) ?? others[0] ?? this.models[0];
  }

  private isLoss(model: Model): boolean {
    return this.state?.models?.saving[model.id]?.left_out === 'a loss function';
  }

  private showChosen(): void {
    const chosen = this.models.find(model => model.id === this.chosenId) ?? null;
    this.actions.setModels(this.models, this.state?.models?.saving ?? {});
    this.actions.setModel(chosen);
    this.view.headline.hidden = chosen === null;
    if (chosen === null) {
      this.view.banner.clear();
    }
    this.view.banner.showOthers(this.models.filter(model => model !== chosen));
    this.showHint(chosen !== null);
    if (chosen) {
      this.chosenName = chosen.name;
      const revision = `${chosen.id}|${chosen.revision}`;
      if (revision !== this.shownRevision) {
        void this.loadModel(chosen, revision);
      }
    } else {
      this.modelFindings = [];
    }
    this.showFindings();
  }

  /** What to do while there is no model. */
  private showHint(hasModel: boolean): void {
    const { state } = this;
    const key = hasModel ? '' : `${state?.key}|${state?.kind}|${state?.text}|${state?.hello !== null}`;
    if (key === this.hintKey) {
      return;
    }
    this.hintKey = key;
    if (hasModel || !state) {
      this.view.showNothing();
    } else if (state.hello && state.kind !== 'problem') {
      this.view.showNothing(
        h(
          'div',
          { class: 'hl-hint' },
          h('p', {}, __('No model in this kernel yet. Bind a Block to a variable, for example:')),
          h('pre', {}, h('code', {}, 'net = nn.HybridSequential()')),
          h('p', {}, __('Or load an archive:')),
          button(__('Open without code'), () => void this.actions.showOpenForm())
        )
      );
    } else {
      this.view.showNothing(
        h(
          'div',
          { class: 'hl-hint' },
          h('p', { class: state.kind === 'problem' ? 'hl-alert' : undefined, role: 'status' }, state.text),
          state.kind === 'off' &&
            state.key !== '' &&
            button(__('Connect'), () => this.options.onConnect(), { title: __('Ask the kernel now') })
        )
      );
    }
  }

  private async loadModel(model: Model, revision: string): Promise<void> {
    const requester = this.state?.requester;
    if (!requester) {
      return;
    }
    this.shownRevision = revision;
    try {
      const tree = await this.treeOf(model, requester);
      if (revision !== this.shownRevision) {
        return;
      }
      this.loaded = { requester, tree };
      this.view.complain('');
      this.view.showTree(tree);
      this.revealWanted();
      const { findings } = await requester.request('findings', { model: model.id });
      if (revision === this.shownRevision) {
        this.modelFindings = findings;
        this.showFindings();
      }
    } catch (error) {
      if (revision === this.shownRevision) {
        this.shownRevision = '';
        const { code, message } = asRequestError(error);
        if (code !== 'closed' && code !== 'unknown-model') {
          this.view.complain(message);
        }
      }
    }
  }

  /** The tree of a model; of the one that is shown the kernel is asked only for what changed. */
  private async treeOf(model: Model, requester: Requester): Promise<TreeReply> {
    const { loaded } = this;
    if (loaded?.requester === requester && loaded.tree.model.id === model.id) {
      const since = loaded.tree.model.revision;
      const changes = await requester.request('changes', { model: model.id, since });
      const root = withChanges(loaded.tree.root, changes);
      if (root) {
        return { model: changes.model, root };
      }
    }
    return requester.request('tree', { model: model.id });
  }

  /** Ask for the models now, instead of waiting for the next push. */
  async refresh(): Promise<void> {
    const requester = this.state?.requester;
    try {
      const models = await requester?.request('models', {});
      if (models && this.state && this.state.requester === requester) {
        this.update({ ...this.state, models });
      }
    } catch {
      // A closed connection shows in the status line.
    }
  }

  private showFindings(): void {
    const others = new Set(this.cellFindings);
    const own = this.modelFindings.flatMap(finding => {
      // The linter's report of the same line is newer, and knows its cell.
      const at = (places: string[]): ListedFinding[] =>
        [...others].filter(item => spots(item.diagnostic).some(spot => places.includes(spot)));
      let same = at(spots(finding));
      if (same.length === 0) {
        // What is in a function of another file, the linter reports at the call of the function.
        same = at(finding.calls.flatMap(({ location }) => spots({ code: finding.code, location })));
      }
      const item = same.find(other => other.diagnostic.col === finding.col) ?? same[0];
      if (!item) {
        return listed([finding], this.options.onLocation);
      }
      others.delete(item);
      return [{ ...item, diagnostic: { ...item.diagnostic, block: finding.block } }];
    });
    this.view.showFindings(own, [...others]);
    const loose = this.chosenId === null ? others.size : 0;
    if (loose > 0) {
      this.view.drawer.rename('findings', __('Findings (%1)', loose));
    }
  }

  private readonly status: HTMLElement;
  private readonly menu: Popover;
  private readonly picker: HTMLSelectElement;
  private readonly view: ModelView;
  private readonly curves: CurvesView;
  private readonly kept: KeptRuns;
  private readonly workers = new WorkersView();
  private readonly rules: HTMLInputElement;
  private readonly rulesLabel: HTMLElement;
  private state: KernelState | null = null;
  private lastCurves: CurvesReply | null = null;
  /** The push after which the banner was asked for last. */
  private answered: ModelsReply | null = null;
  /** A Block to show as soon as its model is shown. */
  private wanted: { model: string; path: string } | null = null;
  private lastPush: ModelsReply | null = null;
  private hintKey: string | null = null;
  private chosenId: string | null = null;
  private chosenName: string | null = null;
  /** Id of the model that the panel chose by itself. */
  private startId: string | null = null;
  /** Id of the model that the user chose last. */
  private pickedId: string | null = null;
  private said = '';
  private pickerKey = '';
  private knownModels: Set<string> | null = null;
  private remembering: ReturnType<typeof setTimeout> | undefined;
  private shownRevision = '';
  /** The tree that is shown, and who sent it: another kernel may have a model of the same id. */
  private loaded: { requester: Requester; tree: TreeReply } | null = null;
  private cellFindings: readonly ListedFinding[] = [];
  private modelFindings: readonly Diagnostic[] = [];
}

/** Stands for the variable's name if no variable holds the model, only a view. */
const IN_A_VIEW = __('in a view');

/** A model's label in the list: its name, the container that holds it if no variable does, and its other names. */
function optionText(model: Model): string {
  const more = [model.held, model.also].filter(text => text).join(', ');
  return `${model.name}: ${model.class}${more ? ` (${more})` : ''}`;
}

/** How the run that goes on stands, as `steps 36 of 60, loss 0.028`; '' where none does. */
function training(curves: CurvesReply | null): string {
  const run = curves?.runs.find(each => each.state === 'running');
  if (!run) {
    return '';
  }
  const loop = run.loops[run.loops.length - 1];
  const of = loop && loop.total !== null ? __(' of %1', loop.total) : '';
  const [curve] = run.curves;
  return [
    loop ? `${loop.title || 'step'} ${loop.done}${of}` : 'training',
    curve && `${curve.name} ${curve.latest}`
  ]
    .filter(part => part)
    .join(', ');
}

/** What the line says of the kernel; the light says the same by its colour. */
const STATUS: Record<Exclude<KernelState['kind'], 'busy'>, string> = {
  ready: 'ready',
  off: __('not connected'),
  problem: 'problem'
};

/**
 * Where and what, by the cell's id and by its number: the linter's and the trace's report of a line share one of them.
 * The kernel does not know the cell in which hybrid_lab was imported; there the place within the cell has to do.
 */
function spots({ code, location }: Pick<Diagnostic, 'code' | 'location'>): string[] {
  if (!location) {
    return [];
  }
  const { col } = location;
  const place = `${code}|${location.line}`;
  const { cell, cell_id: id, file } = location;
  const isUnknownCell = id === '' && cell === null && /[\\/]ipykernel_\d+[\\/]/.test(file);
  return [
    ...(id === '' ? [] : [`${place}|${id}`]),
    ...(cell === null ? [] : [`${place}|#${cell}`]),
    ...(file === '' || isUnknownCell ? [`${place}|${col}`] : [])
  ];
}
