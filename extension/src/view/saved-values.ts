// The values of a parameter and its gradients over the saves of a file: a histogram in each row, in the order of time,
// on one scale or each on its own; the last row is the live model's.

import type { Requester } from '../protocol/channel';
import { asRequestError } from '../protocol/channel';
import type { Histogram, HistogramsReply, Model, SavedValues } from '../protocol/messages';
import type { Child } from './dom';
import { button, h, replace } from './dom';
import { trainingTexts, whenText } from './history-part';
import { Tabs } from './tabs';
import { agoText } from './words';
import { __ } from '../text';

export interface SavesOptions {
  /** The model's file. */
  file: () => string;
  /** Compare a save with the model. */
  onCompare: (file: string) => void;
  onReload: (file: string) => void;
}

type What = 'values' | 'gradient';

/** A row: a save, or the live model. */
interface Line {
  save: SavedValues | null;
  values: Histogram | null;
  gradient: Histogram | null;
}

/** Height and width of a histogram in its own units. */
const HEIGHT = 100;
const WIDTH = 1000;
/** Units of width that a bin has at least: one value is seen, too. */
const THIN = 8;

export class SavedValuesPart {
  readonly element: HTMLElement;

  constructor(private readonly options: SavesOptions) {
    this.picker = h('select', {
      class: 'hl-input',
      'aria-label': __('Parameter'),
      onchange: () => this.choose(this.picker.value)
    });
    const panels = { values: h('div', {}), gradient: h('div', {}) };
    this.panels = panels;
    this.tabs = new Tabs(
      __('What is shown of the parameter'),
      [
        { name: __('Values'), content: panels.values },
        { name: __('Gradients'), content: panels.gradient }
      ],
      () => this.draw()
    );
    this.own = h('input', { type: 'checkbox', onchange: () => this.draw() });
    const head = h(
      'div',
      { class: 'hl-over-saves-head' },
      h('p', { class: 'hl-title' }, __('Over the saves')),
      this.picker,
      h(
        'label',
        { title: __('Draw each row from its own minimum to its own maximum') },
        this.own,
        __(' each on its own scale')
      )
    );
    this.element = h(
      'section',
      { class: 'hl-over-saves', 'aria-label': __('Values over the saves') },
      head,
      this.tabs.element
    );
    this.element.hidden = true;
  }

  /** Whose values; null for nobody's. */
  show(requester: Requester | null, model: Model | null, path: string): void {
    const isOther = requester !== this.requester || model?.id !== this.model?.id || path !== this.path;
    this.requester = requester;
    this.model = model;
    this.path = path;
    if (isOther) {
      this.name = '';
      this.chosen = null;
      this.pointed = null;
      this.reply = null;
      this.element.hidden = true;
    }
    void this.load();
  }

  /** Show another parameter, by its path below the Block. */
  choose(name: string): void {
    if (name !== this.name) {
      this.name = name;
      void this.load();
    }
  }

  /** Ask again, where it can be seen. */
  async load(): Promise<void> {
    const { requester, model, path, name } = this;
    const parent = this.element.parentElement;
    if (!requester || !model || !parent?.isConnected || parent.closest('[hidden]')) {
      return;
    }
    const asked = ++this.asked;
    const body = { model: model.id, file: this.options.file(), path, name };
    try {
      const reply = await requester.request('histograms', body, { timeout: 10_000 });
      if (asked === this.asked) {
        this.take(reply);
      }
    } catch (error) {
      if (asked === this.asked && !this.element.hidden) {
        replace(this.panels[this.what], h('p', { class: 'hl-alert' }, asRequestError(error).message));
        this.drawn = '';
      }
    }
  }

  private take(reply: HistogramsReply): void {
    this.reply = reply;
    this.name = reply.name;
    // Without a save the numbers of the parameter, a click away, say the same.
    this.element.hidden = reply.saves.length === 0;
    const names = reply.parameters.join('\n');
    if (names !== this.listed) {
      this.listed = names;
      replace(this.picker, ...reply.parameters.map(name => h('option', { value: name }, name)));
    }
    this.picker.value = reply.name;
    this.draw();
  }

  private get what(): What {
    return this.tabs.current === 0 ? 'values' : 'gradient';
  }

  private get lines(): Line[] {
    const { reply } = this;
    if (!reply) {
      return [];
    }
    const live = { save: null, values: reply.live, gradient: reply.live_gradient };
    return [...reply.saves.map(save => ({ ...save, save })), ...(reply.live ? [live] : [])];
  }

  private draw(): void {
    if (!this.reply) {
      return;
    }
    const { what, lines } = this;
    const isOwn = this.own.checked;
    const key = JSON.stringify([this.reply, what, this.chosen, isOwn, lines.map(namesOf)]);
    if (key === this.drawn) {
      return;
    }
    this.drawn = key;
    const panel = this.panels[what];
    const hadFocus = panel.querySelector('[role="listbox"]')?.contains(document.activeElement);
    const isOpen = panel.querySelector('details')?.open ?? false;
    const shown = lines.filter(line => line[what]);
    const lows = shown.map(line => line[what]?.minimum ?? Infinity);
    const highs = shown.map(line => line[what]?.maximum ?? -Infinity);
    const common = new Scale(Math.min(...lows), Math.max(...highs));
    const scaleOf = (line: Line): Scale => (isOwn ? scaleOfOne(line[what]) : common);
    if (!lines.some(line => idOf(line) === this.chosen)) {
      this.chosen = null;
    }
    this.readout = h('p', { class: 'hl-readout', 'aria-live': 'polite' });
    if (shown.length === 0 && what === 'gradient') {
      replace(panel, h('p', { class: 'hl-empty' }, NO_GRADIENT));
      return;
    }
    const stop = this.chosen ?? idOf(lines[lines.length - 1]);
    const list = h(
      'div',
      {
        class: 'hl-ridges',
        role: 'listbox',
        'aria-label': __(
          '%1 of %2 in each save, the oldest first',
          what === 'values' ? __('Values') : __('Gradients'),
          this.name
        ),
        onkeydown: event => this.onKey(event as KeyboardEvent)
      },
      ...lines.map(line => this.row(line, scaleOf(line), idOf(line) === stop))
    );
    const table = h(
      'details',
      { open: isOpen },
      h('summary', {}, __('as a table')),
      h(
        'div',
        { class: 'hl-over-saves-table', tabindex: 0, role: 'region', 'aria-label': __('Table') },
        this.table(lines)
      )
    );
    replace(
      panel,
      list,
      !isOwn && Number.isFinite(common.low) && axis(common),
      h('div', { class: 'hl-over-saves-foot' }, this.readout, this.actions()),
      table
    );
    // What a resting pointer reads stays, with the numbers of now.
    const pointed = lines.find(line => idOf(line) === this.pointed?.id);
    const option = pointed && list.children[lines.indexOf(pointed)];
    if (pointed && this.pointed && option) {
      this.tell(this.textAt(pointed, scaleOf(pointed), option, this.pointed.x));
    } else {
      this.pointed = null;
      this.tell(null);
    }
    if (hadFocus) {
      panel.querySelector<HTMLElement>('[role="option"][tabindex="0"]')?.focus();
    }
  }

  private row(line: Line, scale: Scale, isStop: boolean): HTMLElement {
    const { save } = line;
    const histogram = line[this.what];
    const [first, second] = namesOf(line);
    const warning = notFinite(histogram);
    return h(
      'div',
      {
        class: save ? 'hl-ridge-row' : 'hl-ridge-row hl-ridge-live',
        role: 'option',
        tabindex: isStop ? 0 : -1,
        'aria-selected': String(idOf(line) === this.chosen),
        'aria-label': [first, second, textOf(line, this.what)].filter(text => text !== '').join(', '),
        onclick: () => this.pick(line),
        onpointermove: event => this.onMove(event as PointerEvent, line, scale),
        onpointerleave: event => {
          if ((event.currentTarget as HTMLElement).isConnected) {
            this.pointed = null;
            this.tell(null);
          }
        }
      },
      h(
        'span',
        {
          class: 'hl-ridge-name',
          title: [save ? whenText(save) : '', first, second].filter(Boolean).join(', ')
        },
        h('span', {}, first),
        second !== '' && h('span', { class: 'hl-ridge-second' }, second)
      ),
      histogram?.bins.length
        ? ridge(histogram, scale)
        : h('span', { class: 'hl-empty' }, whyNone(line, this.what)),
      warning !== '' && h('span', { class: 'hl-ridge-warning' }, warning)
    );
  }

  /** Say the numbers of a bin, or else of the row that was chosen. */
  private tell(text: string | null): void {
    const line = this.lines.find(each => idOf(each) === this.chosen);
    const about = line ? `${namesOf(line)[0]}: ${textOf(line, this.what)}` : HINT;
    const now = text ?? about;
    if (this.readout.textContent !== now) {
      this.readout.setAttribute('aria-live', text === null ? 'polite' : 'off');
      this.readout.textContent = now;
    }
  }

  private onMove(event: PointerEvent, line: Line, scale: Scale): void {
    this.pointed = { id: idOf(line), x: event.clientX };
    this.tell(this.textAt(line, scale, event.currentTarget as HTMLElement, event.clientX));
  }

  /** The numbers of the bin at `x`, in pixels of the page, of the row of a line; else those of the whole row. */
  private textAt(line: Line, scale: Scale, row: Element, x: number): string {
    const histogram = line[this.what];
    const picture = row.querySelector('svg');
    let bin = '';
    if (histogram && picture && histogram.minimum !== null && histogram.maximum !== null) {
      const { left, width } = picture.getBoundingClientRect();
      const value = scale.value(((x - left) / Math.max(width, 1)) * WIDTH);
      const index = binAt(histogram, value);
      if (index !== null) {
        const size = (histogram.maximum - histogram.minimum) / histogram.bins.length;
        const start = histogram.minimum + index * size;
        const range =
          size > 0 ? __('%1 to %2', numberText(start), numberText(start + size)) : numberText(start);
        bin = __(
          '%1: %2 of %3 values',
          range,
          wholeText(histogram.bins[index] ?? 0),
          wholeText(histogram.looked)
        );
      }
    }
    return `${namesOf(line)[0]}: ${bin || textOf(line, this.what)}`;
  }

  private pick(line: Line): void {
    this.chosen = idOf(line);
    this.draw();
    this.panels[this.what].querySelector<HTMLElement>('[role="option"][tabindex="0"]')?.focus();
  }

  private onKey(event: KeyboardEvent): void {
    const { lines } = this;
    const last = lines.length - 1;
    const found = lines.findIndex(line => idOf(line) === this.chosen);
    const at = found < 0 ? last + (event.key === 'ArrowUp' ? 1 : 0) : found;
    const to = {
      ArrowUp: Math.max(0, at - 1),
      ArrowDown: found < 0 ? last : Math.min(last, at + 1),
      Home: 0,
      End: last,
      Enter: Math.min(at, last),
      ' ': Math.min(at, last)
    }[event.key];
    const line = to === undefined ? undefined : lines[to];
    if (line) {
      event.preventDefault();
      this.pick(line);
    }
  }

  /** What can be done with the save that was chosen. */
  private actions(): Child {
    const save = this.lines.find(each => idOf(each) === this.chosen)?.save;
    const name = this.model?.name ?? __('the model');
    const label = save ? __('the save of %1', whenText(save)) : __('the save that is chosen');
    const disabled = save?.problem !== '';
    return h(
      'div',
      { class: 'hl-buttons' },
      button(__('Compare'), () => save && this.options.onCompare(save.file), {
        disabled,
        title: __('Show what differs between %1 and %2; nothing is changed', label, name),
        'aria-label': __('Compare %1', label)
      }),
      button(__('Reload'), () => save && this.options.onReload(save.file), {
        disabled,
        title: __('Load %1 into %2; Undo reverts it', label, name),
        'aria-label': __('Reload %1', label)
      })
    );
  }

  private table(lines: readonly Line[]): HTMLElement {
    const columns = [
      __('min'),
      __('max'),
      __('mean'),
      __('std'),
      __('zeros'),
      __('NaN'),
      __('infinite'),
      __('values')
    ];
    return h(
      'table',
      { class: 'hl-parameters' },
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          h('th', { scope: 'col' }, __('Save')),
          ...columns.map(name => h('th', { scope: 'col' }, name))
        )
      ),
      h(
        'tbody',
        {},
        ...lines.map(line => {
          const histogram = line[this.what];
          const cells = histogram
            ? [
                ...[histogram.minimum, histogram.maximum, histogram.mean, histogram.std].map(numberText),
                ...[histogram.zeros, histogram.nans, histogram.infinities].map(wholeText),
                sizeText(histogram)
              ]
            : [];
          return h(
            'tr',
            {},
            h('th', { scope: 'row' }, namesOf(line).filter(Boolean).join(', ')),
            ...(histogram
              ? cells.map(text => h('td', {}, text))
              : [h('td', { colspan: columns.length }, whyNone(line, this.what))])
          );
        })
      )
    );
  }

  private readonly picker: HTMLSelectElement;
  private readonly own: HTMLInputElement;
  private readonly tabs: Tabs;
  private readonly panels: Record<What, HTMLElement>;
  private readout = h('p', {});
  private requester: Requester | null = null;
  private model: Model | null = null;
  private path = '';
  private name = '';
  private reply: HistogramsReply | null = null;
  /** The file of the save that was chosen, `LIVE` for the live model. */
  private chosen: string | null = null;
  /** The row over which the pointer rests, by its id, and where it is on the page. */
  private pointed: { id: string; x: number } | null = null;
  private asked = 0;
  private listed = '';
  private drawn = '';
}

const LIVE = '';
const HINT = __('Point at a row for its numbers; choose one to compare or reload that save.');
const NO_GRADIENT = __(
  'No save has a gradient of this parameter: one is recorded where a backward pass wrote it before the save.'
);

/** The horizontal axis of a histogram: of its own values, or of those of all rows. */
class Scale {
  constructor(
    readonly low: number,
    readonly high: number
  ) {}

  place(value: number): number {
    const span = this.high - this.low;
    return span > 0 ? ((value - this.low) / span) * WIDTH : WIDTH / 2;
  }

  /** Where 0 is; null where it is not between the ends. */
  get zero(): number | null {
    return this.low < 0 && this.high > 0 ? this.place(0) : null;
  }

  value(place: number): number {
    return this.low + (place / WIDTH) * (this.high - this.low);
  }
}

function scaleOfOne(histogram: Histogram | null): Scale {
  return new Scale(histogram?.minimum ?? 0, histogram?.maximum ?? 0);
}

function idOf(line: Line | undefined): string {
  return line?.save?.file ?? LIVE;
}

/** What a row is called: its step where that is known, and its note; else when it was written. */
function namesOf({ save }: Line): [string, string] {
  if (!save) {
    return ['now', 'live'];
  }
  const ago = agoText(save.modified, Date.now() / 1000);
  const [first, ...rest] = trainingTexts(save);
  return first === undefined ? [ago, save.note] : [first, save.note || rest[0] || ago];
}

/** The numbers of a row in one line. */
function textOf(line: Line, what: What): string {
  const histogram = line[what];
  if (!histogram) {
    return whyNone(line, what);
  }
  const { minimum, maximum, mean, std, zeros, looked } = histogram;
  const parts =
    minimum === null
      ? [__('no finite values')]
      : [
          __('min %1', numberText(minimum)),
          __('max %1', numberText(maximum)),
          __('mean %1', numberText(mean)),
          __('std %1', numberText(std)),
          ...(zeros > 0 ? [__('%1 zeros', percentText(zeros / looked))] : [])
        ];
  return [...parts, notFinite(histogram), sizeText(histogram)].filter(text => text !== '').join(' · ');
}

function whyNone({ save, values }: Line, what: What): string {
  return save?.problem || (values && what === 'gradient' ? __('no gradient') : __('not in this save'));
}

function notFinite(histogram: Histogram | null): string {
  return [
    histogram && histogram.nans > 0 ? __('NaN %1', wholeText(histogram.nans)) : '',
    histogram && histogram.infinities > 0 ? __('infinite %1', wholeText(histogram.infinities)) : ''
  ]
    .filter(text => text !== '')
    .join(', ');
}

function sizeText({ size, looked }: Histogram): string {
  return looked < size
    ? __('sample of %1 of %2 values', wholeText(looked), wholeText(size))
    : size === 1
      ? __('1 value')
      : __('%1 values', wholeText(size));
}

function wholeText(value: number): string {
  return value.toLocaleString('en');
}

function percentText(share: number): string {
  return `${Number((100 * share).toPrecision(2))}%`;
}

/** Three digits. */
function numberText(value: number | null): string {
  return value === null ? '' : String(Number(value.toPrecision(3)));
}

/** The bin of a value, null for a value outside. */
function binAt({ minimum, maximum, bins }: Histogram, value: number): number | null {
  if (minimum === null || maximum === null || bins.length === 0) {
    return null;
  }
  if (minimum === maximum) {
    return 0;
  }
  const index = Math.floor(((value - minimum) / (maximum - minimum)) * bins.length);
  return value < minimum || value > maximum ? null : Math.min(index, bins.length - 1);
}

/** The ends of the scale, and 0 where there is room between them; one value, which all have, stands alone below it. */
function axis({ low, high, zero }: Scale): HTMLElement {
  const at = low === high ? 0.5 : (zero ?? 0) / WIDTH;
  const middle = low === high ? low : 0;
  return h(
    'div',
    { class: 'hl-ridge-axis', 'aria-hidden': 'true' },
    low !== high && h('span', {}, numberText(low)),
    at > 0.2 &&
      at < 0.8 &&
      h('span', { class: 'hl-ridge-zero', style: `left:${100 * at}%` }, numberText(middle)),
    low !== high && h('span', {}, numberText(high))
  );
}

const SVG = 'http://www.w3.org/2000/svg';

function svg(tag: string, attributes: Record<string, string>): SVGElement {
  const element = document.createElementNS(SVG, tag);
  Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
  return element;
}

/** One histogram as steps, as high as its largest bin. */
function ridge(histogram: Histogram, scale: Scale): SVGElement {
  const { bins } = histogram;
  const low = scale.place(histogram.minimum ?? 0);
  const high = scale.place(histogram.maximum ?? 0);
  const middle = (low + high) / 2;
  const width = Math.max(high - low, THIN * (bins.length === 1 ? 1 : 2));
  const start = Math.max(0, Math.min(middle - width / 2, WIDTH - width));
  const most = Math.max(...bins, 1);
  const steps = bins.map((bin, index) => {
    const top = bin > 0 ? HEIGHT - Math.max((bin / most) * HEIGHT, 3) : HEIGHT;
    const from = start + (index * width) / bins.length;
    const to = start + ((index + 1) * width) / bins.length;
    return `L${from.toFixed(1)} ${top.toFixed(1)}L${to.toFixed(1)} ${top.toFixed(1)}`;
  });
  const picture = svg('svg', {
    class: 'hl-ridge',
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: 'none',
    'aria-hidden': 'true'
  });
  const { zero } = scale;
  if (zero !== null) {
    picture.append(svg('path', { class: 'hl-ridge-zero-line', d: `M${zero.toFixed(1)} 0V${HEIGHT}` }));
  }
  const d = `M${start.toFixed(1)} ${HEIGHT}${steps.join('')}L${(start + width).toFixed(1)} ${HEIGHT}Z`;
  picture.append(svg('path', { class: 'hl-ridge-shape', d }));
  return picture;
}
