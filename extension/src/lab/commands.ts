// The palette's commands; the toolbar button is one of them (see schema/plugin.json).

import { EditorView } from '@codemirror/view';
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette } from '@jupyterlab/apputils';
import { Notification } from '@jupyterlab/apputils';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { CellDiagnosticsService } from './cell-diagnostics';
import { applyFixAt, goToNextFinding } from './editor-marks';
import { labIcon } from './icon';
import type { HybridPanel } from './panel';
import { __, _n } from '../text';

export const COMMANDS = {
  showPanel: 'hybrid-lab:show-panel',
  openTab: 'hybrid-lab:open-tab',
  saveAll: 'hybrid-lab:save-all',
  reloadAll: 'hybrid-lab:reload-all',
  undo: 'hybrid-lab:undo',
  open: 'hybrid-lab:open-without-code',
  lint: 'hybrid-lab:lint',
  applyFix: 'hybrid-lab:apply-fix',
  nextFinding: 'hybrid-lab:next-finding'
} as const;

/** Milliseconds that a kernel has for the list of its models when the panel opens; one that is busy answers later. */
const PATIENCE = 1500;

export interface CommandOptions {
  panel: HybridPanel;
  tracker: INotebookTracker;
  diagnostics: CellDiagnosticsService;
  palette: ICommandPalette | null;
  /** Show the panel as a tab of the main area; null where there are no tabs. */
  openTab: (() => void) | null;
}

export function addCommands(app: JupyterFrontEnd, options: CommandOptions): void {
  const { panel, tracker, diagnostics, palette, openTab } = options;
  const { actions } = panel.view;
  /** Results, questions and errors are shown in the panel, so it has to be seen. */
  const inPanel = (act: () => Promise<void>) => async (): Promise<void> => {
    if (!panel.isVisible) {
      app.shell.activateById(panel.id);
      await Promise.race([panel.upToDate, new Promise(resolve => setTimeout(resolve, PATIENCE))]);
    }
    await act();
  };
  const hasNotebook = (): boolean => tracker.currentWidget !== null;

  app.commands.addCommand(COMMANDS.showPanel, {
    label: __('Show the Hybrid Lab Panel'),
    icon: labIcon,
    execute: () => app.shell.activateById(panel.id)
  });
  if (openTab) {
    app.commands.addCommand(COMMANDS.openTab, {
      label: __('Open the Hybrid Lab Panel as a Tab'),
      caption: __('Tree, graph and details side by side, as wide as wanted'),
      icon: labIcon,
      execute: openTab
    });
  }
  app.commands.addCommand(COMMANDS.saveAll, {
    label: __('Save Every Model'),
    caption: __('Save all graphs and parameters of each model of this kernel to its own file'),
    icon: labIcon,
    isEnabled: hasNotebook,
    execute: inPanel(() => actions.saveEvery())
  });
  app.commands.addCommand(COMMANDS.reloadAll, {
    label: __('Reload All Models'),
    caption: __('Load the saved graphs and parameters into the models of this kernel'),
    isEnabled: hasNotebook,
    execute: inPanel(() => actions.reloadEvery())
  });
  app.commands.addCommand(COMMANDS.undo, {
    label: __('Undo the Last Save or Reload'),
    isEnabled: hasNotebook,
    execute: inPanel(() => actions.undo())
  });
  app.commands.addCommand(COMMANDS.open, {
    label: __('Open an Archive Without Its Code'),
    isEnabled: hasNotebook,
    execute: inPanel(() => actions.showOpenForm())
  });
  app.commands.addCommand(COMMANDS.lint, {
    label: __('Check This Notebook for Code That Cannot Be Hybridized'),
    isEnabled: hasNotebook,
    execute: async () => {
      const notebook = tracker.currentWidget;
      const count = notebook && (await diagnostics.check(notebook));
      if (count === null) {
        Notification.warning(__('Hybrid Lab: neither the kernel nor the server could check this notebook.'));
      } else if (count === 0) {
        Notification.success(__('Hybrid Lab: no findings.'), { autoClose: 3000 });
      } else {
        Notification.info(
          __('Hybrid Lab: %1, marked in the cells.', _n('%1 finding', '%1 findings', count)),
          {
            autoClose: 5000
          }
        );
      }
    }
  });
  app.commands.addCommand(COMMANDS.applyFix, {
    label: __('Apply the Fix at the Cursor'),
    isEnabled: () => editorOf(document.activeElement) !== null,
    execute: () => {
      const view = editorOf(document.activeElement);
      return view !== null && applyFixAt(view);
    }
  });
  app.commands.addCommand(COMMANDS.nextFinding, {
    label: __('Go to the Next Finding'),
    execute: () => {
      const view = editorOf(document.activeElement);
      const notebook = tracker.currentWidget;
      const inNotebook = notebook !== null && notebook === app.shell.currentWidget;
      return inNotebook ? diagnostics.next(notebook) : view !== null && goToNextFinding(view);
    }
  });
  if (palette) {
    for (const command of Object.values(COMMANDS).filter(id => app.commands.hasCommand(id))) {
      palette.addItem({ command, category: 'Hybrid Lab' });
    }
  }
}

/** The editor that has the focus. */
function editorOf(element: Element | null): EditorView | null {
  return element instanceof HTMLElement ? EditorView.findFromDOM(element) : null;
}
