// A page with nothing but the graph viewer, for measurements: the benchmark hands it replies of the protocol.

import base from '../../extension/style/base.css';
import graphStyles from '../../extension/style/graph.css';
import { GraphPane } from '../../extension/src/graph/graph-pane';
import { measuredOf } from '../../extension/src/graph/measured';
import { workerLayout } from '../../extension/src/graph/worker';
import { graphReply, overlayReply } from '../../extension/src/protocol/messages';
import { h } from '../../extension/src/view/dom';

const frame = (): Promise<number> => new Promise(resolve => requestAnimationFrame(resolve));

const pane = new GraphPane(
  workerLayout(async () => (await fetch('graphviz.js')).text()),
  { onNode: () => undefined, onBox: () => undefined, onProgram: () => undefined }
);

let boxes: string[] = [];

const lab = {
  canvas: pane.canvas,
  boxes: (): string[] => boxes,
  isOpen: (id: string): boolean => pane.isOpen(id),
  /** Milliseconds from the reply's text to the picture on the page. */
  async show(address: string): Promise<number> {
    const text = await (await fetch(address)).text();
    pane.message('');
    const start = performance.now();
    const reply = graphReply(JSON.parse(text), 'graph');
    await pane.show(reply);
    await frame();
    boxes = reply.boxes.map(box => box.id);
    return performance.now() - start;
  },
  /** Milliseconds from the text of an overlay to the picture that shows it. */
  async measure(address: string): Promise<number> {
    const text = await (await fetch(address)).text();
    await pane.measure(null);
    const start = performance.now();
    const reply = overlayReply(JSON.parse(text), 'overlay');
    const inside = new Set(boxes);
    await pane.measure(measuredOf(reply, id => inside.has(id)));
    await frame();
    return performance.now() - start;
  },
  /** Milliseconds from the double-click to the opened box on the page. */
  async open(id: string): Promise<number> {
    const start = performance.now();
    await pane.toggle(id);
    await frame();
    return performance.now() - start;
  },
  /** Frames a second while the camera moves. */
  async frames(move: (i: number) => void, count: number): Promise<number> {
    await frame();
    const start = await frame();
    let last = start;
    for (let i = 0; i < count; i++) {
      move(i);
      last = await frame();
    }
    return (1000 * count) / (last - start);
  }
};
(window as unknown as { lab: typeof lab }).lab = lab;

document.body.append(
  h('style', {}, base, graphStyles, '.hl-canvas { height: 780px !important; }'),
  h('div', { class: 'hl-root' }, pane.element)
);
pane.warm();
