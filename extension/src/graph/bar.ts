// The bar above a graph: programs, search, zoom, and what is known about the program.

import type { GraphProgram, GraphReply } from '../protocol/messages';
import { button, h, replace } from '../view/dom';

export interface GraphBarEvents {
  onProgram(id: string): void;
  onZoom(factor: number): void;
  onFit(): void;
  onPaths(): void;
  onText(): void;
  onCloseAll(): void;
  /** `way`: 0 while the user types, 1 to the next hit, -1 to the one before. */
  onSearch(text: string, way: -1 | 0 | 1): void;
  onSave(kind: 'svg' | 'png'): void;
}

/** Milliseconds that typing must rest before it is searched for. */
const REST = 80;

export class GraphBar {
  readonly element: HTMLElement;

  constructor(private readonly events: GraphBarEvents) {
    this.programs = h('select', {
      class: 'hl-input hl-programs',
      'aria-label': 'Program',
      onchange: () => events.onProgram(this.programs.value)
    });
    this.searchField = h('input', {
      class: 'hl-input',
      type: 'search',
      placeholder: 'Search the graph',
      'aria-label': 'Search the graph: label, operator, Block or parameter',
      oninput: () => this.onType(),
      onkeydown: event => this.onSearchKey(event as KeyboardEvent)
    });
    this.count = h('span', { class: 'hl-hits', role: 'status' });
    this.textButton = button('Text', () => events.onText(), {
      'aria-pressed': 'false',
      title: 'Show the graph as a program'
    });
    this.pathsButton = button('Paths', () => events.onPaths(), {
      'aria-pressed': 'false',
      title: 'Show all that feeds the selected node, and all that reads it (T)'
    });
    this.pictureButtons = [
      button('−', () => events.onZoom(1 / 1.25), { 'aria-label': 'Zoom out', title: 'Zoom out (-)' }),
      button('+', () => events.onZoom(1.25), {
        'aria-label': 'Zoom in',
        title: 'Zoom in (+, or Ctrl + wheel)'
      }),
      button('Fit', () => events.onFit(), { title: 'Fit the graph into the pane (F)' }),
      button('Close all', () => events.onCloseAll(), { title: 'Close every box' }),
      this.pathsButton,
      button('SVG', () => events.onSave('svg'), { title: 'Download the picture as SVG' }),
      button('PNG', () => events.onSave('png'), { title: 'Download the picture as PNG' })
    ];
    this.summary = h('span', { class: 'hl-summary' });
    this.reason = h('span', { class: 'hl-reason' });
    this.element = h(
      'div',
      { class: 'hl-graph-bar' },
      this.programs,
      h('span', { class: 'hl-search' }, this.searchField, this.count),
      h('div', { class: 'hl-zoom' }, ...this.pictureButtons, this.textButton),
      this.summary,
      this.reason
    );
    this.programs.hidden = true;
  }

  show(graph: GraphReply): void {
    const { programs } = graph;
    this.programs.hidden = programs.length === 0;
    replace(this.programs, ...programs.map(program => h('option', { value: program.id }, program.label)));
    this.programs.value = graph.program;
    const program = programs.find(candidate => candidate.id === graph.program);
    const compiled = program && program.seconds > 0 ? `compiled in ${secondsText(program.seconds)}` : '';
    const variants = graph.variants > 1 ? `${graph.variants} variants` : '';
    this.summary.textContent = [graph.summary, variants, compiled].filter(part => part).join(' · ');
    this.reason.textContent = program && program.reason !== graph.summary ? whyText(program) : '';
    this.programs.title = [program?.label, this.reason.textContent, compiled].filter(part => part).join('\n');
  }

  enable(what: { picture?: boolean; text?: boolean }): void {
    if (what.picture !== undefined) {
      const off = !what.picture;
      this.pictureButtons.forEach(element => (element.disabled = off));
      this.searchField.disabled = off;
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

  focusSearch(): void {
    this.searchField.focus();
    this.searchField.select();
  }

  private onType(): void {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.events.onSearch(this.searchField.value, 0), REST);
  }

  private onSearchKey(event: KeyboardEvent): void {
    if (event.key === 'Enter') {
      event.preventDefault();
      clearTimeout(this.resting);
      if (this.searchField.value !== this.searched) {
        this.searched = this.searchField.value;
        this.events.onSearch(this.searched, 0);
      }
      this.events.onSearch(this.searched, event.shiftKey ? -1 : 1);
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
