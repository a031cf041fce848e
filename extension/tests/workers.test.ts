// The workers in the panel: rows, problems, and the curves of all ranks in one chart.

import { mount, press } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Curve, WorkerRow, WorkersReply } from '../src/protocol/messages';
import { WorkersView } from '../src/view/workers';

function curve(name: string, means: number[]): Curve {
  const steps = means.map((_, i) => i + 1);
  return {
    ...{ name, unit: '', count: means.length, starts: steps, steps, counts: means.map(() => 1) },
    ...{ means, lows: means, highs: means, firsts: means, lasts: means, last: 1, last_step: means.length },
    ...{ bad: [], bad_count: 0, bad_text: '', latest: '1', note: '', text: `${name} in words` }
  };
}

function reply(count: number, changes: Partial<WorkerRow> = {}): WorkersReply {
  const ranks = Array.from({ length: count }, (_, rank) => rank);
  return {
    headline: `${count} workers`,
    note: '',
    workers: ranks.map(rank => ({
      ...{ rank, host: 'host', process: 10 + rank, device: 'cpu(0)', state: 'busy', step: 3 },
      ...{ loss: '0.5', rate: '1,000', memory: '300 MiB', problem: '' },
      ...changes
    })),
    curves: ranks.map(rank => ({ rank, curves: [curve('loss', [3 + rank, 2 + rank, 1 + rank])] }))
  };
}

test('a row for each worker, and one chart with a line for each rank', () => {
  const view = new WorkersView();
  mount(view.element);
  assert.equal(view.element.hidden, true);
  view.show(reply(2));
  assert.equal(view.element.hidden, false);
  const rows = [...view.element.querySelectorAll('tbody tr')].map(row =>
    [...row.children].map(cell => cell.textContent).join('|')
  );
  assert.deepEqual(rows, [
    '0|busy|3|0.5|1,000|300 MiB|cpu(0)|host|10',
    '1|busy|3|0.5|1,000|300 MiB|cpu(0)|host|11'
  ]);
  const charts = view.element.querySelectorAll('svg[role=img]');
  assert.equal(charts.length, 1);
  assert.equal(charts[0]?.querySelectorAll('path.hl-line').length, 2);
  assert.match(charts[0].getAttribute('aria-label') ?? '', /^loss: rank 0, loss in words; rank 1, /);
  view.show(reply(2, { problem: 'ValueError: x', state: 'failed' }));
  assert.equal(view.element.querySelector('svg[role=img]'), charts[0]);
  assert.equal(view.element.querySelectorAll('.hl-worker-problems li').length, 2);
  view.show({ headline: '', note: '', workers: [], curves: [] });
  assert.equal(view.element.hidden, true);
});

test('of many ranks one is read out, with a colour of its own', () => {
  const view = new WorkersView();
  mount(view.element);
  view.show(reply(8));
  const chart = view.element.querySelector<SVGElement>('svg[role=img]');
  assert.ok(chart);
  const classes = [...chart.querySelectorAll('path.hl-line')].map(line => line.getAttribute('class'));
  assert.equal(new Set(classes).size, 8);
  press(chart, 'End');
  const readout = view.element.querySelector('.hl-chart-readout');
  assert.equal(readout?.textContent, 'step 3: rank 0 1');
  press(chart, 'ArrowDown');
  assert.equal(readout.textContent, 'step 3: rank 1 2');
  press(chart, 'ArrowUp');
  press(chart, 'ArrowUp');
  assert.equal(readout.textContent, 'step 3: rank 7 8');
});
