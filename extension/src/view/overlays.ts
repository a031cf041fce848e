// Overlays of one model's graphs: asks for what is measured, and shows it on the picture, in the bar and in the details.

import type { Measured } from '../graph/measured';
import { marked, measuredOf } from '../graph/measured';
import type { Requester } from '../protocol/channel';
import { errorText } from '../protocol/channel';
import type { GraphBox, GraphReply, OverlayItem, OverlayReply } from '../protocol/messages';
import type { OverlayKind } from './overlay-bar';
import { OverlayBar } from './overlay-bar';
import { __ } from '../text';

/** Milliseconds after which the kernel is asked again whether a call came whose inputs it was to keep. */
const LOOK = 1500;

/** The picture that overlays are shown on. */
export interface MeasuredPicture {
  measure: (measured: Measured | null) => Promise<void>;
  nameOf: (id: string) => string;
  select: (id: string) => Promise<void>;
}

export class Overlays {
  /** `onBlocks`: gets what is measured of Blocks, by path. */
  constructor(
    private readonly picture: MeasuredPicture,
    private readonly onBlocks: (items: ReadonlyMap<string, OverlayItem>) => void = () => undefined
  ) {
    this.bar = new OverlayBar({
      onKind: () => void this.ask(),
      onMarked: id => void picture.select(id),
      onWatch: isOn => void this.watch(isOn),
      onKeep: isOn => void this.keep(isOn)
    });
    this.showBar(false);
  }

  /** What was measured in words, over the picture. */
  get element(): HTMLElement {
    return this.bar.element;
  }

  /** The choice of the overlay. */
  get choice(): HTMLElement {
    return this.bar.choice;
  }

  /** The switch of the watch for NaN. */
  get watchSwitch(): HTMLElement {
    return this.bar.watchLabel;
  }

  /** Whether what is said over the picture would cover much of it. */
  set isSmall(isSmall: boolean) {
    this.bar.setSmall(isSmall);
  }

  connect(requester: Requester | null): void {
    this.requester = requester;
  }

  /** A graph of a model is drawn. What was measured of the same program stays. */
  show(model: string, graph: GraphReply): void {
    const key = `${model}|${graph.path}|${graph.program}`;
    this.showBar(this.requester !== null);
    this.bar.setEmpty(graph.nodes.length === 0);
    if (key === this.key || !this.requester) {
      return;
    }
    const isOther = model !== this.model;
    this.boxes = graph.boxes;
    Object.assign(this, { key, model, path: graph.path, program: graph.program });
    void this.ask();
    if (isOther) {
      void this.watch();
      void this.keep();
    }
  }

  /** Mark nodes of the shown graph, until an overlay is chosen or another graph is shown. */
  async mark(items: readonly OverlayItem[]): Promise<void> {
    this.asked = '';
    await this.picture.measure(marked(items));
    const [first] = items;
    if (first) {
      await this.picture.select(first.id);
    }
  }

  /** Show an overlay of the graph that is drawn; the reply, null where there is none. */
  async choose(kind: OverlayKind): Promise<OverlayReply | null> {
    this.bar.choose(kind);
    await this.ask();
    return this.reply;
  }

  /** Called with what was measured of the graph that is drawn. */
  onMeasured: (reply: OverlayReply) => void = () => undefined;

  /** What is measured of a node or box, in words. */
  textOf(id: string): string {
    return this.reply?.items.find(item => item.id === id)?.text ?? '';
  }

  private showBar(shown: boolean): void {
    for (const part of [this.bar.element, this.bar.choice, this.bar.watchLabel]) {
      part.hidden = !shown;
    }
  }

  private async ask(): Promise<void> {
    const { requester, key } = this;
    const { kind, inputs } = this.bar;
    this.present(null);
    this.bar.clear();
    if (!requester || kind === null) {
      return;
    }
    const asked = `${key}|${kind}|${inputs}`;
    this.asked = asked;
    this.bar.say(kind === 'time' || kind === 'values' ? __('Measuring …') : '');
    try {
      const { model, path, program } = this;
      const reply = await requester.request('overlay', { model, path, program, kind, data: inputs });
      if (asked === this.asked && kind === this.bar.kind) {
        this.present(reply);
        this.bar.show(reply, id => this.picture.nameOf(id));
        this.onMeasured(reply);
      }
    } catch (error) {
      if (asked === this.asked && kind === this.bar.kind) {
        this.bar.say(errorText(error), true);
      }
    }
  }

  /** Show what is measured on the picture and in the tree. Of a Block that is called twice, the larger value counts. */
  private present(reply: OverlayReply | null): void {
    this.reply = reply;
    const boxes = new Set(this.boxes.map(box => box.id));
    void this.picture.measure(reply && measuredOf(reply, id => boxes.has(id)));
    const items = new Map(reply?.items.map(item => [item.id, item]));
    const blocks = new Map<string, OverlayItem>();
    for (const { id, block } of this.boxes) {
      const item = items.get(id);
      if (item && block !== null && item.share >= (blocks.get(block)?.share ?? 0)) {
        blocks.set(block, item);
      }
    }
    this.onBlocks(blocks);
  }

  /** Switch the watch for NaN; without `isOn`, ask whether it is on. */
  private async watch(isOn?: boolean): Promise<void> {
    const { requester, model } = this;
    try {
      const reply = await requester?.request('watch_nan', {
        model,
        ...(isOn !== undefined && { on: isOn })
      });
      if (model === this.model) {
        this.bar.setWatch(reply?.on ?? false);
      }
    } catch (error) {
      this.bar.setWatch(false);
      if (isOn !== undefined) {
        this.bar.say(errorText(error), true);
      }
    }
  }

  /** Keep the inputs of the model's next calls, or no longer; without `isOn`, ask what is kept. */
  private async keep(isOn?: boolean): Promise<void> {
    const { requester, model } = this;
    clearTimeout(this.looking);
    try {
      const reply = await requester?.request('keep_inputs', {
        model,
        ...(isOn !== undefined && { on: isOn })
      });
      if (model !== this.model || !reply) {
        return;
      }
      const isNew = reply.calls.length > this.kept;
      this.kept = reply.calls.length;
      this.bar.setKept(reply);
      if (
        isOn === false ? this.reply?.measured_on === 'kept' : isNew && this.reply?.measured_on === 'random'
      ) {
        void this.ask();
      }
      if (reply.on && reply.calls.length === 0) {
        this.looking = setTimeout(() => void this.keep(), LOOK);
      }
    } catch (error) {
      this.bar.setKept({ on: false, calls: [] });
      if (isOn !== undefined) {
        this.bar.say(errorText(error), true);
      }
    }
  }

  private readonly bar: OverlayBar;
  private kept = 0;
  private looking: ReturnType<typeof setTimeout> | undefined;
  private requester: Requester | null = null;
  private model = '';
  private path = '';
  private program = '';
  private key = '';
  private asked = '';
  private reply: OverlayReply | null = null;
  private boxes: readonly GraphBox[] = [];
}
