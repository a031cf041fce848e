// Toolbars by the keyboard.

import { mount } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { toolbar } from '../src/view/roving';

const BUTTONS = ['save', 'reload', 'undo'] as const;

type Controls = Record<(typeof BUTTONS)[number], HTMLButtonElement> & { field: HTMLInputElement };

/** A toolbar whose buttons work as those of the panel: disabled while something is done. */
function made(): Controls {
  globalThis.MutationObserver = (window as unknown as typeof globalThis).MutationObserver;
  const bar = document.createElement('div');
  const all = BUTTONS.map(name => Object.assign(document.createElement('button'), { textContent: name }));
  bar.append(...all);
  const field = document.createElement('input');
  const page = document.createElement('div');
  page.append(bar, field);
  mount(page);
  toolbar(bar, 'Tools');
  return { ...Object.fromEntries(BUTTONS.map((name, i) => [name, all[i]])), field } as unknown as Controls;
}

const focused = (): string => document.activeElement?.textContent || document.activeElement?.tagName || '';

/** As browsers do it: a disabled element has no focus, with an event or without one. */
async function disable(buttons: HTMLButtonElement[], withEvent: boolean): Promise<void> {
  const active = document.activeElement as HTMLElement;
  buttons.forEach(each => (each.disabled = true));
  if (!withEvent) {
    await settled();
  }
  active.blur();
  await settled();
}

const settled = (): Promise<void> => new Promise(resolve => setTimeout(resolve, 0));

for (const withEvent of [true, false]) {
  test(`the button of an action has the focus again when the action ends (event first: ${withEvent})`, async () => {
    const { save, reload, undo } = made();
    save.focus();
    await disable([save, reload, undo], withEvent);
    assert.equal(document.activeElement, document.body);
    [save, reload, undo].forEach(each => (each.disabled = false));
    await settled();
    assert.equal(focused(), 'save');
  });
}

test('a button with nothing more to do gives the focus to another one', async () => {
  const { save, reload, undo } = made();
  undo.focus();
  await disable([save, reload, undo], true);
  [save, reload].forEach(each => (each.disabled = false));
  await settled();
  assert.equal(focused(), 'save');
});

test('a user who went elsewhere meanwhile stays there', async () => {
  const { save, reload, field } = made();
  save.focus();
  await disable([save, reload], true);
  field.focus();
  [save, reload].forEach(each => (each.disabled = false));
  await settled();
  assert.equal(document.activeElement, field);
});

test('a toolbar that did not have the focus does not take it', async () => {
  const { save, reload } = made();
  await disable([save, reload], true);
  save.disabled = false;
  await settled();
  assert.equal(document.activeElement, document.body);
  save.focus();
  save.blur();
  await disable([save], true);
  save.disabled = false;
  await settled();
  assert.equal(document.activeElement, document.body);
});
