// Checks the Python files that are open in editors while they are typed; the server runs the rules, no kernel is needed.

import type { CodeEditor } from '@jupyterlab/codeeditor';
import type { IEditorExtensionRegistry } from '@jupyterlab/codemirror';
import { EditorExtensionRegistry } from '@jupyterlab/codemirror';
import type { LintSources, LintTarget } from '../lint/lint-client';
import { LintClient } from '../lint/lint-client';
import type { MarkedEditor } from './editor-marks';
import { callMarks, marksExtension } from './editor-marks';
import { mentionsHybridLab } from './link';
import { __ } from '../text';

export interface FileDiagnosticsSettings {
  enabled: boolean;
  delay: number;
  target: LintTarget;
}

export class FileDiagnosticsService {
  constructor(private readonly server: LintSources['server']) {}

  configure(settings: FileDiagnosticsSettings): void {
    this.settings = settings;
    this.files.forEach(file => file.later());
  }

  /** Make the editors of files known to this service; those of cells have a type. */
  register(registry: IEditorExtensionRegistry): void {
    registry.addExtension({
      name: 'hybrid-lab:file-diagnostics',
      factory: ({ model }) => {
        if ('type' in model) {
          return null;
        }
        const file = new CheckedFile(model, this.server, () => this.settings);
        return EditorExtensionRegistry.createImmutableExtension(
          marksExtension(
            editor => {
              this.files.add(file);
              file.open(editor);
            },
            () => {
              this.files.delete(file);
              file.close();
            },
            () => file.later()
          )
        );
      }
    });
  }

  private settings: FileDiagnosticsSettings = { enabled: true, delay: 400, target: '' };
  private readonly files = new Set<CheckedFile>();
}

class CheckedFile {
  constructor(
    private readonly model: CodeEditor.IModel,
    server: LintSources['server'],
    private readonly settings: () => FileDiagnosticsSettings
  ) {
    this.client = new LintClient(() => ({ kernel: null, server }));
  }

  open(editor: MarkedEditor): void {
    this.editor = editor;
    this.later();
  }

  close(): void {
    this.editor = null;
    clearTimeout(this.timer);
  }

  /** Check the file when the typing rests. */
  later(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.check(), this.settings().delay);
  }

  private async check(): Promise<void> {
    const { enabled, target } = this.settings();
    const source = this.model.sharedModel.getSource();
    if (!enabled || !this.model.mimeType.includes('python') || !mentionsHybridLab(source)) {
      this.editor?.show([], false, source);
      return;
    }
    const found = await this.client.lint([{ id: 'file', source }], target);
    if (found && source === this.model.sharedModel.getSource()) {
      const findings = (found.file ?? []).map(diagnostic => ({ diagnostic }));
      const calls = callMarks(found, (_, { line, col }) => ({
        place: __('line %1', line),
        jump: () => this.editor?.goTo(line, col)
      }));
      this.editor?.show([...findings, ...(calls.file ?? [])], true, source);
    }
  }

  private readonly client: LintClient;
  private editor: MarkedEditor | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
}
