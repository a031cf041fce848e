// Long work of the running cell, over the view.

import { mount } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WorkRows } from '../src/view/work-rows';

test('a row names the work, its part, its seconds and how much is done, and goes at the end', () => {
  const rows = new WorkRows();
  mount(rows.element);
  assert.ok(rows.element.hidden);
  const work = {
    id: 1,
    title: 'importing <b>',
    part: 'tracing',
    seconds: 33,
    done: 2,
    total: 6,
    unit: 'stages'
  };
  rows.show({ works: [work] });
  assert.ok(!rows.element.hidden);
  assert.equal(rows.element.querySelector('strong')?.textContent, 'importing <b>');
  assert.match(rows.element.textContent ?? '', /tracing.*2 of 6 stages.*33 s/);
  const bar = rows.element.querySelector<HTMLElement>('[role=progressbar]');
  assert.deepEqual(
    [bar?.getAttribute('aria-valuenow'), bar?.style.getPropertyValue('--hl-part')],
    ['2', '0.3333']
  );
  rows.show({ works: [{ ...work, total: 0 }] });
  assert.equal(rows.element.querySelector('[role=progressbar]')?.hasAttribute('aria-valuenow'), false);
  rows.show({ works: [] });
  assert.ok(rows.element.hidden);
  rows.show({ works: [work] });
  rows.show(null);
  assert.ok(rows.element.hidden);
});
