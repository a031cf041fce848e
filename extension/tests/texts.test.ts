// A page in a language that marks its texts: what is not marked was not translated.

import { mount, settle } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { __, _n, setTexts } from '../src/text';
import { TableKernel, diagnostic, graph, model, network, noLayout, noPanes } from './records';

const filled = (text: string, values: unknown[]): string =>
  text.replace(/%(\d)/g, (_, place: string) => String(values[Number(place) - 1])).replace(/%%/g, '%');

/** ⟦text⟧, as a language pack would have it. */
const marked = {
  __: (text: string, ...values: unknown[]): string => `⟦${filled(text, values)}⟧`,
  _n: (one: string, many: string, count: number, ...values: unknown[]): string =>
    `⟦${filled(count === 1 ? one : many, [count, ...values])}⟧`
};

/** What the model and the kernel name; and names that are the same in every language. */
const NAMES =
  /^(reads the shape of|MAC|FLOP|b?float\d+|4 operators|ready|net: Net|netNet.*|onnxruntime.*|traced|Net|net|Dense|Sequential|HybridSequential|SVG|PNG|Hybrid Lab|[\w.]+\(.*|\(.*\)|HL\d+|float32|[-–·…×⋯%\d\s.,:/k]*|net\.\w+.*|[\w./]+\.hlab)$/;

function untranslated(root: Element, names: ReadonlySet<string>): string[] {
  const found: string[] = [];
  const look = (text: string | null, where: string): void => {
    const rest = (text ?? '').replace(/⟦[^⟦⟧]*(⟦[^⟦⟧]*⟧[^⟦⟧]*)*⟧/g, '').trim();
    if (/[A-Za-z]{2}/.test(rest) && !NAMES.test(rest) && !names.has(rest)) {
      found.push(`${where}: ${text}`);
    }
  };
  for (const element of [root, ...root.querySelectorAll('*')]) {
    if (element.closest('svg g, .hl-graph-text span, .hl-markdown, .hl-finding-text, option[value="0"]')) {
      continue; // operators, which have the names of the model, and the program's name
    }
    for (const name of ['aria-label', 'title', 'placeholder', 'data-empty']) {
      look(element.getAttribute(name), `${element.tagName} ${name}`);
    }
    for (const child of element.childNodes) {
      if (child.nodeType === 3 && !['STYLE', 'CODE', 'PRE'].includes(element.tagName)) {
        look(child.textContent, element.tagName);
      }
    }
  }
  return found;
}

test('texts have arguments, numbers and percent signs, in English where there is no language', () => {
  assert.equal(__('%1 was not saved.', 'net'), 'net was not saved.');
  assert.equal(__('%1 % of %2', 5, '%1'), '5 % of %1');
  assert.equal(__('%1%% of the whole', 5), '5% of the whole');
  assert.deepEqual([_n('%1 graph', '%1 graphs', 1), _n('%1 graph', '%1 graphs', 0)], ['1 graph', '0 graphs']);
});

test('numbers that texts count are grouped', () => {
  assert.equal(_n('%1 Block', '%1 Blocks', 999), '999 Blocks');
  assert.equal(_n('%1 Block', '%1 Blocks', 10001), '10,001 Blocks');
  assert.equal(_n('%1 of %2', '%1 of %2', 10001, '10001'), '10,001 of 10001');
});

test('every text of the panel is translated', async () => {
  setTexts(marked);
  const { PanelView } = await import('../src/view/panel-view');
  const panel = new PanelView({
    layout: noLayout,
    panes: noPanes,
    onLocation: () => undefined,
    onConnect: () => undefined,
    onTab: () => undefined
  });
  mount(panel.element);
  const requester = new TableKernel({
    tree: () => ({ model: model(), root: network() }),
    graph: () => graph(),
    findings: () => ({ findings: [diagnostic()] })
  });
  const state = {
    key: 'a.ipynb|1',
    text: '⟦ready⟧',
    kind: 'ready' as const,
    requester,
    hello: null,
    curves: null
  };
  const saving = { models: [model()], busy: false, notes: [], saving: {}, folder: '' };
  panel.update({ ...state, models: saving });
  await settle(50);
  const names = new Set(Object.values(diagnostic()).filter(value => typeof value === 'string'));
  const walk = (node: ReturnType<typeof network>): void => {
    [node.path, node.name, node.class].forEach(name => names.add(name));
    node.children.forEach(walk);
  };
  walk(network());
  assert.deepEqual(untranslated(panel.element, names), []);
  assert.match(panel.element.textContent ?? '', /⟦Save⟧/);
});
