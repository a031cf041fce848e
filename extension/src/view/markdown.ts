// The Markdown of rule texts (paragraphs, code, bold, lists, headings; indented code may follow a line at once) as DOM.
// A library would return a string of HTML for a page; here text only ever becomes text nodes.

import { h } from './dom';

const INDENT = /^( {4}|\t)/;
const HEADING = /^#{1,6}\s+/;
const ITEM = /^\s*[-*]\s+/;
const NO_PARAGRAPH = /^( {4}|\t|\s*(```|~~~|#{1,6}\s|[-*]\s|$))/;

/** Render `source` into a new element. Anything that is not understood stays plain text; links show their text only. */
export function renderMarkdown(source: string): HTMLElement {
  const root = h('div', { class: 'hl-markdown' });
  const lines = source.replace(/\r\n?/g, '\n').split('\n');
  let next = 0;
  const take = (wanted: (line: string) => boolean): string[] => {
    const length = lines.slice(next).findIndex(line => !wanted(line));
    const taken = lines.slice(next, length < 0 ? undefined : next + length);
    next += taken.length;
    return taken;
  };
  for (let line = lines[0]; line !== undefined; line = lines[next]) {
    const fence = /^\s*(```+|~~~+)/.exec(line)?.[1];
    if (fence !== undefined) {
      next++;
      const code = take(inner => !inner.trim().startsWith(fence));
      next++;
      root.append(codeBlock(code.join('\n')));
    } else if (line.trim() === '') {
      next++;
    } else if (INDENT.test(line)) {
      const code = take(inner => INDENT.test(inner) || inner.trim() === '');
      root.append(
        codeBlock(
          code
            .map(inner => inner.replace(INDENT, ''))
            .join('\n')
            .trimEnd()
        )
      );
    } else if (HEADING.test(line)) {
      next++;
      root.append(h('p', { class: 'hl-markdown-heading' }, ...inline(line.replace(HEADING, ''))));
    } else if (ITEM.test(line)) {
      const items = take(inner => ITEM.test(inner));
      root.append(h('ul', {}, ...items.map(item => h('li', {}, ...inline(item.replace(ITEM, ''))))));
    } else {
      next++;
      const paragraph = [line, ...take(inner => !NO_PARAGRAPH.test(inner))];
      root.append(h('p', {}, ...inline(paragraph.map(part => part.trim()).join(' '))));
    }
  }
  return root;
}

function codeBlock(code: string): HTMLElement {
  return h('pre', {}, h('code', {}, code));
}

/** Render one line: code, bold, links as their text. */
export function inline(source: string): (Node | string)[] {
  const pieces: (Node | string)[] = [];
  const pattern = /(`+)(.+?)\1|\*\*(.+?)\*\*|\[([^\]]+)\]\([^)]*\)/g;
  let end = 0;
  for (const match of source.matchAll(pattern)) {
    pieces.push(source.slice(end, match.index));
    const [whole, , code, bold, link] = match;
    if (code !== undefined) {
      pieces.push(h('code', {}, code.trim()));
    } else if (bold !== undefined) {
      pieces.push(h('strong', {}, ...inline(bold)));
    } else {
      pieces.push(link ?? '');
    }
    end = match.index + whole.length;
  }
  pieces.push(source.slice(end));
  return pieces.filter(piece => piece !== '');
}
