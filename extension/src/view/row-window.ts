// Rows of a list: all of them where they are few; of many only those in view, and the one that has to stay.
// JupyterLab's WindowedList is not used: `mx.view` and shared pages show these lists too, where there is no JupyterLab.

/** Up to so many rows are all there, and may be of any height. */
const MANY = 200;
/** Height of each of many rows, in pixels; also in the style sheet. */
const HEIGHT = 24;
/** Rows above and below those in view. */
const MARGIN = 12;
/** Pixels of a list that is not laid out yet. */
const UNKNOWN = 480;

export class RowWindow {
  /** `list` scrolls `body`, which holds the rows, below a head if there is one; `make`: the element of a row. */
  constructor(
    private readonly list: HTMLElement,
    private readonly body: HTMLElement,
    private readonly make: (index: number) => HTMLElement
  ) {
    list.addEventListener('scroll', () => {
      if (this.isPartial) {
        this.fill();
      }
    });
  }

  /** Show other rows, or the same ones made anew. `kept`: the row that stays when it is scrolled away. */
  show(count: number, kept: number): void {
    const top = this.list.scrollTop;
    this.count = count;
    this.kept = kept;
    this.elements.clear();
    this.body.replaceChildren();
    this.body.classList.toggle('hl-tree-many', this.isPartial);
    this.body.style.height = this.isPartial ? `${count * HEIGHT}px` : '';
    if (this.isPartial) {
      this.list.scrollTop = top;
    }
    this.fill();
  }

  /** The element of a row, which comes into view for that. */
  reveal(index: number): HTMLElement | undefined {
    if (this.isPartial) {
      const { scrollTop } = this.list;
      const lowest = (index + 1) * HEIGHT - this.viewHeight;
      this.list.scrollTop = Math.min(Math.max(scrollTop, lowest), index * HEIGHT);
      this.fill();
    }
    const element = this.elements.get(index);
    element?.scrollIntoView({ block: 'nearest' });
    return element;
  }

  /** Keep another row; the one that was kept goes when it is not in view. */
  keep(index: number): void {
    this.kept = index;
    if (this.isPartial) {
      this.fill();
    }
  }

  private fill(): void {
    const first = this.isPartial ? Math.floor(this.list.scrollTop / HEIGHT) - MARGIN : 0;
    const last = this.isPartial ? first + Math.ceil(this.viewHeight / HEIGHT) + 2 * MARGIN : this.count - 1;
    const isWanted = (index: number): boolean => (index >= first && index <= last) || index === this.kept;
    for (const [index, element] of this.elements) {
      if (!isWanted(index)) {
        element.remove();
        this.elements.delete(index);
      }
    }
    for (let index = Math.max(first, 0); index <= Math.min(last, this.count - 1); index++) {
      this.add(index);
    }
    if (this.kept >= 0 && this.kept < this.count) {
      this.add(this.kept);
    }
  }

  private add(index: number): void {
    if (!this.elements.has(index)) {
      const element = this.make(index);
      if (this.isPartial) {
        element.style.top = `${index * HEIGHT}px`;
      }
      const later = Math.min(...[...this.elements.keys()].filter(other => other > index));
      this.elements.set(index, element);
      this.body.insertBefore(element, this.elements.get(later) ?? null);
    }
  }

  private get isPartial(): boolean {
    return this.count > MANY;
  }

  private get viewHeight(): number {
    return this.list.clientHeight - this.body.offsetTop || UNKNOWN;
  }

  private readonly elements = new Map<number, HTMLElement>();
  private count = 0;
  private kept = -1;
}
