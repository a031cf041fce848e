// What the extension adds to JupyterLab and to Notebook 7, which has fewer tokens and no tabs.

import type { ILabShell, ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette } from '@jupyterlab/apputils';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import type { IEditorExtensionRegistry } from '@jupyterlab/codemirror';
import { PageConfig } from '@jupyterlab/coreutils';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { IStateDB } from '@jupyterlab/statedb';
import { workerLayout } from '../graph/worker';
import { CellDiagnosticsService } from './cell-diagnostics';
import { COMMANDS, addCommands } from './commands';
import { registerErrorOutput } from './error-output';
import { FileDiagnosticsService } from './file-diagnostics';
import { graphvizText } from './graphviz-text';
import { labIcon } from './icon';
import { cellIdOf, jumpToCell } from './jump';
import { KernelLink, mentionsHybridLab } from './link';
import { SizeMemory, ViewMemory, browserStore } from './memory';
import { HybridPanel } from './panel';
import { serverLint } from './server-lint';
import { registerViewOutput } from './view-output';
import type { LintTarget } from '../lint/lint-client';
import { KERNEL_PATIENCE } from '../lint/lint-client';

/** The plugin's id, under which its settings are kept. */
export const PLUGIN_ID = 'hybrid-lab:plugin';

/** The panel, the marks in cells, the commands. Tokens that the application lacks are null. */
export function start(
  app: JupyterFrontEnd,
  tracker: INotebookTracker | null,
  editors: IEditorExtensionRegistry | null,
  palette: ICommandPalette | null,
  restorer: ILayoutRestorer | null,
  labShell: ILabShell | null,
  settings: ISettingRegistry | null,
  state: IStateDB | null
): void {
  if (!tracker) {
    return; // an application without notebooks
  }
  const links = new WeakMap<NotebookPanel, KernelLink>();
  const linkOf = (panel: NotebookPanel): KernelLink => {
    let link = links.get(panel);
    if (!link) {
      link = new KernelLink(panel.sessionContext, {
        mentions: () =>
          [...(panel.content.model?.cells ?? [])].some(
            cell => cell.type === 'code' && mentionsHybridLab(cell.sharedModel.getSource())
          ),
        path: () => panel.context.path
      });
      links.set(panel, link);
      panel.disposed.connect(() => link?.dispose());
    }
    return link;
  };

  const askServer = serverLint(app.serviceManager.serverSettings);
  const diagnostics = new CellDiagnosticsService(tracker, panel => {
    const link = linkOf(panel);
    const { channel } = link;
    return {
      kernel:
        channel && link.answersNow
          ? async (cells, target) =>
              (await channel.request('lint', { cells, only: [], target }, { timeout: KERNEL_PATIENCE })).cells
          : null,
      server: askServer
    };
  });
  const files = new FileDiagnosticsService(askServer);
  if (editors) {
    diagnostics.register(editors);
    files.register(editors);
  }

  const store = labShell ? state : browserStore(localStorage, PageConfig.getBaseUrl());
  const parts = {
    tracker,
    diagnostics,
    linkOf,
    layout: workerLayout(
      graphvizText(app.serviceManager.serverSettings, () => {
        const link = tracker.currentWidget && linkOf(tracker.currentWidget);
        return link?.answersNow ? link.channel : null;
      })
    ),
    memory: new ViewMemory(store)
  };
  const tabs = new WidgetTracker<MainAreaWidget<HybridPanel>>({ namespace: 'hybrid-lab-tab' });
  const addTab = (shell: ILabShell): void => {
    let tab = tabs.currentWidget;
    if (!tab || tab.isDisposed) {
      tab = new MainAreaWidget({
        content: new HybridPanel({ ...parts, sizes: new SizeMemory(store, 'tab'), isTab: true })
      });
      tab.id = 'hybrid-lab-main';
      tab.toolbar.hide(); // it is empty, and takes a line of the graph
      tab.title.label = 'Hybrid Lab';
      tab.title.icon = labIcon;
      tab.title.closable = true;
      tab.content.refreshSeconds = panel.refreshSeconds;
      shell.add(tab, 'main', { mode: 'split-right', type: 'Hybrid Lab' });
      void tabs.add(tab);
    }
    shell.activateById(tab.id);
  };
  // A page of Notebook 7 shows one document: there are no tabs.
  const openTab = labShell && ((): void => addTab(labShell));
  const panel = new HybridPanel({
    ...parts,
    sizes: new SizeMemory(store, 'panel'),
    isTab: false,
    onTab: openTab ?? undefined
  });
  app.shell.add(panel, 'left', { rank: 850, type: 'Hybrid Lab' });
  restorer?.add(panel, panel.id);
  void restorer?.restore(tabs, { command: COMMANDS.openTab, name: () => 'hybrid-lab' });

  const showViews = (notebook: NotebookPanel): void => {
    const link = linkOf(notebook);
    registerViewOutput({
      rendermime: notebook.content.rendermime,
      ask: async view => {
        const { channel } = link;
        return channel && link.answersNow ? (await channel.request('static', { view })).html : null;
      },
      revision: id => link.state.models?.models.find(model => model.id === id)?.revision,
      onChange: listener => {
        link.changed.connect(listener);
        return () => link.changed.disconnect(listener);
      }
    });
  };
  const showErrors = (notebook: NotebookPanel): void => {
    registerErrorOutput({
      rendermime: notebook.content.rendermime,
      onLocation: location => {
        const cellId = cellIdOf(notebook, location);
        if (cellId !== null) {
          void jumpToCell(notebook, { cellId, line: location.line, col: location.col });
        }
      },
      onBlock: (model, path, name) => {
        const shown = tabs.currentWidget?.content.isVisible ? tabs.currentWidget.content : panel;
        if (!shown.isVisible) {
          app.shell.activateById(panel.id);
        }
        void shown.upToDate.then(() => shown.view.reveal(model, path, name));
      }
    });
  };
  tracker.forEach(showViews);
  tracker.forEach(showErrors);
  tracker.widgetAdded.connect((_, notebook) => {
    showViews(notebook);
    showErrors(notebook);
    const link = linkOf(notebook);
    let connected = false;
    link.changed.connect(() => {
      const now = link.channel !== null;
      if (now !== connected) {
        connected = now;
        diagnostics.recheck(notebook);
      }
    });
  });

  addCommands(app, { panel, tracker, diagnostics, palette, openTab });

  if (settings) {
    const load = (registry: ISettingRegistry.ISettings): void => {
      const value = <T>(key: string, fallback: T): T =>
        (registry.get(key).composite as T | undefined) ?? fallback;
      const lint = {
        enabled: value('lint', true),
        delay: value('lintDelay', 400),
        target: value<LintTarget>('lintTarget', '')
      };
      diagnostics.configure(lint);
      files.configure(lint);
      panel.view.setTarget(lint.target);
      panel.refreshSeconds = value('refreshSeconds', 2);
    };
    settings.load(PLUGIN_ID).then(
      registry => {
        load(registry);
        panel.view.onTarget = target => void registry.set('lintTarget', target);
        registry.changed.connect(load);
      },
      (error: unknown) => console.warn('Hybrid Lab runs with default settings.', error)
    );
  }
}
