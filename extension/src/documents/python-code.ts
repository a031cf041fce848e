// The line of Python that loads a model file in a notebook.

import type { DocumentReply } from '../protocol/messages';

/** A string as Python writes it. */
export function pythonString(text: string): string {
  return JSON.stringify(text).replace(
    /[\u2028\u2029\u007f-\u009f\u200b-\u200f\u202a-\u202e]/g,
    character => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
  );
}

/** Whether a text can be the name of a variable. */
export function isName(text: string): boolean {
  return /^[A-Za-z]\w*$/.test(text) && !KEYWORDS.has(text);
}

const KEYWORDS = new Set(
  (
    'and as assert async await break class continue def del elif else except finally for from global if import in is ' +
    'lambda nonlocal not or pass raise return try while with yield mx'
  ).split(' ')
);

/** The path of a file on the server, as seen from a folder on the server. */
export function relativePath(path: string, folder: string): string {
  const to = path.split('/').filter(part => part !== '');
  const from = folder.split('/').filter(part => part !== '');
  let common = 0;
  while (common < from.length && common < to.length - 1 && from[common] === to[common]) {
    common++;
  }
  return [...from.slice(common).map(() => '..'), ...to.slice(common)].join('/');
}

/**
 * Two lines that load a file. In `code`, which the server sent, `FILE` stands for its path and `BESIDE` for the path of
 * the file `beside`. folder : of the notebook on the server, null where none was chosen.
 */
export function loadingCode(
  { code, beside }: Pick<DocumentReply, 'code' | 'beside'>,
  path: string,
  folder: string | null,
  variable: string
): string {
  const file = folder === null ? (path.split('/').pop() ?? path) : relativePath(path, folder);
  const second = file.slice(0, file.lastIndexOf('/') + 1) + beside;
  const expression = code
    .replace('FILE', () => pythonString(file))
    .replace(/BESIDE\)$/, () => `${pythonString(second)})`);
  return `import hybrid_lab as mx\n${variable} = ${expression}`;
}
