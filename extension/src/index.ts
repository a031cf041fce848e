// The plugins of the JupyterLab extension. Their modules are loaded after the texts of the language.

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IEditorExtensionRegistry } from '@jupyterlab/codemirror';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator } from '@jupyterlab/translation';
import { setTexts } from './text';

function takeTexts(translator: ITranslator | null): void {
  try {
    if (translator) {
      setTexts(translator.load('hybrid_lab'));
    }
  } catch (error) {
    console.warn('Hybrid Lab is shown in English.', error); // a catalog that this JupyterLab does not take
  }
}

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'hybrid-lab:plugin',
  description: 'Block trees, cached graphs and lint findings beside your notebook.',
  autoStart: true,
  optional: [
    ITranslator,
    INotebookTracker,
    IEditorExtensionRegistry,
    ICommandPalette,
    ILayoutRestorer,
    ILabShell,
    ISettingRegistry,
    IStateDB
  ],
  activate: async (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    tracker: INotebookTracker | null,
    editors: IEditorExtensionRegistry | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    labShell: ILabShell | null,
    settings: ISettingRegistry | null,
    state: IStateDB | null
  ) => {
    takeTexts(translator);
    const { start } = await import('./lab/start');
    start(app, tracker, editors, palette, restorer, labShell, settings, state);
  }
};

const documents: JupyterFrontEndPlugin<void> = {
  id: 'hybrid-lab:documents',
  description: 'Model files (.hlab, -symbol.json, .params, .safetensors, .onnx) as read-only tabs.',
  autoStart: true,
  optional: [ITranslator, INotebookTracker, ILayoutRestorer, IStateDB, ILabShell],
  activate: async (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    notebooks: INotebookTracker | null,
    restorer: ILayoutRestorer | null,
    state: IStateDB | null,
    labShell: ILabShell | null
  ) => {
    takeTexts(translator);
    const { start } = await import('./documents/plugin');
    start(app, notebooks, restorer, state, labShell);
  }
};

export default [plugin, documents];
