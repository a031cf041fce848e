// The little Markdown that rule texts use (paragraphs, code, bold, lists, headings; indented code may follow a line at once), made into DOM without HTML strings.

import { h } from './dom';

/** Render `source` into a new element. Anything that is not understood stays plain text; links show their text only. */
export function renderMarkdown(source: string): HTMLElement {
  const root = h('div', { class: 'hl-markdown' });
  const lines = source.replace(/\r\n?/g, '\n').split('\n');
  let i = 0;
  while (i < lines.length) {
    const line = lines[i];
    const fence = /^\s*(```+|~~~+)/.exec(line);
    if (fence) {
      const code: string[] = [];
      for (i++; i < lines.length && !lines[i].trim().startsWith(fence[1]); i++) {
        code.push(lines[i]);
      }
      i++;
      root.append(h('pre', {}, h('code', {}, code.join('\n'))));
    } else if (/^( {4}|\t)/.test(line) && line.trim()) {
      const code: string[] = [];
      for (; i < lines.length && (/^( {4}|\t)/.test(lines[i]) || !lines[i].trim()); i++) {
        code.push(lines[i].replace(/^( {4}|\t)/, ''));
      }
      root.append(h('pre', {}, h('code', {}, code.join('\n').trimEnd())));
    } else if (/^#{1,6}\s/.test(line)) {
      root.append(h('p', { class: 'hl-markdown-heading' }, ...inline(line.replace(/^#+\s*/, ''))));
      i++;
    } else if (/^\s*[-*]\s+/.test(line)) {
      const items: HTMLElement[] = [];
      for (; i < lines.length && /^\s*[-*]\s+/.test(lines[i]); i++) {
        items.push(h('li', {}, ...inline(lines[i].replace(/^\s*[-*]\s+/, ''))));
      }
      root.append(h('ul', {}, ...items));
    } else if (!line.trim()) {
      i++;
    } else {
      const paragraph: string[] = [];
      for (
        ;
        i < lines.length && lines[i].trim() && !/^( {4}|\t|\s*(```|~~~|#{1,6}\s|[-*]\s))/.test(lines[i]);
        i++
      ) {
        paragraph.push(lines[i].trim());
      }
      if (paragraph.length === 0) {
        paragraph.push(lines[i++].trim());
      }
      root.append(h('p', {}, ...inline(paragraph.join(' '))));
    }
  }
  return root;
}

/** Render one line: code, bold, links as their text. */
export function inline(source: string): (Node | string)[] {
  const pieces: (Node | string)[] = [];
  const pattern = /(`+)(.+?)\1|\*\*(.+?)\*\*|\[([^\]]+)\]\([^)]*\)/g;
  let end = 0;
  for (const match of source.matchAll(pattern)) {
    pieces.push(source.slice(end, match.index));
    const [whole, , code, bold, link] = match;
    pieces.push(
      code !== undefined
        ? h('code', {}, code.trim())
        : bold !== undefined
          ? h('strong', {}, ...inline(bold))
          : link
    );
    end = (match.index ?? 0) + whole.length;
  }
  pieces.push(source.slice(end));
  return pieces.filter(piece => piece !== '');
}
