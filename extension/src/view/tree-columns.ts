// The columns of the tree: which are shown, what they count for, and the numbers, which the kernel infers.

import type { Requester } from '../protocol/channel';
import { asRequestError } from '../protocol/channel';
import type { BlockNode, BlockWork, Model, SummaryReply } from '../protocol/messages';
import { button, h } from './dom';
import { Popover } from './popover';
import type { PaneMemory } from './panes';
import { memoryText, preciseText, shapeText } from './words';
import { __, _n } from '../text';

export type ColumnId = 'output' | 'parameters' | 'multiply_adds' | 'flop' | 'activations';

interface Column {
  id: ColumnId;
  /** What stands over the column. */
  head: string;
  /** What it holds, for the menu. */
  note: string;
  /** The same in a sentence, as a tooltip. */
  about: string;
}

export const COLUMNS: readonly Column[] = [
  { id: 'output', head: __('Output'), note: __('shape'), about: __('Shape of what the Block returns') },
  {
    id: 'parameters',
    head: __('Params'),
    note: __('numbers, each once'),
    about: __('Numbers in the parameters of the Block and of those below it, each parameter once')
  },
  {
    id: 'multiply_adds',
    head: 'MAC',
    note: __('multiply-adds'),
    about: __('Multiply-adds of products, convolutions and recurrences')
  },
  {
    id: 'flop',
    head: 'FLOP',
    note: __('two for each MAC, one for each element of other operators'),
    about: __('Floating-point operations: two for each multiply-add, one for each element of other operators')
  },
  {
    id: 'activations',
    head: __('Memory'),
    note: __('bytes of activations'),
    about: __('Activation memory: bytes of the arrays that the operators compute')
  }
];

/** The columns where nobody chose others, by the pixels of width from which a tree has them. */
const FIRST: readonly { width: number; columns: readonly ColumnId[] }[] = [
  { width: 500, columns: ['output', 'parameters', 'flop', 'activations'] },
  { width: 310, columns: ['parameters', 'flop'] }
];
const NONE: readonly ColumnId[] = [];
/** Dtypes of the what-if. */
const DTYPES = ['float32', 'float16', 'bfloat16', 'float64'] as const;

/** One cell. */
export interface ColumnCell {
  text: string;
  title: string;
  /** The Block's part of the whole, from 0 to 1; absent where there is none. */
  share?: number;
}

export class TreeColumns {
  /** Unfolds the menu. */
  readonly button: HTMLButtonElement;
  /** The menu, to be placed over the view. */
  readonly panel: HTMLElement;

  /**
   * `onChange`: called when other columns or other numbers are to be shown; `atFirst`: whether a wide tree has columns
   * where nobody chose any.
   */
  constructor(
    private readonly memory: PaneMemory,
    private readonly onChange: () => void,
    private readonly atFirst: boolean
  ) {
    this.boxes = COLUMNS.map(column => {
      const box = h('input', {
        type: 'checkbox',
        'data-column': column.id,
        onchange: () => this.choose(column.id, box.checked)
      });
      return box;
    });
    this.inputs = h('input', {
      type: 'text',
      class: 'hl-input',
      spellcheck: 'false',
      placeholder: '32 x 3 x 224 x 224',
      'aria-label': __('Input shapes')
    });
    this.batch = h('input', {
      type: 'number',
      class: 'hl-input',
      min: '1',
      step: '1',
      placeholder: __('as it is'),
      'aria-label': __('Batch')
    });
    this.dtype = h(
      'select',
      { class: 'hl-input', 'aria-label': __('Type of the numbers') },
      h('option', { value: '' }, __('as it is')),
      ...DTYPES.map(name => h('option', { value: name }, name))
    );
    this.says = h('p', { class: 'hl-columns-says', role: 'status' });
    this.reset = button(__('Back to the last call'), () => this.clear(), {
      title: __('Count for the last call of the model again')
    });
    const form = h(
      'div',
      {
        class: 'hl-columns-form',
        onkeydown: event => {
          if ((event as KeyboardEvent).key === 'Enter' && (event.target as Element).matches('input')) {
            void this.ask();
          }
        }
      },
      h('label', {}, h('span', {}, __('Input shapes')), this.inputs),
      h('label', {}, h('span', {}, __('Batch')), this.batch),
      h('label', {}, h('span', {}, __('Type')), this.dtype),
      h(
        'div',
        { class: 'hl-buttons' },
        button(__('Count'), () => void this.ask(), { class: 'hl-button hl-primary' }),
        this.reset
      )
    );
    this.popover = new Popover(
      __('Columns'),
      __('Columns of the tree'),
      h(
        'fieldset',
        { class: 'hl-columns-choice' },
        h('legend', { class: 'hl-title' }, __('Columns')),
        ...COLUMNS.map((column, place) =>
          h(
            'label',
            { title: column.about },
            this.boxes[place],
            h('span', {}, column.head),
            h('small', {}, column.note)
          )
        )
      ),
      h('p', { class: 'hl-title' }, __('What if')),
      form,
      this.says
    );
    this.button = this.popover.button;
    this.panel = this.popover.panel;
    this.button.classList.add('hl-icon', 'hl-icon-columns');
    this.panel.classList.add('hl-columns-menu');
    this.button.addEventListener('click', () => this.place());
    void (memory.ready ?? Promise.resolve()).then(() => this.update());
  }

  /** The columns that are shown, in order. */
  get shown(): readonly Column[] {
    const chosen = this.memory.read().columns ?? this.first;
    return COLUMNS.filter(column => chosen.includes(column.id));
  }

  /** The tree has another width. */
  resize(width: number): void {
    const first = FIRST.find(each => width >= each.width)?.columns ?? NONE;
    if (width > 0 && this.atFirst && first !== this.first) {
      this.first = first;
      this.update();
    }
  }

  connect(requester: Requester | null): void {
    this.requester = requester;
    this.key = '';
  }

  /** Count for this model, where a column shows it. Of another model nothing is known yet. */
  show(model: Model, parameters: number | null): void {
    this.total = parameters;
    if (model.id !== this.model?.id) {
      this.reply = null;
      this.work.clear();
      this.inputs.value = this.batch.value = this.dtype.value = '';
    }
    this.model = model;
    void this.refresh();
  }

  /** What is counted in a Block; null where nothing is. */
  of(path: string): BlockWork | null {
    return this.work.get(path) ?? null;
  }

  /** Whether the numbers are not those of the last call. */
  get isWhatIf(): boolean {
    return this.reply?.what_if ?? false;
  }

  /** Called with each reply. */
  onWork: () => void = () => undefined;

  /** What stands in a column beside a Block. */
  cell(id: ColumnId, node: BlockNode): ColumnCell {
    const work = this.of(node.path);
    const elsewhere = work?.counted_at ?? node.shared_with;
    if (id === 'output') {
      const isCalled = !this.reply?.what_if && node.output.length > 0;
      const tensors = isCalled ? node.output : (work?.outputs ?? []);
      const text = tensors.map(tensor => shapeText(tensor.shape)).join(' ');
      const types = tensors.map(tensor => `${tensor.dtype} ${shapeText(tensor.shape)}`).join(', ');
      return text === ''
        ? this.unknown(node)
        : { text, title: isCalled ? __('%1, of the last call', types) : types };
    }
    if (elsewhere !== null && (id === 'parameters' || (work?.[id] ?? null) === null)) {
      return { text: '–', title: __('Counted at %1, which is the same Block', elsewhere || __('the top')) };
    }
    const count = id === 'parameters' ? (work?.parameters ?? node.parameter_count) : (work?.[id] ?? null);
    if (count === null) {
      return this.unknown(node);
    }
    const whole = id === 'parameters' ? (this.of('')?.parameters ?? this.total) : (this.of('')?.[id] ?? null);
    const share = whole ? count / whole : 0;
    const part = node.path === '' || !whole ? '' : __(', %1%% of the whole', (share * 100).toFixed(1));
    const exact = `${count.toLocaleString('en-US')} ${{ parameters: 'numbers', multiply_adds: 'multiply-adds', flop: 'operations', activations: 'bytes' }[id]}`;
    const text = id === 'activations' ? memoryText(count) : preciseText(count);
    return { text, title: `${exact}${part}`, share };
  }

  /** What is counted in a Block, for its details. */
  facts(path: string): [string, string][] {
    const work = this.of(path);
    if (!work || !this.reply || work.multiply_adds === null || work.flop === null) {
      return [];
    }
    const numbers = [
      `${withUnit(work.multiply_adds, 'MAC')}, ${withUnit(work.flop, 'FLOP')}`,
      __('%1 of activations', memoryText(work.activations ?? 0))
    ];
    const rows: [string, string][] = [
      [__('Work'), __('%1, in a call with %2', numbers.join(', '), this.reply.inputs)]
    ];
    if (this.reply.what_if) {
      const outputs = work.outputs.map(tensor => `${tensor.dtype} ${shapeText(tensor.shape)}`).join(', ');
      rows.push([__('Output for these inputs'), outputs]);
    }
    return rows;
  }

  private unknown(node: BlockNode): ColumnCell {
    if (!this.reply) {
      return { text: '', title: this.problem };
    }
    if (this.work.size > 0) {
      return {
        text: '–',
        title: this.of(node.path) ? __('This call does not reach the Block') : __('Not counted')
      };
    }
    return { text: '–', title: this.reply.missing };
  }

  private choose(id: ColumnId, isShown: boolean): void {
    const ids = this.shown.map(column => column.id).filter(other => other !== id);
    this.memory.write({ columns: isShown ? [...ids, id] : ids });
    this.update();
  }

  private update(): void {
    const shown = new Set(this.shown.map(column => column.id));
    this.boxes.forEach(box => (box.checked = shown.has(box.dataset.column as ColumnId)));
    this.onChange();
    void this.refresh();
  }

  private clear(): void {
    this.inputs.value = this.batch.value = this.dtype.value = '';
    void this.ask();
  }

  private async refresh(): Promise<void> {
    const { model } = this;
    const key = `${model?.id}|${model?.revision}`;
    if (model && this.shown.length > 0 && key !== this.key) {
      this.key = key;
      await this.ask();
    }
  }

  private async ask(): Promise<void> {
    const { requester, model } = this;
    if (!requester || !model) {
      return;
    }
    const number = ++this.asked;
    const typed = {
      inputs: this.inputs.value,
      batch: Number(this.batch.value) || 0,
      dtype: this.dtype.value
    };
    this.say(__('Counting …'));
    try {
      const reply = await requester.request('summary', { model: model.id, ...typed });
      if (number === this.asked) {
        this.take(reply);
      }
    } catch (error) {
      if (number === this.asked) {
        const { code, message, next } = asRequestError(error);
        this.problem = message;
        this.say([message, next].filter(text => text !== '').join(' '), true);
        if (code === 'busy') {
          this.key = ''; // the end of the cell brings the list of models, and with it the next try
        }
        this.onChange();
      }
    }
  }

  private take(reply: SummaryReply): void {
    this.reply = reply;
    this.problem = '';
    this.work = new Map(reply.blocks.map(block => [block.path, block]));
    if (reply.inputs !== '' && !reply.what_if) {
      this.inputs.placeholder = reply.inputs;
    }
    const counted =
      reply.inputs === ''
        ? ''
        : `${reply.what_if ? __('Counted for') : __('Of the last call:')} ${reply.inputs}.`;
    const blocks = reply.blocks.filter(block => block.calls > 0).length;
    const amount = blocks > 0 ? `${_n('%1 Block', '%1 Blocks', blocks)}.` : '';
    this.say([counted, amount, reply.missing].filter(text => text !== '').join(' '), reply.missing !== '');
    this.button.classList.toggle('hl-what-if', reply.what_if);
    this.button.title = reply.what_if
      ? __('Columns of the tree, counted for %1', reply.inputs)
      : __('Columns of the tree');
    this.onChange();
    this.onWork();
  }

  private say(text: string, isBad = false): void {
    this.says.textContent = text;
    this.says.classList.toggle('hl-columns-problem', isBad);
  }

  /** Put the menu below its button, within the view. */
  private place(): void {
    const around = this.panel.offsetParent?.getBoundingClientRect();
    const own = this.button.getBoundingClientRect();
    if (around) {
      const left = Math.min(own.left - around.left, around.width - this.panel.offsetWidth - 6);
      this.panel.style.left = `${Math.max(6, left)}px`;
      this.panel.style.top = `${own.bottom - around.top + 2}px`;
      this.panel.style.maxHeight = `${Math.max(120, around.bottom - own.bottom - 8)}px`;
    }
  }

  private readonly popover: Popover;
  private readonly boxes: HTMLInputElement[];
  private readonly inputs: HTMLInputElement;
  private readonly batch: HTMLInputElement;
  private readonly dtype: HTMLSelectElement;
  private readonly says: HTMLElement;
  private readonly reset: HTMLButtonElement;
  private requester: Requester | null = null;
  private model: Model | null = null;
  private reply: SummaryReply | null = null;
  private work = new Map<string, BlockWork>();
  private total: number | null = null;
  /** Why the last request failed. */
  private problem = '';
  /** Model and revision that were asked about last. */
  private key = '';
  private asked = 0;
  private first: readonly ColumnId[] = NONE;
}

/** A count with its unit: "512 MAC", "54.3 kMAC". */
function withUnit(count: number, unit: string): string {
  const text = preciseText(count);
  return text.includes(' ') ? text + unit : `${text} ${unit}`;
}
