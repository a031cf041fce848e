// A model file as a page: what it is, its tree and graph, its tensors and digests, and what differs from another file.

import { asRequestError } from '../protocol/channel';
import type { ContentsReply, DocumentReply } from '../protocol/messages';
import { button, h, replace, uniqueId } from '../view/dom';
import type { SideBySide } from '../view/compare-view';
import type { ModelView } from '../view/model-view';
import { Tabs } from '../view/tabs';
import { bytesText, shapeText } from '../view/words';
import type { FileRequester } from './file-requester';
import { isName, loadingCode } from './python-code';
import { __, _n } from '../text';

type Part = ContentsReply['parts'][number];

/** An open notebook into whose kernel a file can be loaded. */
export interface Target {
  id: string;
  name: string;
  /** The folder of the notebook on the server, where its kernel runs. */
  folder: string;
}

export interface DocumentViewOptions {
  requester: FileRequester;
  model: ModelView;
  /** The notebooks that are open now. */
  targets: () => Target[];
  /** Insert a cell with this code into the notebook and run it. */
  run: (target: string, code: string) => Promise<void>;
  /** Paths on the server of other model files, proposed for a comparison. */
  others: () => Promise<string[]>;
}

const MARKS = { added: '+', removed: '−', changed: '~', same: '' } as const;

/** Rows of the table of tensors that are shown at first. */
const ROWS = 400;

export class DocumentView {
  readonly element: HTMLElement;

  constructor(private readonly options: DocumentViewOptions) {
    this.head = h('div', { class: 'hl-doc-head' });
    this.alert = h('div', { class: 'hl-alert', role: 'alert' });
    this.alert.hidden = true;
    this.load = h('div', { class: 'hl-doc-load' });
    this.contentsStatus = h('div', { class: 'hl-summary', role: 'status' });
    this.contentsBody = h('tbody', {});
    this.filter = h('input', {
      type: 'search',
      class: 'hl-input',
      placeholder: __('Filter by name'),
      'aria-label': __('Filter the tensors by name'),
      oninput: () => this.showParts()
    });
    this.more = button(__('Show all'), () => {
      this.rows = Infinity;
      this.showParts();
    });
    this.differences = h('div', { class: 'hl-doc-differences' });
    this.tabs = new Tabs(
      __('About the file'),
      [
        {
          name: __('Model'),
          content: h('div', { class: 'hl-doc-model' }, options.model.headline, options.model.element)
        },
        { name: __('Tensors and digests'), content: this.contents() },
        { name: __('Compare'), content: h('div', {}, this.comparison(), this.differences) }
      ],
      index => this.onTab(index)
    );
    this.element = h(
      'div',
      { class: 'hl-root hl-wide hl-doc' },
      this.head,
      this.alert,
      this.load,
      this.tabs.element
    );
  }

  /** Read the file, at first and after it changed. */
  async open(): Promise<void> {
    const generation = ++this.generation;
    const { requester, model } = this.options;
    replace(this.head, h('span', { role: 'status' }, __('Reading the file …')));
    this.parts = [];
    this.next = 0;
    this.rows = ROWS;
    let reply: DocumentReply;
    try {
      reply = await requester.ask('document', {});
    } catch (error) {
      this.fail(error);
      return;
    }
    if (generation !== this.generation) {
      return;
    }
    this.reply = reply;
    this.showHead(reply);
    this.showLoad();
    this.complain(reply.problem, reply.next);
    this.tabs.element.hidden = false;
    model.element.hidden = !reply.has_model;
    if (reply.has_model) {
      await this.showModel();
    } else {
      this.tabs.show(1);
    }
    if (this.tabs.current === 1) {
      void this.read();
    }
  }

  private async showModel(): Promise<void> {
    const { requester, model } = this.options;
    try {
      const [first] = (await requester.request('models', {})).models;
      if (first) {
        const tree = await requester.request('tree', { model: first.id });
        model.connect(requester);
        model.showTree(tree);
        model.showFindings([]);
      }
    } catch (error) {
      const { message, next } = asRequestError(error);
      model.element.hidden = true;
      this.complain(message, next);
    }
  }

  private showHead(reply: DocumentReply): void {
    const changed = new Date(reply.modified * 1000).toLocaleString();
    replace(
      this.head,
      h('strong', {}, reply.file),
      h(
        'span',
        { class: 'hl-summary' },
        __('%1, %2, changed %3', reply.title, bytesText(reply.bytes), changed)
      ),
      h(
        'dl',
        { class: 'hl-doc-facts' },
        ...reply.facts.flatMap(fact => [h('dt', {}, fact.name), h('dd', {}, fact.text)])
      )
    );
  }

  /** The file cannot be read, for example because it was deleted: nothing of what it was is offered any more. */
  private fail(error: unknown): void {
    const { message, next } = asRequestError(error);
    const name = this.options.requester.path.split('/').pop() ?? '';
    replace(
      this.head,
      h('strong', {}, name),
      button(__('Read again'), () => void this.open())
    );
    this.complain(message, next);
    this.reply = null;
    this.load.hidden = true;
    this.tabs.element.hidden = true;
  }

  private complain(message: string, next: string): void {
    this.alert.textContent = `${message} ${next}`.trim();
    this.alert.hidden = this.alert.textContent === '';
  }

  // -- load into a kernel ----------------------------------------------------------------------------------------

  /** Show the line that loads the file, and the notebooks in which it can run. Called again when notebooks open. */
  showLoad(): void {
    const { reply } = this;
    this.load.hidden = !reply || reply.code === '' || reply.problem !== '';
    if (!reply || this.load.hidden) {
      return;
    }
    const targets = this.options.targets();
    const notebook = h(
      'select',
      { class: 'hl-input', 'aria-label': __('Notebook') },
      ...targets.map(target => h('option', { value: target.id }, target.name))
    );
    const name = h('input', {
      class: 'hl-input hl-doc-name',
      'aria-label': __('Name of the variable'),
      value: this.variable,
      oninput: () => {
        this.variable = name.value;
        show();
      }
    });
    const code = h('code', { class: 'hl-doc-code' });
    const text = (): string => {
      const target = targets.find(item => item.id === notebook.value);
      return loadingCode(reply, this.options.requester.path, target?.folder ?? null, this.variable);
    };
    const run = button(__('Load into kernel'), () => void this.run(notebook.value, text()), {
      class: 'hl-button hl-primary',
      title: __('Insert this code below the active cell of the notebook, and run it')
    });
    const show = (): void => {
      code.textContent = text();
      run.disabled = !isName(this.variable);
    };
    notebook.onchange = show;
    show();
    replace(
      this.load,
      targets.length > 0 && run,
      name,
      targets.length > 0 ? h('label', {}, __('in '), notebook) : h('span', {}, __('in a notebook:')),
      code
    );
  }

  private async run(target: string, code: string): Promise<void> {
    try {
      await this.options.run(target, code);
    } catch (error) {
      this.complain(asRequestError(error).message, '');
    }
  }

  // -- tensors and digests -----------------------------------------------------------------------------------------

  private contents(): HTMLElement {
    const columns = [
      __('Name'),
      __('Shape'),
      __('Type'),
      __('Bytes'),
      __('Min'),
      __('Max'),
      __('Mean'),
      __('NaN, Inf'),
      'SHA-256'
    ];
    return h(
      'div',
      { class: 'hl-doc-contents' },
      this.contentsStatus,
      this.filter,
      h(
        'div',
        { class: 'hl-doc-scroll', tabindex: 0, role: 'region', 'aria-label': __('Tensors') },
        h(
          'table',
          { class: 'hl-parameters' },
          h('thead', {}, h('tr', {}, ...columns.map(name => h('th', { scope: 'col' }, name)))),
          this.contentsBody
        )
      ),
      this.more
    );
  }

  private onTab(index: number): void {
    if (index === 1) {
      void this.read();
    } else if (index === 2) {
      void this.propose();
    }
  }

  /** Read the parts of the file that were not read yet, some at a time. */
  private async read(): Promise<void> {
    const { generation, reply } = this;
    if (this.isReading === generation || !reply || reply.parts === 0) {
      return;
    }
    this.isReading = generation;
    try {
      while (this.next >= 0 && generation === this.generation) {
        const some = await this.options.requester.ask('contents', { start: this.next });
        if (generation !== this.generation) {
          return;
        }
        this.parts.push(...some.parts);
        this.next = some.next;
        this.showParts();
      }
    } catch (error) {
      const { message, next } = asRequestError(error);
      this.contentsStatus.textContent = `${message} ${next}`.trim();
      await this.options.requester.ask('document', {}).catch((gone: unknown) => this.fail(gone));
    } finally {
      if (generation === this.generation) {
        this.isReading = -1;
      }
    }
  }

  private showParts(): void {
    const query = this.filter.value.trim().toLowerCase();
    const found = this.parts.filter(part => part.name.toLowerCase().includes(query));
    const damaged = this.parts.filter(part => part.state === 'damaged').length;
    const verified = this.parts.filter(part => part.state === 'verified').length;
    const total = this.reply?.parts ?? 0;
    const progress =
      this.parts.length < total
        ? __('%1 of %2 read; ', this.parts.length, _n('%1 part', '%1 parts', total))
        : '';
    const says =
      damaged > 0
        ? _n(
            '%1 damaged: it does not match the SHA-256 in the file.',
            '%1 damaged: they do not match the SHA-256 in the file.',
            damaged
          )
        : verified === this.parts.length
          ? __('%1 verified: each matches its SHA-256 in the file.', _n('%1 part', '%1 parts', verified))
          : __('The file has no digests of its own to compare with; those shown here were computed now.');
    this.contentsStatus.textContent = progress + says;
    this.contentsStatus.classList.toggle('hl-bad-text', damaged > 0);
    replace(this.contentsBody, ...found.slice(0, this.rows).map(row));
    this.more.hidden = found.length <= this.rows;
    this.more.textContent = __('Show all %1', found.length);
  }

  // -- comparison --------------------------------------------------------------------------------------------------

  private comparison(): HTMLElement {
    const list = uniqueId('files');
    this.proposals = h('datalist', { id: list });
    this.other = h('input', {
      class: 'hl-input hl-doc-other',
      list,
      placeholder: 'folder/other.hlab',
      'aria-label': __('Path of another file on the server')
    });
    return h(
      'form',
      {
        class: 'hl-doc-compare',
        onsubmit: event => {
          event.preventDefault();
          void this.compare();
        }
      },
      h('span', {}, __('Compare with')),
      this.other,
      this.proposals,
      h('button', { type: 'submit', class: 'hl-button' }, __('Compare'))
    );
  }

  private async propose(): Promise<void> {
    const paths = await this.options.others().catch(() => []);
    replace(this.proposals, ...paths.map(path => h('option', { value: path })));
    if (this.other.value === '' && paths.length === 1) {
      this.other.value = paths[0] ?? '';
    }
  }

  private async compare(): Promise<void> {
    const other = this.other.value.trim();
    if (other === '') {
      this.other.focus();
      return;
    }
    const say = (text: string, isProblem = false): void =>
      replace(
        this.differences,
        h('p', { class: isProblem ? 'hl-alert' : 'hl-summary', role: isProblem ? 'alert' : 'status' }, text)
      );
    say(__('Comparing …'));
    try {
      const { requester } = this.options;
      const { lines, count, summary, graphs, ...reply } = await requester.ask('difference', { other });
      if (count === 0) {
        say(__('No differences: Blocks, graphs and tensors are equal.'));
        return;
      }
      say(
        count > lines.length
          ? __('%1; the first %2 lines of %3:', summary, lines.length, count)
          : `${summary}:`
      );
      if (graphs) {
        const shown: SideBySide = {
          graphs,
          names: [this.reply?.file ?? '', reply.other],
          summary,
          values: (first, second) => requester.ask('differing_values', { other, first, second })
        };
        this.differences.append(
          button(__('Show side by side'), () => this.showSideBySide(shown), {
            class: 'hl-button hl-primary',
            title: __('Show both graphs, with what differs in colour')
          })
        );
      }
      this.differences.append(
        h(
          'table',
          { class: 'hl-parameters' },
          h(
            'thead',
            {},
            h(
              'tr',
              {},
              ...[__('What'), __('Name'), __('Difference')].map(name => h('th', { scope: 'col' }, name))
            )
          ),
          h(
            'tbody',
            {},
            ...lines.map(line =>
              h(
                'tr',
                {},
                h('td', { class: `hl-mark-${line.change}` }, `${MARKS[line.change]} ${line.what}`.trim()),
                h('td', {}, h('code', {}, line.name)),
                h('td', {}, line.text)
              )
            )
          )
        )
      );
    } catch (error) {
      const { message, next } = asRequestError(error);
      say(`${message} ${next}`.trim(), true);
    }
  }

  /** Both graphs, in the place of the model until they are closed. */
  private showSideBySide(shown: SideBySide): void {
    this.tabs.show(0);
    void this.options.model.showSideBySide(shown);
  }

  private readonly head: HTMLElement;
  private readonly alert: HTMLElement;
  private readonly load: HTMLElement;
  private readonly contentsStatus: HTMLElement;
  private readonly contentsBody: HTMLElement;
  private readonly filter: HTMLInputElement;
  private readonly more: HTMLButtonElement;
  private readonly differences: HTMLElement;
  private readonly tabs: Tabs;
  private other!: HTMLInputElement;
  private proposals!: HTMLElement;
  private reply: DocumentReply | null = null;
  private parts: Part[] = [];
  private next = 0;
  private rows = ROWS;
  private variable = 'net';
  private generation = 0;
  private isReading = -1;
}

function row(part: Part): HTMLElement {
  const bad = [part.nan > 0 && `${part.nan} NaN`, part.inf > 0 && `${part.inf} Inf`].filter(text => text);
  const digest =
    part.state === 'damaged'
      ? h('span', { class: 'hl-bad-text', title: part.problem }, __('damaged'))
      : h(
          'code',
          { title: part.state === 'verified' ? __('verified: %1', part.digest) : part.digest },
          `${part.state === 'verified' ? '✓ ' : ''}${part.digest.slice(0, 12)}`
        );
  return h(
    'tr',
    { class: part.state === 'damaged' || bad.length > 0 ? 'hl-bad-row' : undefined },
    h('td', {}, h('code', {}, part.name)),
    h('td', {}, part.shape ? shapeText(part.shape) : ''),
    h('td', {}, part.dtype),
    h('td', {}, bytesText(part.bytes)),
    h('td', {}, numberText(part.minimum)),
    h('td', {}, numberText(part.maximum)),
    h('td', {}, numberText(part.mean)),
    h('td', { class: bad.length > 0 ? 'hl-bad-text' : undefined }, bad.join(', ')),
    h('td', {}, digest)
  );
}

function numberText(value: number | null): string {
  return value === null ? '' : String(Number(value.toPrecision(4)));
}
