// The field with the name of a model's file: completes folders and archives below the kernel's folder, and says which
// folder that is.

import type { Requester } from '../protocol/channel';
import type { FolderReply } from '../protocol/messages';
import { h, replace, uniqueId } from './dom';
import { __ } from '../text';

export class FilePart {
  readonly element: HTMLElement;

  constructor(onName: (name: string) => void) {
    const listId = uniqueId('archives');
    this.names = h('datalist', { id: listId });
    this.input = h('input', {
      class: 'hl-input',
      type: 'text',
      list: listId,
      spellcheck: 'false',
      'aria-label': __('File of this model'),
      title: __('A name such as net.hlab, or with folders such as runs/a/net.hlab, which are created'),
      oninput: () => {
        onName(this.input.value.trim());
        void this.complete();
      },
      onfocus: () => void this.complete()
    });
    this.where = h('p', { class: 'hl-summary hl-where' });
    this.element = h(
      'div',
      { class: 'hl-file-part' },
      h('label', { class: 'hl-file' }, h('span', {}, __('File')), this.input, this.names),
      this.where
    );
  }

  /** Show a model's file. What is being typed stays, unless it is of another model. */
  show(file: string, proposed: string, isOther: boolean): void {
    if (document.activeElement !== this.input || isOther) {
      this.input.value = file;
    }
    this.input.placeholder = proposed;
  }

  /** Where the kernel's files go. */
  setPlace(place: FolderReply | null): void {
    const key = JSON.stringify(place && [place.folder, place.beside]);
    if (key === this.placeKey) {
      return;
    }
    this.placeKey = key;
    this.where.hidden = place === null;
    this.where.classList.toggle('hl-problem', place !== null && !place.beside);
    replace(
      this.where,
      place !== null && h('span', {}, __('in '), h('code', {}, place.folder), __(' on %1', place.host)),
      place !== null &&
        !place.beside &&
        '. The notebook is not in this folder: the kernel keeps its folder until it is shut down.'
    );
  }

  enable(requester: Requester | null, enabled: boolean): void {
    if (requester !== this.requester) {
      this.requester = requester;
      this.listed = null;
    }
    this.input.disabled = !enabled;
  }

  /** Propose what is in the folder that the name has so far. */
  private async complete(): Promise<void> {
    const path = /^(.*)\//.exec(this.input.value.trim())?.[1] ?? '';
    if (path === this.listed || !this.requester) {
      return;
    }
    this.listed = path;
    try {
      const reply = await this.requester.request('folder', { notebook: '', path }, { timeout: 5000 });
      if (path === this.listed) {
        const start = path ? `${path}/` : '';
        const names = [...reply.folders.map(name => `${name}/`), ...reply.archives];
        replace(this.names, ...names.map(name => h('option', { value: start + name })));
      }
    } catch {
      replace(this.names); // the list only proposes names; the field works without it
    }
    setTimeout(() => (this.listed = null), FRESH);
  }

  private readonly input: HTMLInputElement;
  private readonly names: HTMLElement;
  private readonly where: HTMLElement;
  private requester: Requester | null = null;
  /** The folder whose names are proposed. */
  private listed: string | null = null;
  private placeKey = '';
}

/** Milliseconds for which the list of a folder is taken as it is. */
const FRESH = 3000;
