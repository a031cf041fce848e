// The drawer's tab of findings: findings of the model, and below them others in the cells of the notebook.

import { h } from './dom';
import type { ListedBlock, ListedFinding } from './findings-list';
import { FindingsList } from './findings-list';
import { __ } from '../text';

export class FindingsPart {
  readonly element: HTMLElement;

  /** `blockOf`: the Block that a finding names, null if the model has none of that name. */
  constructor(blockOf: (name: string) => ListedBlock | null) {
    this.own.blockOf = diagnostic => blockOf(diagnostic.block);
    this.othersSection = h(
      'section',
      { class: 'hl-others' },
      h('p', { class: 'hl-title' }, __('Also in the cells of this notebook')),
      this.others.element
    );
    this.othersSection.hidden = true;
    this.element = h('div', {}, this.own.element, this.othersSection);
    this.own.show([], __('No findings.'));
  }

  show(findings: readonly ListedFinding[], others: readonly ListedFinding[]): void {
    this.own.show(findings, __('No findings: all of this code can become part of a graph.'));
    this.others.show(others, __('None.'));
    this.othersSection.hidden = others.length === 0;
  }

  private readonly own = new FindingsList();
  private readonly others = new FindingsList();
  private readonly othersSection: HTMLElement;
}
