// The options that a host (panel, tab, widget, model file) gives a ModelView.

import type { Layout } from '../graph/worker';
import type { Location } from '../protocol/messages';
import type { MakePanes, PaneMemory } from './panes';
import type { SavesOptions } from './saved-values';

export interface ModelViewOptions {
  layout: Layout;
  /** Makes the panes of tree and graph. */
  panes: MakePanes;
  /** Where the sizes of panes and drawer are remembered; absent: as long as the view lasts. */
  sizes?: PaneMemory;
  /** Tabs of the drawer between findings and report. */
  tabs?: readonly ViewTab[];
  /** The view has a tab of its own: where it is wide, the tree has columns at first. */
  isTab?: boolean;
  /** The model is in a file, where nothing runs and nothing can be measured. */
  isFile?: boolean;
  /** The saves of the model's file; absent where nothing can be reloaded. */
  saves?: SavesOptions;
  /** Go to a place in a cell. */
  onLocation?: (location: Location) => void;
  /** The code of what is selected in the graph, null where it has none; it is shown without going there. */
  onCode?: (location: Location | null) => void;
  /** Compare the model with the file of this name. */
  onCompare?: (file: string) => void;
  /** Show a Block of another model, by its id. */
  onModel?: (model: string, path: string) => void;
  /** The Block the user selected. */
  onSelect?: (path: string) => void;
  /** A picture was drawn: cleaned SVG, for the static fallback. */
  onPicture?: (svg: string, path: string) => void;
}

/** A tab of the drawer that the host adds. */
export interface ViewTab {
  id: string;
  name: string;
  content: HTMLElement;
  /** Called when it is opened. */
  onShow?: () => void;
}
