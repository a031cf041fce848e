// Written by scripts/write_protocol.py from hybrid_lab/lab/messages/; a test compares. docs/protocol.md explains it.

import type { Checked } from './check';
import {
  anything,
  dictionary,
  flag,
  integer,
  list,
  nodeId,
  nullable,
  number,
  oneOf,
  optional,
  record,
  text,
  tree
} from './check';

export const PROTOCOL = 3;
export const TARGET = 'hybrid_lab';

export const helloReply = record({
  kernel: text,
  kernel_id: optional(text, ''),
  protocol: integer,
  python: text,
  host: text,
  folder: text,
  engine: text,
  subshells: flag
});
export type HelloReply = Checked<typeof helloReply>;

export const failedBlock = record({
  path: text,
  why: text,
  count: integer,
  code: optional(text, '')
});
export type FailedBlock = Checked<typeof failedBlock>;

export const model = record({
  class: text,
  id: text,
  name: text,
  block: text,
  hybrid: flag,
  hybridized: flag,
  blocks: integer,
  graphs: integer,
  findings: integer,
  parameters: nullable(integer),
  engine: text,
  file: text,
  undo: text,
  undoes: text,
  revision: integer,
  held: optional(text, ''),
  also: optional(text, ''),
  failed: optional(nullable(failedBlock), null),
  summary: text
});
export type Model = Checked<typeof model>;

export const autosaveState = record({
  every: integer,
  file: text,
  saves: integer,
  last: number,
  seconds: number,
  problem: text
});
export type AutosaveState = Checked<typeof autosaveState>;

export const saving = record({
  left_out: text,
  autosave: nullable(autosaveState)
});
export type Saving = Checked<typeof saving>;

export const modelsReply = record({
  models: list(model),
  busy: flag,
  notes: list(text),
  saving: optional(dictionary(saving), {}),
  folder: optional(text, '')
});
export type ModelsReply = Checked<typeof modelsReply>;

export const parameter = record({
  name: text,
  shape: nullable(list(nullable(integer))),
  dtype: text,
  grad_req: text,
  shared: flag
});
export type Parameter = Checked<typeof parameter>;

export const tensor = record({
  shape: nullable(list(nullable(integer))),
  dtype: text
});
export type Tensor = Checked<typeof tensor>;

export const location = record({
  line: integer,
  col: integer,
  end_line: integer,
  end_col: integer,
  file: text,
  label: text,
  cell: nullable(integer),
  cell_id: text
});
export type Location = Checked<typeof location>;

export const blockNode = tree(
  record({
    class: text,
    path: text,
    attr: text,
    codes: optional(list(list(text)), []),
    group: optional(flag, false),
    name: text,
    hybrid: flag,
    state: oneOf('plain', 'eager', 'waiting', 'active', 'inlined', 'refused', 'failed', 'file', 'imported'),
    why: text,
    failed_in: optional(text, ''),
    repr: text,
    parameters: list(parameter),
    parameter_count: nullable(integer),
    output: list(tensor),
    graphs: integer,
    engine: text,
    findings: integer,
    shared_with: nullable(text),
    location: nullable(location)
  })
);
export type BlockNode = Checked<typeof blockNode>;

export const treeReply = record({
  model: model,
  root: blockNode
});
export type TreeReply = Checked<typeof treeReply>;

export const changedBlock = record({
  class: text,
  path: text,
  attr: text,
  codes: optional(list(list(text)), []),
  group: optional(flag, false),
  name: text,
  hybrid: flag,
  state: oneOf('plain', 'eager', 'waiting', 'active', 'inlined', 'refused', 'failed', 'file', 'imported'),
  why: text,
  failed_in: optional(text, ''),
  repr: text,
  parameters: list(parameter),
  parameter_count: nullable(integer),
  output: list(tensor),
  graphs: integer,
  engine: text,
  findings: integer,
  shared_with: nullable(text),
  location: nullable(location),
  below: list(text)
});
export type ChangedBlock = Checked<typeof changedBlock>;

export const changesReply = record({
  model: model,
  whole: flag,
  blocks: list(changedBlock)
});
export type ChangesReply = Checked<typeof changesReply>;

export const blockWork = record({
  path: text,
  counted_at: nullable(text),
  calls: integer,
  parameters: nullable(integer),
  multiply_adds: nullable(integer),
  flop: nullable(integer),
  activations: nullable(integer),
  outputs: list(tensor)
});
export type BlockWork = Checked<typeof blockWork>;

export const summaryReply = record({
  inputs: text,
  what_if: flag,
  headline: text,
  missing: text,
  blocks: list(blockWork)
});
export type SummaryReply = Checked<typeof summaryReply>;

export const graphProgram = record({
  id: text,
  label: text,
  half: oneOf('traced', 'predict', 'forward', 'backward', 'update'),
  engine: text,
  reason: text,
  seconds: number
});
export type GraphProgram = Checked<typeof graphProgram>;

export const graphBox = record({
  class: text,
  id: nodeId,
  parent: text,
  kind: oneOf('block', 'kernel', 'session', 'prologue', 'fold', 'part'),
  label: text,
  block: nullable(text),
  copies: integer,
  operators: integer,
  summary: text,
  text: text,
  notes: list(text),
  outputs: list(tensor),
  location: nullable(integer)
});
export type GraphBox = Checked<typeof graphBox>;

export const read = record({
  node: nodeId,
  output: integer
});
export type Read = Checked<typeof read>;

export const badge = record({
  name: text,
  path: text,
  shape: nullable(list(nullable(integer))),
  dtype: text,
  kind: oneOf('parameter', 'aux', 'constant')
});
export type Badge = Checked<typeof badge>;

export const graphNode = record({
  id: nodeId,
  box: text,
  kind: oneOf('operator', 'input', 'parameter', 'aux', 'constant', 'output'),
  label: text,
  op: text,
  attributes: dictionary(text),
  inputs: list(read),
  outputs: list(tensor),
  badges: list(badge),
  block: text,
  location: nullable(integer),
  engine: text
});
export type GraphNode = Checked<typeof graphNode>;

export const graphReply = record({
  path: text,
  program: text,
  programs: list(graphProgram),
  boxes: list(graphBox),
  nodes: list(graphNode),
  locations: list(location),
  text: text,
  dot: text,
  summary: text,
  missing: text,
  variants: integer,
  failed: nullable(location)
});
export type GraphReply = Checked<typeof graphReply>;

export const overlayItem = record({
  id: nodeId,
  value: nullable(number),
  share: number,
  short: text,
  text: text,
  bad: flag
});
export type OverlayItem = Checked<typeof overlayItem>;

export const moment = record({
  id: nodeId,
  bytes: integer
});
export type Moment = Checked<typeof moment>;

export const stepMoment = record({
  half: oneOf('forward', 'backward'),
  bytes: integer,
  kept: integer
});
export type StepMoment = Checked<typeof stepMoment>;

export const overlayReply = record({
  kind: oneOf('time', 'memory', 'values', 'gradients', 'engine'),
  program: text,
  unit: text,
  measured_on: oneOf('random', 'variables', 'kept', ''),
  headline: text,
  missing: text,
  items: list(overlayItem),
  marked: list(nodeId),
  timeline: list(moment),
  step: optional(list(stepMoment), [])
});
export type OverlayReply = Checked<typeof overlayReply>;

export const arrayNumber = record({
  name: text,
  text: text
});
export type ArrayNumber = Checked<typeof arrayNumber>;

export const valuesReply = record({
  title: text,
  type: text,
  facts: list(arrayNumber),
  finite: flag,
  bars: list(integer),
  low: text,
  high: text,
  picture: text,
  caption: text,
  text: text,
  missing: text
});
export type ValuesReply = Checked<typeof valuesReply>;

export const keptCall = record({
  path: text,
  inputs: text,
  bytes: integer
});
export type KeptCall = Checked<typeof keptCall>;

export const keepInputsReply = record({
  on: flag,
  calls: list(keptCall)
});
export type KeepInputsReply = Checked<typeof keepInputsReply>;

export const watchNanReply = record({
  on: flag
});
export type WatchNanReply = Checked<typeof watchNanReply>;

export const edit = record({
  line: integer,
  col: integer,
  end_line: integer,
  end_col: integer,
  text: text
});
export type Edit = Checked<typeof edit>;

export const fix = record({
  title: text,
  safe: flag,
  edits: list(edit)
});
export type Fix = Checked<typeof fix>;

export const findingCall = record({
  message: text,
  location: location
});
export type FindingCall = Checked<typeof findingCall>;

export const diagnostic = record({
  line: integer,
  col: integer,
  end_line: integer,
  end_col: integer,
  code: text,
  name: text,
  severity: oneOf('error', 'warning', 'note'),
  message: text,
  help: text,
  rewrite: text,
  tensor: text,
  block: text,
  location: nullable(location),
  fix: nullable(fix),
  calls: optional(list(findingCall), [])
});
export type Diagnostic = Checked<typeof diagnostic>;

export const findingsReply = record({
  findings: list(diagnostic)
});
export type FindingsReply = Checked<typeof findingsReply>;

export const nanAnswer = record({
  source: oneOf('watched', 'logged', 'parameters'),
  path: nullable(text),
  operator: text,
  part: text,
  name: text,
  step: nullable(integer),
  count: integer,
  text: text,
  location: nullable(location)
});
export type NanAnswer = Checked<typeof nanAnswer>;

export const changeAnswer = record({
  how: oneOf('saved', 'loaded', 'unknown'),
  file_now: oneOf('same', 'gone', 'other'),
  file: text,
  path: text,
  reachable: flag,
  when: number,
  changed: integer,
  uncompared: integer,
  unsure: integer,
  parameters: integer,
  structure: flag
});
export type ChangeAnswer = Checked<typeof changeAnswer>;

export const answersReply = record({
  model: text,
  nan: nullable(nanAnswer),
  change: nullable(changeAnswer),
  measurable: flag
});
export type AnswersReply = Checked<typeof answersReply>;

export const explainReply = record({
  text: text
});
export type ExplainReply = Checked<typeof explainReply>;

export const lintReply = record({
  cells: dictionary(list(diagnostic))
});
export type LintReply = Checked<typeof lintReply>;

export const savedGraph = record({
  path: text,
  operators: integer
});
export type SavedGraph = Checked<typeof savedGraph>;

export const saveReply = record({
  path: text,
  file: text,
  host: text,
  bytes: integer,
  graphs: list(savedGraph),
  blocks: integer,
  parameters: integer,
  seconds: number,
  note: text,
  kept: optional(text, ''),
  undo: optional(text, '')
});
export type SaveReply = Checked<typeof saveReply>;

export const operatorChange = record({
  kind: oneOf('same', 'added', 'removed', 'changed'),
  block: text,
  first: text,
  second: text,
  changes: list(text),
  first_place: nullable(integer),
  second_place: nullable(integer),
  line: text,
  first_block: text
});
export type OperatorChange = Checked<typeof operatorChange>;

export const tensorChange = record({
  kind: oneOf('same', 'added', 'removed', 'changed'),
  name: text,
  first: text,
  second: text,
  values: integer,
  changed: integer,
  largest: nullable(number),
  scale: nullable(number),
  first_name: text,
  exchanged: optional(text, ''),
  text: text
});
export type TensorChange = Checked<typeof tensorChange>;

export const blockChange = record({
  kind: oneOf('same', 'added', 'removed', 'changed'),
  path: text,
  class_name: text,
  changes: list(text),
  operators: list(operatorChange),
  tensors: list(tensorChange),
  move: oneOf('', 'renamed', 'moved'),
  first_path: nullable(text),
  second_path: nullable(text),
  exchange: optional(text, '')
});
export type BlockChange = Checked<typeof blockChange>;

export const difference = record({
  equal: flag,
  summary: text,
  first: text,
  second: text,
  blocks: list(blockChange),
  others: list(text),
  notes: list(text)
});
export type Difference = Checked<typeof difference>;

export const reloadReply = record({
  path: text,
  file: text,
  host: text,
  summary: text,
  graphs: integer,
  parameters: integer,
  diff: list(text),
  undo: text,
  seconds: number,
  difference: optional(nullable(difference), null),
  notes: optional(list(text), [])
});
export type ReloadReply = Checked<typeof reloadReply>;

export const comparedItem = record({
  first: nullable(nodeId),
  second: nullable(nodeId),
  kind: oneOf('same', 'added', 'removed', 'changed', 'values'),
  changes: list(text),
  block: text
});
export type ComparedItem = Checked<typeof comparedItem>;

export const comparedGraphs = record({
  first: graphReply,
  second: graphReply,
  items: list(comparedItem)
});
export type ComparedGraphs = Checked<typeof comparedGraphs>;

export const compareReply = record({
  path: text,
  file: text,
  host: text,
  difference: difference,
  graphs: optional(nullable(comparedGraphs), null)
});
export type CompareReply = Checked<typeof compareReply>;

export const comparedValuesReply = record({
  first: nullable(valuesReply),
  second: nullable(valuesReply)
});
export type ComparedValuesReply = Checked<typeof comparedValuesReply>;

export const undoReply = record({
  summary: text
});
export type UndoReply = Checked<typeof undoReply>;

export const target = record({
  class: text,
  file: text,
  bytes: integer,
  modified: number,
  blocks: integer,
  graphs: integer,
  problem: text,
  variable: optional(text, ''),
  path: text,
  version: text
});
export type Target = Checked<typeof target>;

export const targetsReply = record({
  targets: list(target)
});
export type TargetsReply = Checked<typeof targetsReply>;

export const keptSave = record({
  class: text,
  file: text,
  bytes: integer,
  modified: number,
  blocks: integer,
  graphs: integer,
  problem: text,
  variable: optional(text, ''),
  step: nullable(integer),
  loss: nullable(number),
  loss_name: text,
  note: text
});
export type KeptSave = Checked<typeof keptSave>;

export const historyReply = record({
  folder: text,
  current: nullable(keptSave),
  saves: list(keptSave)
});
export type HistoryReply = Checked<typeof historyReply>;

export const histogram = record({
  size: integer,
  looked: integer,
  zeros: integer,
  nans: integer,
  infinities: integer,
  minimum: nullable(number),
  maximum: nullable(number),
  mean: nullable(number),
  std: nullable(number),
  bins: list(integer)
});
export type Histogram = Checked<typeof histogram>;

export const savedValues = record({
  file: text,
  modified: number,
  step: nullable(integer),
  loss: nullable(number),
  loss_name: text,
  note: text,
  problem: text,
  recorded: flag,
  values: nullable(histogram),
  gradient: nullable(histogram)
});
export type SavedValues = Checked<typeof savedValues>;

export const histogramsReply = record({
  parameters: list(text),
  name: text,
  saves: list(savedValues),
  live: nullable(histogram),
  live_gradient: nullable(histogram)
});
export type HistogramsReply = Checked<typeof histogramsReply>;

export const restoreReply = record({
  path: text,
  file: text,
  host: text,
  summary: text,
  undo: text
});
export type RestoreReply = Checked<typeof restoreReply>;

export const noteReply = record({
  note: text
});
export type NoteReply = Checked<typeof noteReply>;

export const folderReply = record({
  folder: text,
  host: text,
  beside: flag,
  path: text,
  folders: list(text),
  archives: list(text)
});
export type FolderReply = Checked<typeof folderReply>;

export const autosaveReply = record({
  autosave: nullable(autosaveState)
});
export type AutosaveReply = Checked<typeof autosaveReply>;

export const openReply = record({
  model: model,
  path: text,
  summary: text
});
export type OpenReply = Checked<typeof openReply>;

export const archive = record({
  class: text,
  file: text,
  bytes: integer,
  modified: number,
  blocks: integer,
  graphs: integer,
  problem: text,
  variable: optional(text, '')
});
export type Archive = Checked<typeof archive>;

export const archivesReply = record({
  folder: text,
  host: text,
  archives: list(archive),
  folders: list(text)
});
export type ArchivesReply = Checked<typeof archivesReply>;

export const shareReply = record({
  path: text,
  bytes: integer,
  graphs: integer,
  left_out: integer
});
export type ShareReply = Checked<typeof shareReply>;

export const assetReply = record({
  name: text,
  text: text
});
export type AssetReply = Checked<typeof assetReply>;

export const loop = record({
  title: text,
  unit: text,
  depth: integer,
  done: integer,
  total: nullable(integer),
  seconds: number,
  rate: nullable(number),
  left: nullable(number),
  state: oneOf('running', 'done', 'stopped', 'interrupted', 'failed'),
  text: text
});
export type Loop = Checked<typeof loop>;

export const notFinite = record({
  what: oneOf('NaN', 'inf', '-inf'),
  first: integer,
  last: integer,
  count: integer
});
export type NotFinite = Checked<typeof notFinite>;

export const curve = record({
  name: text,
  unit: text,
  count: integer,
  starts: list(integer),
  steps: list(integer),
  counts: list(integer),
  means: list(number),
  lows: list(number),
  highs: list(number),
  firsts: list(number),
  lasts: list(number),
  last: nullable(number),
  last_step: integer,
  bad: list(notFinite),
  bad_count: integer,
  bad_text: text,
  latest: text,
  note: text,
  text: text
});
export type Curve = Checked<typeof curve>;

export const trainingRun = record({
  number: integer,
  label: text,
  state: oneOf('running', 'done', 'stopped', 'interrupted', 'failed'),
  ended: text,
  seconds: number,
  overhead: number,
  note: text,
  earlier_loops: integer,
  loops: list(loop),
  curves: list(curve)
});
export type TrainingRun = Checked<typeof trainingRun>;

export const curvesReply = record({
  runs: list(trainingRun)
});
export type CurvesReply = Checked<typeof curvesReply>;

export const keptRunRow = record({
  number: integer,
  label: text,
  started: number,
  place: text,
  state: text,
  model: text,
  steps: integer,
  time: text,
  last: text,
  details: list(text)
});
export type KeptRunRow = Checked<typeof keptRunRow>;

export const keptCurves = record({
  number: integer,
  curves: list(curve)
});
export type KeptCurves = Checked<typeof keptCurves>;

export const runsReply = record({
  file: text,
  problem: text,
  runs: list(keptRunRow),
  curves: list(keptCurves)
});
export type RunsReply = Checked<typeof runsReply>;

export const workerRow = record({
  rank: integer,
  host: text,
  process: integer,
  device: text,
  state: oneOf('idle', 'busy', 'interrupted', 'failed', 'lost'),
  step: integer,
  loss: text,
  rate: text,
  memory: text,
  problem: text
});
export type WorkerRow = Checked<typeof workerRow>;

export const workerCurves = record({
  rank: integer,
  curves: list(curve)
});
export type WorkerCurves = Checked<typeof workerCurves>;

export const workersReply = record({
  headline: text,
  note: text,
  workers: list(workerRow),
  curves: list(workerCurves)
});
export type WorkersReply = Checked<typeof workersReply>;

export const watchReply = record({});
export type WatchReply = Checked<typeof watchReply>;

export const staticReply = record({
  html: text
});
export type StaticReply = Checked<typeof staticReply>;

export const fact = record({
  name: text,
  text: text
});
export type Fact = Checked<typeof fact>;

export const documentReply = record({
  file: text,
  host: text,
  kind: oneOf('archive', 'symbol', 'arrays', 'onnx', 'unknown'),
  title: text,
  bytes: integer,
  modified: number,
  facts: list(fact),
  parts: integer,
  has_model: flag,
  code: text,
  beside: text,
  problem: text,
  next: text
});
export type DocumentReply = Checked<typeof documentReply>;

export const filePart = record({
  name: text,
  kind: oneOf('tensor', 'member'),
  shape: nullable(list(nullable(integer))),
  dtype: text,
  bytes: integer,
  state: oneOf('verified', 'read', 'damaged'),
  digest: text,
  minimum: nullable(number),
  maximum: nullable(number),
  mean: nullable(number),
  nan: integer,
  inf: integer,
  problem: text
});
export type FilePart = Checked<typeof filePart>;

export const contentsReply = record({
  parts: list(filePart),
  next: integer
});
export type ContentsReply = Checked<typeof contentsReply>;

export const differenceLine = record({
  change: oneOf('added', 'removed', 'changed', 'same'),
  what: oneOf('Block', 'operator', 'tensor', 'file'),
  name: text,
  text: text
});
export type DifferenceLine = Checked<typeof differenceLine>;

export const differenceReply = record({
  other: text,
  summary: text,
  count: integer,
  lines: list(differenceLine),
  graphs: nullable(comparedGraphs)
});
export type DifferenceReply = Checked<typeof differenceReply>;

export const errorBody = record({
  code: oneOf(
    'protocol',
    'bad-request',
    'wrong-kernel',
    'unknown-model',
    'unknown-block',
    'exists',
    'would-lose',
    'bad-file-name',
    'not-found',
    'corrupt',
    'differs',
    'name-taken',
    'nothing-to-undo',
    'too-large',
    'busy',
    'failed'
  ),
  message: text,
  next: text,
  details: list(text)
});
export type ErrorBody = Checked<typeof errorBody>;

export const progress = record({
  text: text,
  done: integer,
  total: integer
});
export type Progress = Checked<typeof progress>;

export const workRow = record({
  id: integer,
  title: text,
  part: text,
  seconds: number,
  done: integer,
  total: integer,
  unit: text
});
export type WorkRow = Checked<typeof workRow>;

export const workPush = record({
  works: list(workRow)
});
export type WorkPush = Checked<typeof workPush>;

export const envelope = record({
  hybrid_lab: integer,
  id: text,
  type: oneOf('ok', 'error', 'models', 'curves', 'work', 'workers', 'progress'),
  body: anything
});
export type Envelope = Checked<typeof envelope>;

export const cellError = record({
  error: text,
  model: text,
  block: nullable(text),
  name: text,
  places: list(location),
  hidden: integer
});
export type CellError = Checked<typeof cellError>;

/** The checks of the replies, by type of request. */
export const REPLIES = {
  hello: helloReply,
  models: modelsReply,
  tree: treeReply,
  changes: changesReply,
  summary: summaryReply,
  graph: graphReply,
  overlay: overlayReply,
  values: valuesReply,
  keep_inputs: keepInputsReply,
  watch_nan: watchNanReply,
  findings: findingsReply,
  answers: answersReply,
  explain: explainReply,
  lint: lintReply,
  save: saveReply,
  reload: reloadReply,
  compare: compareReply,
  compared_values: comparedValuesReply,
  undo: undoReply,
  targets: targetsReply,
  history: historyReply,
  histograms: histogramsReply,
  restore: restoreReply,
  note: noteReply,
  folder: folderReply,
  autosave: autosaveReply,
  open: openReply,
  archives: archivesReply,
  share: shareReply,
  asset: assetReply,
  curves: curvesReply,
  runs: runsReply,
  workers: workersReply,
  watch: watchReply,
  static: staticReply
} as const;

/** How the states of Blocks are called, and what they mean. */
export const STATES: Record<BlockNode['state'], { word: string; meaning: string }> = {
  active: { word: 'hybrid', meaning: 'runs as a graph of its own' },
  inlined: { word: 'inlined', meaning: "runs inside its parent's graph" },
  waiting: { word: 'waiting', meaning: 'is hybridized; its next call compiles its graph' },
  eager: { word: 'eager', meaning: 'is a HybridBlock that was not hybridized' },
  plain: { word: 'plain', meaning: 'is not hybrid: a Block that is no HybridBlock has no graph' },
  refused: { word: 'no graph', meaning: 'is hybridized, but its calls cannot be part of a graph' },
  failed: { word: 'failed', meaning: 'does not hybridize: its last call could not be traced or compiled' },
  file: { word: 'from file', meaning: 'runs a graph that was loaded from a file' },
  imported: { word: 'imported', meaning: 'runs the graph of a module of PyTorch' }
};

export type RequestType = keyof typeof REPLIES;
export type Reply<T extends RequestType> = Checked<(typeof REPLIES)[T]>;

/** The same for requests about a model file, which the Jupyter server answers. */
export const DOCUMENT_REPLIES = {
  document: documentReply,
  contents: contentsReply,
  difference: differenceReply,
  differing_values: comparedValuesReply
} as const;

export type DocumentRequestType = keyof typeof DOCUMENT_REPLIES;
export type DocumentAnswer<T extends DocumentRequestType> = Checked<(typeof DOCUMENT_REPLIES)[T]>;

export interface CellSource {
  id: string;
  source: string;
}

/** The bodies of the requests. */
export interface Requests {
  hello: {
    front_end: string;
    protocol: number;
    notebook: string;
  };
  models: Record<string, never>;
  tree: {
    model: string;
  };
  changes: {
    model: string;
    since: number;
  };
  summary: {
    model: string;
    inputs: string;
    batch: number;
    dtype: string;
  };
  graph: {
    model: string;
    path: string;
    program: string;
  };
  overlay: {
    model: string;
    path: string;
    program: string;
    kind: 'time' | 'memory' | 'values' | 'gradients' | 'engine';
    data: string;
  };
  values: {
    model: string;
    path: string;
    name: string;
    what: 'data' | 'grad' | 'output';
  };
  keep_inputs: {
    model: string;
    on?: boolean;
  };
  watch_nan: {
    model: string;
    on?: boolean;
  };
  findings: {
    model: string;
  };
  answers: {
    model: string;
  };
  explain: {
    model: string;
  };
  lint: {
    cells: CellSource[];
    only: string[];
    target?: '' | 'mxnet';
  };
  save: {
    model: string;
    file: string;
    overwrite: boolean;
    path?: string;
    replaces?: string;
    note?: string;
  };
  reload: {
    model: string;
    file: string;
    graphs: 'code' | 'file';
    path?: string;
  };
  compare: {
    model: string;
    file: string;
    path?: string;
    other?: string;
    graphs?: boolean;
  };
  compared_values: {
    model: string;
    file: string;
    path?: string;
    other?: string;
    graphs?: boolean;
    first: string;
    second: string;
  };
  undo: {
    model: string;
    undo: string;
  };
  targets: {
    files: string[];
  };
  history: {
    model: string;
    file: string;
  };
  histograms: {
    model: string;
    file: string;
    path: string;
    name: string;
  };
  restore: {
    model: string;
    file: string;
  };
  note: {
    model: string;
    file: string;
    note: string;
  };
  folder: {
    notebook: string;
    path: string;
  };
  autosave: {
    model: string;
    file: string;
    unit: 'off' | 'step' | 'epoch';
    every: number;
    overwrite?: boolean;
  };
  open: {
    file: string;
    name: string;
    replace: boolean;
  };
  archives: {
    path?: string;
  };
  share: {
    model: string;
  };
  asset: {
    name: 'graphviz';
  };
  curves: Record<string, never>;
  runs: {
    numbers: number[];
  };
  workers: Record<string, never>;
  watch: {
    visible: boolean;
  };
  static: {
    view: string;
  };
}

/** The bodies of the requests about a model file. */
export interface DocumentRequests {
  document: Record<string, never>;
  contents: {
    start: number;
  };
  difference: {
    other: string;
  };
  differing_values: {
    other: string;
    first: string;
    second: string;
  };
}
