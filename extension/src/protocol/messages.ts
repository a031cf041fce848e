// The messages of docs/protocol.md: one record per type, with the validator of what the kernel sends.

import {
  Check,
  Checked,
  ProtocolError,
  dictionary,
  flag,
  integer,
  list,
  nullable,
  number,
  oneOf,
  optional,
  record,
  text
} from './check';

export const PROTOCOL = 1;
export const TARGET = 'hybrid_lab';

export const shape = list(nullable(integer));
export const tensor = record({ shape: nullable(shape), dtype: text });
export type Shape = Checked<typeof shape>;
export type Tensor = Checked<typeof tensor>;

export const location = record({
  file: text,
  label: text,
  cell: nullable(integer),
  cell_id: text,
  line: integer,
  col: integer,
  end_line: integer,
  end_col: integer
});
export type Location = Checked<typeof location>;

const edit = record({ line: integer, col: integer, end_line: integer, end_col: integer, text });
const fix = record({ title: text, safe: flag, edits: list(edit) });
export type Edit = Checked<typeof edit>;
export type Fix = Checked<typeof fix>;

export const diagnostic = record({
  code: text,
  name: text,
  severity: oneOf('error', 'warning', 'note'),
  message: text,
  help: text,
  rewrite: text,
  tensor: text,
  block: text,
  line: integer,
  col: integer,
  end_line: integer,
  end_col: integer,
  location: nullable(location),
  fix: nullable(fix)
});
export type Diagnostic = Checked<typeof diagnostic>;

export const model = record({
  id: text,
  name: text,
  block: text,
  class: text,
  hybrid: flag,
  hybridized: flag,
  blocks: integer,
  graphs: integer,
  findings: integer,
  parameters: nullable(integer),
  engine: text,
  file: text,
  undo: text,
  revision: integer,
  summary: text
});
export type Model = Checked<typeof model>;

export const STATES = ['plain', 'eager', 'waiting', 'active', 'inlined', 'failed', 'file'] as const;

const parameter = record({
  name: text,
  shape: nullable(shape),
  dtype: text,
  grad_req: text,
  shared: flag
});
export type Parameter = Checked<typeof parameter>;

const blockFields = record({
  path: text,
  attr: text,
  name: text,
  class: text,
  hybrid: flag,
  state: oneOf(...STATES),
  why: text,
  repr: text,
  parameters: list(parameter),
  parameter_count: nullable(integer),
  output: list(tensor),
  graphs: integer,
  engine: text,
  findings: integer,
  shared_with: nullable(text),
  location: nullable(location)
});
export type BlockNode = Checked<typeof blockFields> & { children: BlockNode[] };

/** How deep a tree of Blocks may be: deeper ones are refused instead of ending in a stack overflow. */
const MAX_DEPTH = 200;

function blockNodeAt(depth: number): Check<BlockNode> {
  return (value, at) => {
    if (depth > MAX_DEPTH) {
      throw new ProtocolError(`${at}: Blocks are nested more than ${MAX_DEPTH} deep`);
    }
    const children = record({ children: list(blockNodeAt(depth + 1)) })(value, at);
    return { ...blockFields(value, at), ...children };
  };
}
export const blockNode = blockNodeAt(0);

export const NODE_KINDS = ['operator', 'input', 'parameter', 'aux', 'constant', 'block', 'output'] as const;

const nodeId: Check<string> = (value, at) => {
  const id = text(value, at);
  if (!/^[A-Za-z0-9_]{1,64}$/.test(id)) {
    throw new ProtocolError(`${at}: ${JSON.stringify(id.slice(0, 80))} is no node id`);
  }
  return id;
};

export const graphNode = record({
  id: nodeId,
  kind: oneOf(...NODE_KINDS),
  label: text,
  op: text,
  attributes: dictionary(text),
  inputs: list(nodeId),
  outputs: list(tensor),
  scope: text,
  block: nullable(text),
  location: nullable(location),
  group: text,
  engine: text
});
export type GraphNode = Checked<typeof graphNode>;

export const GROUP_KINDS = ['kernel', 'session', 'prologue'] as const;

export const graphGroup = record({
  id: nodeId,
  name: text,
  kind: oneOf(...GROUP_KINDS),
  summary: text,
  text,
  notes: list(text)
});
export type GraphGroup = Checked<typeof graphGroup>;

export const graphReply = record({
  path: text,
  form: text,
  forms: list(text),
  dot: text,
  missing: text,
  nodes: list(graphNode),
  groups: optional(list(graphGroup), []),
  text,
  summary: text,
  variants: integer
});
export type GraphReply = Checked<typeof graphReply>;

export const treeReply = record({ model, root: blockNode });
export type TreeReply = Checked<typeof treeReply>;

export const findingsReply = record({ findings: list(diagnostic) });
export type FindingsReply = Checked<typeof findingsReply>;

export const lintReply = record({ cells: dictionary(list(diagnostic)) });
export type LintReply = Checked<typeof lintReply>;

export const modelsReply = record({ models: list(model), busy: flag, notes: list(text) });
export type ModelsReply = Checked<typeof modelsReply>;

const helloReply = record({
  kernel: text,
  protocol: integer,
  python: text,
  host: text,
  folder: text,
  engine: text,
  subshells: flag
});
export type HelloReply = Checked<typeof helloReply>;

const savedGraph = record({ path: text, operators: integer });
const saveReply = record({
  path: text,
  file: text,
  host: text,
  bytes: integer,
  graphs: list(savedGraph),
  blocks: integer,
  parameters: integer,
  seconds: number,
  note: text
});
export type SaveReply = Checked<typeof saveReply>;

const reloadReply = record({
  path: text,
  file: text,
  host: text,
  summary: text,
  graphs: integer,
  parameters: integer,
  diff: list(text),
  undo: text,
  seconds: number
});
export type ReloadReply = Checked<typeof reloadReply>;

const archive = record({
  file: text,
  bytes: integer,
  modified: number,
  class: text,
  blocks: integer,
  graphs: integer,
  problem: text
});
export type Archive = Checked<typeof archive>;

/** The validators of the replies: also the closed set of request types. */
export const REPLIES = {
  hello: helloReply,
  models: modelsReply,
  tree: treeReply,
  graph: graphReply,
  findings: findingsReply,
  explain: record({ text }),
  lint: lintReply,
  save: saveReply,
  reload: reloadReply,
  undo: record({ summary: text }),
  open: record({ model, path: text, summary: text }),
  archives: record({ folder: text, host: text, archives: list(archive) }),
  asset: record({ name: text, text })
} as const;

export type RequestType = keyof typeof REPLIES;
export type Reply<T extends RequestType> = Checked<(typeof REPLIES)[T]>;

/** One cell of a `lint` request. */
export interface CellSource {
  id: string;
  source: string;
}

/** The bodies of the requests. */
export interface Requests {
  hello: { front_end: string; protocol: number; notebook: string };
  models: Record<string, never>;
  tree: { model: string };
  graph: { model: string; path: string; form: 'neutral' | 'compiled' };
  findings: { model: string };
  explain: { model: string };
  lint: { cells: CellSource[]; only: string[] };
  save: { model: string; file: string; overwrite: boolean };
  reload: { model: string; file: string; graphs: 'code' | 'file' };
  undo: { model: string; undo: string };
  open: { file: string; name: string; replace: boolean };
  archives: Record<string, never>;
  asset: { name: 'graphviz' };
}

export const ERROR_CODES = [
  'protocol',
  'bad-request',
  'unknown-model',
  'unknown-block',
  'exists',
  'bad-file-name',
  'not-found',
  'corrupt',
  'differs',
  'name-taken',
  'nothing-to-undo',
  'too-large',
  'failed'
] as const;
export type ErrorCode = (typeof ERROR_CODES)[number];

export const errorBody = record({
  code: oneOf(...ERROR_CODES),
  message: text,
  next: text,
  details: list(text)
});
export const progressBody = record({ text, done: integer, total: integer });
export type Progress = Checked<typeof progressBody>;

export const envelope = record({
  hybrid_lab: integer,
  id: text,
  type: oneOf('ok', 'error', 'models', 'progress'),
  body: ((value: unknown) => value) as Check<unknown>
});
