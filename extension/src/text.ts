// The texts that people read, in the language of JupyterLab. English is in the code and is the key of the others, which
// are in hybrid_lab/lab/locale.

/** What JupyterLab's translator gives for a package. `%1` is the first argument; in `_n` it is the number. */
export interface Texts {
  __: (text: string, ...values: unknown[]) => string;
  _n: (one: string, many: string, count: number, ...values: unknown[]) => string;
}

const filled = (text: string, values: readonly unknown[]): string =>
  text.replace(/%%|%(\d+)/g, (_, place?: string) => (place ? String(values[Number(place) - 1]) : '%'));

const english: Texts = {
  __: (text, ...values) => filled(text, values),
  _n: (one, many, count, ...values) => filled(count === 1 ? one : many, [count, ...values])
};

/** The page has one language: the module of `mx.view`, which JupyterLab does not load, finds it here. */
const KEY = Symbol.for('hybrid-lab:texts');
const page = globalThis as { [KEY]?: Texts };

/** Take the texts of a language, before modules with texts are loaded. */
export function setTexts(texts: Texts): void {
  page[KEY] = texts;
}

/** A text with its arguments. */
export function __(text: string, ...values: unknown[]): string {
  return (page[KEY] ?? english).__(text, ...values.map(String));
}

/** A number as every text writes it: 10,001. */
export function grouped(number: number): string {
  return number.toLocaleString('en');
}

/** A text that depends on a number, which is grouped: translators write the number itself as 10001. */
export function _n(one: string, many: string, count: number, ...values: unknown[]): string {
  const text = (page[KEY] ?? english)._n(one, many, count, ...values.map(String));
  return text.replace(String(count), () => grouped(count));
}
