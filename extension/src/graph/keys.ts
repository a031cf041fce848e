// Keys on the picture: arrows walk along the edges, others open and close boxes, zoom, trace and search.

import type { Picture } from './compose';
import type { Scene } from './scene';
import type { Step } from './walk';
import { step } from './walk';

/** What is drawn, what of it is selected, and the boxes that are open. */
export interface Shown {
  picture: Picture;
  scene: Scene;
  selected: string | null;
  open: ReadonlySet<string>;
}

/** What keys do. */
export interface KeyActions {
  /** Select a node or box, and bring it into view. */
  goTo: (id: string) => void;
  /** Open a closed box, close an open one. */
  toggle: (id: string) => void;
  pick: (id: string) => void;
  zoom: (factor: number) => void;
  fit: () => void;
  /** Show the paths to and from what is selected, or no longer. */
  trace: () => void;
  /** Move the focus to the search field. */
  search: () => void;
}

const STEPS: Record<string, Step> = {
  ArrowUp: 'up',
  ArrowDown: 'down',
  ArrowLeft: 'left',
  ArrowRight: 'right'
};

/** Do what a key means; false if it means nothing here. */
export function keyDone(event: KeyboardEvent, shown: Shown, actions: KeyActions): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey) {
    return false;
  }
  return walked(event.key, shown, actions) || viewed(event.key, actions);
}

function walked(key: string, { picture, scene, selected, open }: Shown, actions: KeyActions): boolean {
  const way = STEPS[key];
  if (selected === null || !picture.items.has(selected)) {
    const first = scene.layer('').members[0];
    if ((way || key === 'Enter' || key === 'Home') && first !== undefined) {
      actions.goTo(first);
      return true;
    }
    return false;
  }
  if (way) {
    const next = step(scene, picture, open, selected, way);
    if (next !== null) {
      actions.goTo(next);
    }
    return true;
  }
  switch (key) {
    case 'Home':
    case 'End': {
      const { members } = scene.layer(scene.parent.get(selected) ?? '');
      actions.goTo(members[key === 'Home' ? 0 : members.length - 1] ?? selected);
      return true;
    }
    case 'Enter':
    case ' ':
      if (scene.box(selected) && open.has(selected)) {
        actions.goTo(scene.layer(selected).members[0] ?? selected);
      } else if (scene.box(selected)) {
        actions.toggle(selected);
      } else {
        actions.pick(selected);
      }
      return true;
    case 'Escape':
    case 'Backspace': {
      const box = open.has(selected) ? selected : (scene.parent.get(selected) ?? '');
      if (box === '') {
        return false;
      }
      actions.toggle(box);
      return true;
    }
    default:
      return false;
  }
}

function viewed(key: string, actions: KeyActions): boolean {
  switch (key) {
    case '+':
    case '=':
      actions.zoom(1.25);
      return true;
    case '-':
      actions.zoom(1 / 1.25);
      return true;
    case 'f':
    case '0':
      actions.fit();
      return true;
    case 't':
      actions.trace();
      return true;
    case '/':
      actions.search();
      return true;
    default:
      return false;
  }
}
