// What a model's view needs of the panes that hold its tree and its graph.

/** Shares of the room, from 0 to 1, that the user has given to the parts of a view, and what of them is shown. */
export interface PaneSizes {
  /** The tree beside the graph, and above it. */
  beside?: number;
  above?: number;
  /** The drawer at the right, and at the lower edge. */
  right?: number;
  below?: number;
  /** Whether the tree is folded away. */
  isTreeHidden?: boolean;
  /** The columns of the tree that were chosen; absent: as many as its width suggests. */
  columns?: readonly string[];
}

/** Where sizes are remembered. */
export interface PaneMemory {
  read: () => PaneSizes;
  write: (changes: PaneSizes) => void;
  /** Resolves when earlier sizes are known. */
  readonly ready?: Promise<void>;
}

/** Two panes with a bar between them that can be dragged: the tree, and the graph. */
export interface Panes {
  readonly element: HTMLElement;
  /** Whether the tree is seen. */
  isTreeShown: boolean;
  /** Called when the tree was shown or folded away. */
  onTreeShown: () => void;
}

/** Makes the panes of a tree, which may have columns, and a graph. */
export type MakePanes = (
  tree: HTMLElement,
  graph: HTMLElement,
  memory: PaneMemory,
  hasColumns: boolean
) => Panes;

/** Sizes that last as long as the view. */
export function fleetingMemory(): PaneMemory {
  const sizes: PaneSizes = {};
  return { read: () => sizes, write: changes => void Object.assign(sizes, changes) };
}
