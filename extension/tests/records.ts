// Small valid records of the protocol, and a kernel that answers from a table.

import type { Layout } from '../src/graph/worker';
import type { MakePanes } from '../src/view/panes';
import type { RequestOptions, Requester } from '../src/protocol/channel';
import { RequestError } from '../src/protocol/channel';
import type {
  BlockNode,
  Diagnostic,
  GraphBox,
  GraphNode,
  GraphReply,
  Model,
  Reply,
  RequestType,
  Requests,
  SaveReply
} from '../src/protocol/messages';

export function model(changes: Partial<Model> = {}): Model {
  return {
    id: 'm1',
    name: 'net',
    block: 'net0',
    class: 'Net',
    hybrid: true,
    hybridized: true,
    blocks: 3,
    graphs: 1,
    findings: 0,
    parameters: 61706,
    engine: 'onnxruntime',
    file: 'net.hlab',
    undo: '',
    undoes: '',
    held: '',
    also: '',
    failed: null,
    revision: 1,
    summary: '',
    ...changes
  };
}

export function block(path: string, changes: Partial<BlockNode> = {}): BlockNode {
  const attr = path.split('.').pop() ?? '';
  return {
    path,
    attr: attr || 'net',
    codes: [],
    group: false,
    name: attr || 'net0',
    class: 'Dense',
    hybrid: true,
    state: 'inlined',
    why: '',
    failed_in: '',
    repr: '',
    parameters: [],
    parameter_count: 0,
    output: [],
    graphs: 0,
    engine: '',
    findings: 0,
    shared_with: null,
    location: null,
    children: [],
    ...changes
  };
}

/** net with a features container of two layers, and an output layer. */
export function network(): BlockNode {
  return block('', {
    class: 'Net',
    state: 'active',
    graphs: 1,
    children: [
      block('features', {
        class: 'HybridSequential',
        children: [block('features.0', { class: 'Conv2D' }), block('features.1', { class: 'MaxPool2D' })]
      }),
      block('output', { output: [{ shape: [null, 10], dtype: 'float32' }], parameter_count: 850 })
    ]
  });
}

export function diagnostic(changes: Partial<Diagnostic> = {}): Diagnostic {
  return {
    code: 'HL101',
    name: 'shape-read',
    severity: 'error',
    message: 'reads the shape of `x`',
    help: 'A Symbol has **no** shape.\n\n```python\nx.reshape((0, -1))\n```',
    rewrite: 'x.reshape((0, -1))',
    tensor: 'x',
    block: '',
    line: 2,
    col: 4,
    end_line: 2,
    end_col: 11,
    location: null,
    fix: null,
    calls: [],
    ...changes
  };
}

/** An input, a Block `features` of two operators, an addition that skips it, a Block of one operator, and the output. */
export function graph(changes: Partial<GraphReply> = {}): GraphReply {
  return {
    path: '',
    program: 'traced',
    programs: [{ id: 'traced', label: 'traced', half: 'traced', engine: '', reason: '', seconds: 0 }],
    boxes: [
      box('b0', { label: 'features', class: 'HybridSequential', block: 'features', operators: 2 }),
      box('b1', { label: 'output', class: 'Dense', block: 'output' })
    ],
    nodes: [
      node('n0', { kind: 'input', label: 'data', op: '' }),
      node('n1', { box: 'b0', label: 'Convolution', reads: ['n0'], attributes: { kernel: '(3, 3)' } }),
      node('n2', { box: 'b0', label: 'relu', reads: ['n1'] }),
      node('n3', { label: 'broadcast_add', reads: ['n2', 'n0'] }),
      {
        ...node('n4', {
          box: 'b1',
          label: 'FullyConnected',
          reads: ['n3'],
          attributes: { num_hidden: '10' }
        }),
        badges: [
          { name: 'weight', path: 'output.weight', shape: [10, 84], dtype: 'float32', kind: 'parameter' }
        ]
      },
      node('out0', { kind: 'output', label: 'output', op: '', reads: ['n4'] })
    ],
    locations: [],
    dot: 'digraph { n1 -> n2 }',
    missing: '',
    text: '%1 = FullyConnected(%0)',
    summary: '4 operators',
    variants: 1,
    failed: null,
    ...changes
  };
}

export function node(id: string, changes: Partial<GraphNode> & { reads?: string[] } = {}): GraphNode {
  const { reads = [], ...rest } = changes;
  return {
    id,
    box: '',
    kind: 'operator',
    label: id,
    op: rest.label ?? id,
    attributes: {},
    inputs: reads.map(source => ({ node: source, output: 0 })),
    outputs: [{ shape: [null, 10], dtype: 'float32' }],
    badges: [],
    block: '',
    location: null,
    engine: '',
    ...rest
  };
}

export function box(id: string, changes: Partial<GraphBox> = {}): GraphBox {
  return {
    id,
    parent: '',
    kind: 'block',
    label: id,
    class: '',
    block: null,
    copies: 1,
    operators: 1,
    summary: '',
    text: '',
    notes: [],
    outputs: [],
    location: null,
    ...changes
  };
}

export const kernelBox: GraphBox = box('g0', {
  label: 'fc1_relu',
  kind: 'kernel',
  summary: '2 operators, product',
  text: '@triton.jit\ndef fc1_relu(data_ptr):\n    ...',
  notes: ['fc1_relu, product; 4 programs; 2 KiB moved']
});

/** No worker answers: layers are drawn with their members below one another. */
export const noLayout: Layout = () => Promise.reject(new Error('no worker'));

/** Panes without a layout: the tree and the graph below one another. */
export const noPanes: MakePanes = (tree, graph) => {
  const element = document.createElement('div');
  element.append(tree, graph);
  return { element, isTreeShown: true, onTreeShown: () => undefined };
};

export const saved: SaveReply = {
  path: '/home/ada/work/net.hlab',
  file: 'net.hlab',
  host: 'lab-host',
  bytes: 250_000,
  graphs: [{ path: '', operators: 11 }],
  blocks: 3,
  parameters: 4,
  seconds: 0.12,
  note: '',
  kept: '',
  undo: 'u0'
};

type Answer = { [T in RequestType]?: (body: Requests[T]) => Reply<T> | Promise<Reply<T>> };

/** A kernel that answers at once; requests without an entry fail. `asked` notes all of them. */
export class TableKernel implements Requester {
  readonly asked: { type: RequestType; body: unknown }[] = [];

  constructor(readonly answers: Answer) {}

  async request<T extends RequestType>(type: T, body: Requests[T], _?: RequestOptions): Promise<Reply<T>> {
    this.asked.push({ type, body });
    const answer = this.answers[type];
    if (!answer) {
      throw new RequestError(
        'failed',
        `this kernel of a test has no answer to '${type}': give it one, or catch the error, as of an older kernel`
      );
    }
    return answer(body);
  }
}
