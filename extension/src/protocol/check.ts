// Validators for JSON that came from the other side: each returns a typed value or throws naming the field.
// They are 1.6 kB of a bundle; zod/mini is 23 kB, validators that ajv compiles of the same types are 335 kB.

/** A received value is not what the protocol says. The message starts with the field's path. */
export class ProtocolError extends Error {
  override name = 'ProtocolError';
}

/** Returns `value` as a T, or throws a ProtocolError about the field `at`. */
export type Check<T> = (value: unknown, at: string) => T;

/** The type a validator returns. */
export type Checked<C> = C extends Check<infer T> ? T : never;

function fail(at: string, expected: string, value: unknown): never {
  const got = value === null ? 'null' : Array.isArray(value) ? 'a list' : typeof value;
  throw new ProtocolError(`${at || 'message'}: expected ${expected}, got ${got}`);
}

export const text: Check<string> = (value, at) =>
  typeof value === 'string' ? value : fail(at, 'a string', value);

export const flag: Check<boolean> = (value, at) =>
  typeof value === 'boolean' ? value : fail(at, 'true or false', value);

export const number: Check<number> = (value, at) =>
  typeof value === 'number' && Number.isFinite(value) ? value : fail(at, 'a number', value);

export const integer: Check<number> = (value, at) =>
  Number.isSafeInteger(value) ? (value as number) : fail(at, 'an integer', value);

export const anything: Check<unknown> = value => value;

/** The id of a node of a picture: safe in DOT text, in selectors and as an attribute. */
export const nodeId: Check<string> = (value, at) => {
  const id = text(value, at);
  if (!/^[A-Za-z0-9_]{1,64}$/.test(id)) {
    throw new ProtocolError(`${at}: ${JSON.stringify(id.slice(0, 80))} is no node id`);
  }
  return id;
};

export function nullable<T>(check: Check<T>): Check<T | null> {
  return (value, at) => (value === null ? null : check(value, at));
}

/** A field that an older kernel does not send: then it is `otherwise`. */
export function optional<T>(check: Check<T>, otherwise: T): Check<T> {
  return (value, at) => (value === undefined ? otherwise : check(value, at));
}

export function list<T>(check: Check<T>): Check<T[]> {
  return (value, at) =>
    Array.isArray(value)
      ? value.map((item: unknown, i) => check(item, `${at}[${i}]`))
      : fail(at, 'a list', value);
}

export function oneOf<T extends string>(...names: readonly T[]): Check<T> {
  return (value, at) => names.find(name => name === value) ?? fail(at, `one of ${names.join(', ')}`, value);
}

/** An object with any keys, all values of one kind. The result has no prototype: keys come from outside. */
export function dictionary<T>(check: Check<T>): Check<Record<string, T>> {
  return (value, at) => {
    const result = Object.create(null) as Record<string, T>;
    for (const [key, item] of Object.entries(asRecord(value, at))) {
      result[key] = check(item, `${at}.${key}`);
    }
    return result;
  };
}

/** An object with these fields; others are dropped, so that a newer kernel may send more. */
export function record<F extends Record<string, Check<unknown>>>(
  fields: F
): Check<{ [K in keyof F]: Checked<F[K]> }> {
  const entries = Object.entries(fields).map(([name, check]) => ({ name, check, at: `.${name}` }));
  return (value, at) => {
    const source = asRecord(value, at);
    const result: Record<string, unknown> = {};
    for (const field of entries) {
      result[field.name] = field.check(source[field.name], at ? at + field.at : field.name);
    }
    return result as { [K in keyof F]: Checked<F[K]> };
  };
}

/** A record whose `children` are records of the same kind. */
export type Tree<T> = T & { children: Tree<T>[] };

/** How deep a tree may be: deeper ones are refused instead of ending in a stack overflow. */
const MAX_DEPTH = 200;

export function tree<T>(node: Check<T>): Check<Tree<T>> {
  const at = (depth: number): Check<Tree<T>> => {
    return (value, field) => {
      if (depth > MAX_DEPTH) {
        throw new ProtocolError(`${field}: Blocks are nested more than ${MAX_DEPTH} deep`);
      }
      const children = record({ children: list(at(depth + 1)) })(value, field);
      return { ...node(value, field), ...children };
    };
  };
  return at(0);
}

function asRecord(value: unknown, at: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    fail(at, 'an object', value);
  }
  return value as Record<string, unknown>;
}
