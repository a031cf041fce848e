// The plugin that opens model files: a double click in the file browser, "Open With", or a drag to the main area.

import type { ILabShell, ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { WidgetTracker } from '@jupyterlab/apputils';
import { PageConfig, PathExt, URLExt } from '@jupyterlab/coreutils';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { NotebookActions } from '@jupyterlab/notebook';
import { ServerConnection } from '@jupyterlab/services';
import type { IStateDB } from '@jupyterlab/statedb';
import { workerLayout } from '../graph/worker';
import { graphvizText } from '../lab/graphviz-text';
import { SizeMemory, browserStore } from '../lab/memory';
import { ModelView } from '../view/model-view';
import { splitPanes } from '../view/split-panes';
import type { Target } from './document-view';
import { DocumentView } from './document-view';
import type { ModelFileWidget } from './factory';
import { FACTORY, MODEL_FILES, registerModelFiles } from './factory';
import type { Post } from './file-requester';
import { FileRequester } from './file-requester';
import { __ } from '../text';

/** Model files as tabs. Tokens that the application lacks are null. */
export function start(
  app: JupyterFrontEnd,
  notebooks: INotebookTracker | null,
  restorer: ILayoutRestorer | null,
  state: IStateDB | null,
  labShell: ILabShell | null
): void {
  const store = labShell ? state : browserStore(localStorage, PageConfig.getBaseUrl());
  const { contents, serverSettings } = app.serviceManager;
  const post = poster(serverSettings);
  const layout = workerLayout(graphvizText(serverSettings, () => null));
  const tracker = new WidgetTracker<ModelFileWidget>({ namespace: 'hybrid-lab-document' });
  const panels = (): NotebookPanel[] => {
    const found: NotebookPanel[] = [];
    notebooks?.forEach(panel => found.push(panel));
    return found;
  };

  const factory = registerModelFiles(app.docRegistry, context => {
    const path = contents.localPath(context.path);
    return new DocumentView({
      requester: new FileRequester(path, post),
      model: new ModelView({
        layout,
        panes: splitPanes,
        sizes: new SizeMemory(store, 'file'),
        isFile: true
      }),
      targets: () => panels().map(asTarget),
      run: (target, code) =>
        runIn(
          app,
          panels().find(panel => panel.id === target),
          code
        ),
      others: async () => {
        const folder = await contents.get(PathExt.dirname(context.path));
        const items = (folder.content ?? []) as { name: string; path: string }[];
        const models = items.filter(({ name }) => MODEL_FILES.some(end => name.toLowerCase().endsWith(end)));
        return models.map(item => contents.localPath(item.path)).filter(other => other !== path);
      }
    });
  });
  factory.widgetCreated.connect((_, widget) => {
    widget.context.pathChanged.connect(() => void tracker.save(widget));
    void tracker.add(widget);
  });
  notebooks?.widgetAdded.connect((_, panel) => {
    const show = (): void => tracker.forEach(widget => widget.view.showLoad());
    show();
    panel.disposed.connect(show);
  });
  if (restorer) {
    void restorer.restore(tracker, {
      command: 'docmanager:open',
      args: widget => ({ path: widget.context.path, factory: FACTORY }),
      name: widget => widget.context.path
    });
  }
}

function asTarget(panel: NotebookPanel): Target {
  const { path, localPath } = panel.context;
  return { id: panel.id, name: PathExt.basename(path), folder: PathExt.dirname(localPath) };
}

/** Insert a cell below the active one of a notebook, and run it. */
async function runIn(app: JupyterFrontEnd, panel: NotebookPanel | undefined, code: string): Promise<void> {
  if (!panel) {
    throw new Error(__('This notebook was closed.'));
  }
  app.shell.activateById(panel.id);
  NotebookActions.insertBelow(panel.content);
  panel.content.activeCell?.model.sharedModel.setSource(code);
  await NotebookActions.run(panel.content, panel.sessionContext);
}

function poster(settings: ServerConnection.ISettings): Post {
  const url = URLExt.join(settings.baseUrl, 'hybrid-lab', 'document');
  return async body => {
    const response = await ServerConnection.makeRequest(
      url,
      { method: 'POST', body: JSON.stringify(body) },
      settings
    );
    return { status: response.status, body: await response.json().catch(() => null) };
  };
}
