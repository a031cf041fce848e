// The numbers, histogram and picture of one array.

import type { ValuesReply } from '../protocol/messages';
import { h } from './dom';
import { __ } from '../text';

const HEIGHT = 44;

export function numbersOf(reply: ValuesReply): HTMLElement {
  if (reply.missing !== '') {
    return h('p', { class: 'hl-empty' }, reply.missing);
  }
  return h(
    'section',
    { class: 'hl-numbers', 'aria-label': __('Numbers of %1', reply.title) },
    h(
      'p',
      { class: 'hl-title' },
      h('bdi', {}, reply.title),
      h('span', { class: 'hl-row-class' }, reply.type)
    ),
    h(
      'div',
      { class: 'hl-numbers-parts' },
      h(
        'table',
        { class: 'hl-facts' },
        h(
          'tbody',
          {},
          ...reply.facts.map(({ name, text }) =>
            h('tr', {}, h('th', { scope: 'row' }, name), h('td', {}, text))
          )
        )
      ),
      reply.bars.length > 1 && histogram(reply),
      reply.picture.startsWith('data:image/png;base64,') &&
        h(
          'figure',
          {},
          h('img', { src: reply.picture, alt: __('heat map of the values: %1', reply.caption) }),
          h('figcaption', {}, reply.caption)
        )
    ),
    reply.text !== '' &&
      h(
        'details',
        {},
        h('summary', {}, __('values')),
        h('pre', { tabindex: 0, 'aria-label': __('Values of %1', reply.title) }, reply.text)
      )
  );
}

function histogram({ bars, low, high }: ValuesReply): HTMLElement {
  const most = Math.max(...bars);
  const heights = bars.map(bar => (bar > 0 ? Math.max(Math.round((bar / most) * HEIGHT), 1) : 0));
  return h(
    'figure',
    {},
    h(
      'div',
      {
        class: 'hl-histogram',
        role: 'img',
        'aria-label': __('histogram of the values from %1 to %2', low, high)
      },
      ...heights.map(height => h('span', { style: `height:${height}px` }))
    ),
    h('figcaption', {}, h('span', {}, low), h('span', {}, high))
  );
}
