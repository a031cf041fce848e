// The icon of the panel and the toolbar button: three blocks joined into one graph.

import { LabIcon } from '@jupyterlab/ui-components';

const SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="#616161">
    <path d="M3 3h7v6H3zM14 3h7v6h-7zM8.5 15h7v6h-7z"/>
    <path d="M5.7 9h1.6v2.2h9.4V9h1.6v3.8h-5.5V15h-1.6v-2.2H5.7z"/>
  </g>
</svg>`;

export const labIcon = new LabIcon({ name: 'hybrid-lab:icon', svgstr: SVG });
