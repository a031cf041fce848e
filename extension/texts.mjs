// The texts of the front end: which there are, and which strings that people read are not among them.
//
//     node extension/texts.mjs          every text, one JSON string a line ("one" or ["one", "many"])
//     node extension/texts.mjs --check  strings in the code that look like texts and are not inside __( ) or _n( ),
//                                       and words in the style sheets' `content`

import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const here = join(dirname(fileURLToPath(import.meta.url)), 'src');
const styles = join(here, '../style');
/** Types, names of Python, SVG and what is only written to the log. */
const WITHOUT =
  /^text\.ts$|^index\.ts$|\/(messages|version|python-code|check|camera|icon|layer|safe-svg)\.ts$|\.d\.ts$/;
/** Properties whose values are keys, and no texts. */
const KEYS = new Set(
  [
    'class',
    'type',
    'role',
    'id',
    'key',
    'kind',
    'command',
    'for',
    'style',
    'href',
    'rel',
    'namespace',
    'mode'
  ].concat([
    'description',
    'selector',
    'displayName',
    'iconClass',
    'font',
    'target',
    'fill',
    'inputmode',
    'autocomplete'
  ])
);
/** Names, code, and words of the protocol. */
const NO_TEXTS = new Set(
  ['net = nn.HybridSequential()', 'button, select, input, a[href]', '(prefers-color-scheme: dark)'].concat(
    ['folder/other.hlab', 'Hybrid Lab', 'Hybrid Lab Model', 'failed more', 'a loss function', 'PNG', 'SVG'],
    ['its graph failed in ', 'Helvetica, Arial, sans-serif', 'info', 'NaN', 'KiB', 'MiB', 'GiB']
  )
);
const KEYBOARD = /^(Enter|Escape|Home|End|Arrow\w+|Backspace|Page\w+|Tab|Delete|Infinity)$/;
const CODE =
  /\bhl-|^[.#[]|\bjp-|^(svg|path)\b|=>|^[a-z-]+:[a-z]|translate\(|^[MLZ][\d$-]|^[MLZ]\u0001|px\b|^hybrid_lab |^failed \u0001/;
const ASKED =
  /console\.|querySelector|EventListener|getAttribute|createElement|classList|matches|closest|startsWith|endsWith|includes|\.request$|\.split|\.join|uniqueId|import$|\.replace$|has$|\.get$|\.set$|getContext|localeCompare|RegExp|Symbol/;

const isSentence = text =>
  /[A-Za-z]{2,}[.,:;!?…]? [A-Za-z(]/.test(text) ||
  /^[A-Z][a-z]+( …|…|:|\.)?$/.test(text) ||
  /^[,; ]*[a-z]{2,} $|^ [a-z]+| [a-z]{2,}$/.test(text);

const files = folder =>
  readdirSync(folder, { withFileTypes: true }).flatMap(entry =>
    entry.isDirectory()
      ? files(join(folder, entry.name))
      : entry.name.endsWith('.ts')
        ? [join(folder, entry.name)]
        : []
  );

/** The text of a literal, with a control character in the place of each expression. */
const textOf = node =>
  ts.isTemplateExpression(node)
    ? node.head.text + node.templateSpans.map(span => `\u0001${span.literal.text}`).join('')
    : node.text;

function looksLikeText(node, source) {
  const text = textOf(node);
  if (
    !/[A-Za-z]{2}/.test(text.replaceAll('\u0001', '')) ||
    NO_TEXTS.has(text) ||
    KEYBOARD.test(text) ||
    CODE.test(text)
  ) {
    return false;
  }
  let child = node;
  let parent = node.parent;
  while (
    ts.isParenthesizedExpression(parent) ||
    ts.isAsExpression(parent) ||
    (ts.isConditionalExpression(parent) && parent.condition !== child) ||
    (ts.isBinaryExpression(parent) && ['+', '??', '||', '&&'].includes(parent.operatorToken.getText(source)))
  ) {
    [child, parent] = [parent, parent.parent];
  }
  if (ts.isCallExpression(parent)) {
    const name = parent.expression.getText(source);
    const place = parent.arguments.indexOf(child);
    if (/^(__|_n)$/.test(name) || (name === 'h' && place < 2) || ASKED.test(name)) {
      return false;
    }
    return name === 'h' || (name === 'button' && place === 0) || isSentence(text);
  }
  if (ts.isPropertyAssignment(parent)) {
    return (
      parent.name !== child && !KEYS.has(parent.name.getText(source).replaceAll("'", '')) && isSentence(text)
    );
  }
  if (ts.isBinaryExpression(parent)) {
    const isSet = parent.right === child && /^\+?=$/.test(parent.operatorToken.getText(source));
    return isSet && !/className|dataset|type$|id$|role/.test(parent.left.getText(source)) && isSentence(text);
  }
  const isNoValue =
    ts.isImportDeclaration(parent) ||
    ts.isExportDeclaration(parent) ||
    ts.isLiteralTypeNode(parent) ||
    ts.isCaseClause(parent) ||
    ts.isElementAccessExpression(parent) ||
    (ts.isPropertyDeclaration(parent) && parent.name.getText(source) === 'name');
  return !isNoValue && isSentence(text);
}

const texts = new Map();
const missed = [];
for (const file of files(here)) {
  const source = ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.ES2022, true);
  const path = relative(here, file);
  const visit = node => {
    if (ts.isCallExpression(node) && /^(__|_n)$/.test(node.expression.getText(source))) {
      const found = node.arguments.slice(0, node.expression.getText(source) === '_n' ? 2 : 1);
      if (found.every(ts.isStringLiteralLike)) {
        const key = found.map(each => each.text);
        texts.set(JSON.stringify(key.length === 1 ? key[0] : key), null);
      } else if (path !== 'text.ts' && !/\.(word|meaning)$/.test(node.arguments[0].getText(source))) {
        missed.push(`${path}: ${node.getText(source)}: a text is written where it is used`);
      }
    }
    // States of Blocks, which the protocol's declaration names.
    if (
      path.endsWith('messages.ts') &&
      ts.isPropertyAssignment(node) &&
      ts.isStringLiteralLike(node.initializer)
    ) {
      if (['word', 'meaning'].includes(node.name.getText(source))) {
        texts.set(JSON.stringify(node.initializer.text), null);
      }
    }
    const isLiteral = ts.isStringLiteralLike(node) || ts.isTemplateExpression(node);
    if (isLiteral && !WITHOUT.test(path) && looksLikeText(node, source)) {
      const { line } = source.getLineAndCharacterOfPosition(node.getStart(source));
      missed.push(`${path}:${line + 1}: ${node.getText(source)}`);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
}
if (process.argv.includes('--check')) {
  for (const name of readdirSync(styles).filter(each => each.endsWith('.css'))) {
    for (const [rule] of readFileSync(join(styles, name), 'utf8').matchAll(/\bcontent:[^;]*/g)) {
      if ((rule.match(/'[^']*'|"[^"]*"/g) ?? []).some(text => /[a-z]{2}/i.test(text))) {
        missed.push(`${name}: ${rule}`);
      }
    }
  }
  missed.forEach(line => console.error(`${line} is no text of the catalogs: __(...) of src/text.ts`));
  process.exitCode = missed.length > 0 ? 1 : 0;
} else {
  console.log([...texts.keys()].sort().join('\n'));
}
