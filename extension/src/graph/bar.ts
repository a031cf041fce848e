// The bar above a graph: programs, search, a menu, zoom; and what is known about the program.

import type { GraphProgram, GraphReply } from '../protocol/messages';
import { button, h, replace } from '../view/dom';
import type { Hit } from './hit-list';
import { HitList } from './hit-list';
import { FIELDS } from './search';
import { Popover } from '../view/popover';
import { toolbar } from '../view/roving';
import { __ } from '../text';

export interface GraphBarEvents {
  onProgram: (id: string) => void;
  onZoom: (factor: number) => void;
  onFit: () => void;
  onPaths: () => void;
  onText: () => void;
  onCloseAll: () => void;
  /** Open all boxes to a depth; Infinity: all boxes. */
  onDepth: (depth: number) => void;
  /** `way`: 0 while the user types, 1 to the next hit, -1 to the one before. */
  onSearch: (text: string, way: -1 | 0 | 1) => void;
  /** Go to the hit of this number. */
  onHit: (index: number) => void;
  onSave: (kind: 'svg' | 'png') => void;
}

/** Milliseconds that typing must rest before it is searched for. */
const REST = 80;

const HELP = [
  __('Words, all of which must be there; regular expressions too: conv|pool, stage[34]'),
  __('In one field: %1 - op:conv shape:64', FIELDS.map(field => `${field}:`).join(' ')),
  __('Enter or ↓: next hit, Shift+Enter or ↑: the one before')
].join('\n');
const KEYS: Record<string, -1 | 1> = { ArrowDown: 1, ArrowUp: -1 };

export class GraphBar {
  readonly element: HTMLElement;
  /** The buttons of the zoom, over the picture. */
  readonly zoom: HTMLElement;
  /** The menu of the rarer actions, which opens over the graph. */
  readonly menu: Popover;
  /** The summary of the program: one line at the edge of the picture. */
  readonly caption: HTMLElement;

  constructor(private readonly events: GraphBarEvents) {
    this.programs = h('select', {
      class: 'hl-input hl-programs',
      'aria-label': __('Program'),
      onchange: () => events.onProgram(this.programs.value)
    });
    this.searchField = h('input', {
      class: 'hl-input',
      type: 'search',
      placeholder: __('Search the graph'),
      'aria-label': __('Search the graph: label, operator, Block or parameter'),
      title: HELP,
      'aria-controls': this.hitList.id,
      autocomplete: 'off',
      oninput: () => this.onType(),
      onfocus: () => this.hitList.open(),
      onblur: () => this.hitList.close(),
      onkeydown: event => this.onSearchKey(event as KeyboardEvent)
    });
    this.steps = [
      button('↑', () => this.step(-1), {
        class: 'hl-button hl-hit-step',
        'aria-label': __('Previous hit'),
        title: __('Previous hit (Shift+Enter)')
      }),
      button('↓', () => this.step(1), {
        class: 'hl-button hl-hit-step',
        'aria-label': __('Next hit'),
        title: __('Next hit (Enter)')
      })
    ];
    this.depths = h('select', {
      class: 'hl-input hl-depths',
      'aria-label': __('Open boxes to a depth'),
      title: __('Open boxes to a depth'),
      onchange: () => {
        const { value } = this.depths;
        this.depths.value = '';
        if (value !== '') {
          events.onDepth(Number(value));
        }
      }
    });
    this.count = h('span', { class: 'hl-hits', role: 'status' });
    this.textButton = button(__('Text'), () => events.onText(), {
      'aria-pressed': 'false',
      title: __('Show the graph as a program')
    });
    this.pathsButton = button(__('Paths'), () => events.onPaths(), {
      'aria-pressed': 'false',
      title: __('Show all that feeds the selected node, and all that reads it (T)')
    });
    const zoom = [
      button('−', () => events.onZoom(1 / 1.25), { 'aria-label': __('Zoom out'), title: __('Zoom out (-)') }),
      button('+', () => events.onZoom(1.25), {
        'aria-label': __('Zoom in'),
        title: __('Zoom in (+, or Ctrl + wheel)')
      }),
      button(__('Fit'), () => events.onFit(), { title: __('Fit the graph into the pane (F)') })
    ];
    const tools = [
      button(__('Close all'), () => events.onCloseAll(), { title: __('Close every box') }),
      this.pathsButton,
      button('SVG', () => events.onSave('svg'), { title: __('Download the picture as SVG') }),
      button('PNG', () => events.onSave('png'), { title: __('Download the picture as PNG') })
    ];
    this.pictureButtons = [...zoom, ...tools];
    this.summary = h('span', { class: 'hl-summary' });
    this.reason = h('span', { class: 'hl-reason' });
    this.caption = h('div', { class: 'hl-graph-caption' }, this.told, this.summary, this.reason);
    this.menu = new Popover(
      '⋯',
      __('More about the graph'),
      h('div', { class: 'hl-buttons' }, this.depths, ...tools, this.textButton)
    );
    this.element = h(
      'div',
      { class: 'hl-graph-bar' },
      this.programs,
      h(
        'span',
        { class: 'hl-search' },
        h('span', { class: 'hl-search-field' }, this.searchField, this.count),
        ...this.steps,
        this.hitList.element
      ),
      this.menu.button
    );
    toolbar(this.element, __('Graph'));
    this.zoom = h('div', { class: 'hl-zoom' }, ...zoom);
    toolbar(this.zoom, __('Zoom'));
    this.programs.hidden = true;
    this.setSteps(0);
  }

  /** The list of the hits. */
  get hits(): HTMLElement {
    return this.hitList.element;
  }

  /** More controls: before all others, behind the programs, and in the menu. */
  add(first: HTMLElement, second: HTMLElement, inMenu: HTMLElement): void {
    this.element.prepend(first);
    this.programs.after(second);
    this.menu.panel.append(inMenu);
  }

  show(graph: GraphReply): void {
    const { programs } = graph;
    this.programs.hidden = programs.length === 0;
    replace(this.programs, ...programs.map(program => h('option', { value: program.id }, program.label)));
    this.programs.value = graph.program;
    const program = programs.find(candidate => candidate.id === graph.program);
    const compiled = program && program.seconds > 0 ? __('compiled in %1', secondsText(program.seconds)) : '';
    const variants = graph.variants > 1 ? __('%1 variants', graph.variants) : '';
    this.summary.textContent = [graph.summary, variants, compiled].filter(part => part).join(' · ');
    this.reason.textContent = program && program.reason !== graph.summary ? whyText(program) : '';
    this.caption.title = [this.summary.textContent, this.reason.textContent].filter(part => part).join('\n');
    this.programs.title = [program?.label, this.reason.textContent, compiled].filter(part => part).join('\n');
  }

  enable(what: { picture?: boolean; text?: boolean }): void {
    if (what.picture !== undefined) {
      const off = !what.picture;
      this.pictureButtons.forEach(element => (element.disabled = off));
      this.searchField.disabled = off;
      this.depths.disabled = off;
    }
    if (what.text !== undefined) {
      this.textButton.disabled = !what.text;
    }
  }

  press(what: { paths?: boolean; text?: boolean }): void {
    if (what.paths !== undefined) {
      this.pathsButton.setAttribute('aria-pressed', String(what.paths));
    }
    if (what.text !== undefined) {
      this.textButton.setAttribute('aria-pressed', String(what.text));
    }
  }

  get searchText(): string {
    return this.searchField.value;
  }

  /** Show where a search stands: "3 of 12", or that nothing was found. */
  found(text: string): void {
    this.count.textContent = text;
  }

  /** List the hits; `count`: of all, where not all are listed; `problem`: what is wrong with what was typed. */
  list(hits: readonly Hit[], count: number, problem: string): void {
    this.hitList.show(hits, count, problem);
    this.setSteps(count);
    this.point(-1);
    if (this.searchField.ownerDocument.activeElement === this.searchField) {
      this.hitList.open();
    }
  }

  /** The hit that is selected, by its number. */
  point(index: number): void {
    const row = this.hitList.rowId(index);
    this.hitList.mark(index);
    if (row === null) {
      this.searchField.removeAttribute('aria-activedescendant');
    } else {
      this.searchField.setAttribute('aria-activedescendant', row);
    }
  }

  /** Say something about the picture, such as how many boxes are open now. */
  tell(text: string): void {
    this.told.textContent = text;
  }

  /** How many boxes there are to each depth; `all`: at every depth. */
  setDepths(boxes: readonly number[], all: number): void {
    this.depths.hidden = all === 0;
    const label = (count: number): string =>
      count === 1 ? __('1 box') : __('%1 boxes', count.toLocaleString('en'));
    replace(
      this.depths,
      h('option', { value: '' }, __('Open …')),
      ...boxes.map((count, i) => h('option', { value: i + 1 }, __('Depth %1: %2', i + 1, label(count)))),
      h('option', { value: 'Infinity' }, __('All: %1', label(all)))
    );
    this.depths.value = '';
  }

  private step(way: -1 | 1): void {
    this.searchNow();
    this.events.onSearch(this.searched, way);
  }

  private setSteps(count: number): void {
    this.steps.forEach(element => (element.disabled = count === 0));
  }

  focusSearch(): void {
    this.searchField.focus();
    this.searchField.select();
  }

  private onType(): void {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.searchNow(), REST);
  }

  /** Search at once for what was typed last. */
  private searchNow(): void {
    clearTimeout(this.resting);
    if (this.searchField.value !== this.searched) {
      this.searched = this.searchField.value;
      this.events.onSearch(this.searched, 0);
    }
  }

  private onSearchKey(event: KeyboardEvent): void {
    const way = KEYS[event.key];
    if (event.key === 'Enter' || (way !== undefined && this.searchField.value !== '')) {
      event.preventDefault();
      this.hitList.open();
      this.step(way ?? (event.shiftKey ? -1 : 1));
    } else if (event.key === 'Escape' && this.hitList.isOpen) {
      event.stopPropagation();
      event.preventDefault(); // the field would be emptied by the browser
      this.hitList.close();
    } else if (event.key === 'Escape' && this.searchField.value !== '') {
      event.stopPropagation();
      this.searchField.value = '';
      this.searched = '';
      this.events.onSearch('', 0);
    }
  }

  private readonly programs: HTMLSelectElement;
  private readonly searchField: HTMLInputElement;
  private readonly count: HTMLElement;
  private readonly hitList = new HitList(index => this.events.onHit(index));
  private readonly steps: readonly HTMLButtonElement[];
  private readonly depths: HTMLSelectElement;
  private readonly told = h('span', { class: 'hl-graph-told', role: 'status' });
  private readonly textButton: HTMLButtonElement;
  private readonly pathsButton: HTMLButtonElement;
  private readonly pictureButtons: HTMLButtonElement[];
  private readonly summary: HTMLElement;
  private readonly reason: HTMLElement;
  private searched = '';
  private resting: ReturnType<typeof setTimeout> | undefined;
}

function secondsText(seconds: number): string {
  return `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`;
}

/** The program's engine, and why it is this one. */
function whyText({ engine, reason }: GraphProgram): string {
  return reason.startsWith(engine) ? reason : [engine, reason].filter(part => part).join(': ');
}
