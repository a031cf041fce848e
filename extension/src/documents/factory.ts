// Model files in JupyterLab's document registry: file types, and the read-only tab that opens on a double click.

import type { DocumentRegistry } from '@jupyterlab/docregistry';
import { ABCWidgetFactory, DocumentModel, DocumentWidget, TextModelFactory } from '@jupyterlab/docregistry';
import type { Contents } from '@jupyterlab/services';
import { Widget } from '@lumino/widgets';
import { labIcon } from '../lab/icon';
import type { DocumentView } from './document-view';

export const FACTORY = 'Hybrid Lab Model';
const MODEL = 'hybrid-lab-file';

/** The ends of the names of model files. */
export const MODEL_FILES = ['.hlab', '-symbol.json', '.params', '.safetensors', '.onnx'];

const FILE_TYPES: Partial<DocumentRegistry.IFileType>[] = [
  {
    name: 'hybrid-lab-archive',
    displayName: 'Hybrid Lab archive',
    extensions: ['.hlab'],
    fileFormat: 'base64'
  },
  { name: 'mxnet-symbol', displayName: 'MXNet graph', pattern: '-symbol\\.json$', fileFormat: 'text' },
  { name: 'mxnet-params', displayName: 'MXNet parameters', extensions: ['.params'], fileFormat: 'base64' },
  { name: 'safetensors', displayName: 'Safetensors', extensions: ['.safetensors'], fileFormat: 'base64' },
  { name: 'onnx', displayName: 'ONNX model', extensions: ['.onnx'], fileFormat: 'base64' }
];

/**
 * A model without the file's content: a file may be gigabytes large, and the server reads it.
 * `collaborative` keeps JupyterLab from saving it and from copying it to a checkpoint.
 */
class FileModel extends DocumentModel {
  override get collaborative(): boolean {
    return true;
  }
}

class FileModelFactory extends TextModelFactory {
  override get name(): string {
    return MODEL;
  }
  override get fileFormat(): Contents.FileFormat {
    return null; // the content is not fetched
  }
  override createNew(options: DocumentRegistry.IModelOptions = {}): FileModel {
    return new FileModel({ languagePreference: options.languagePreference, collaborationEnabled: false });
  }
}

/** The tab of one file. */
export class ModelFileWidget extends DocumentWidget {
  constructor(
    options: DocumentWidget.IOptions,
    readonly view: DocumentView
  ) {
    super(options);
    this.addClass('hl-doc-tab');
    this.title.icon = labIcon;
    this.content.node.append(view.element);
    void options.context.ready.then(() => {
      // Notebook 7 opens the file on a page of its own, and disposes of what it made on the page with the click.
      if (!this.isDisposed) {
        void view.open();
      }
    });
    options.context.fileChanged.connect(() => void view.open());
  }
}

class ModelFileFactory extends ABCWidgetFactory<ModelFileWidget> {
  constructor(
    options: DocumentRegistry.IWidgetFactoryOptions<ModelFileWidget>,
    private readonly makeView: (context: DocumentRegistry.Context) => DocumentView
  ) {
    super(options);
  }

  protected override createNewWidget(context: DocumentRegistry.Context): ModelFileWidget {
    const content = new Widget();
    return new ModelFileWidget({ context, content }, this.makeView(context));
  }
}

/** Register the file types and the tab. */
export function registerModelFiles(
  registry: DocumentRegistry,
  makeView: (context: DocumentRegistry.Context) => DocumentView
): ModelFileFactory {
  for (const type of FILE_TYPES) {
    registry.addFileType({
      contentType: 'file',
      mimeTypes: ['application/octet-stream'],
      icon: labIcon,
      ...type
    });
  }
  registry.addModelFactory(new FileModelFactory());
  const names = FILE_TYPES.flatMap(type => type.name ?? []);
  const factory = new ModelFileFactory(
    { name: FACTORY, modelName: MODEL, fileTypes: names, defaultFor: names, readOnly: true },
    makeView
  );
  registry.addWidgetFactory(factory);
  return factory;
}
