// How numbers and shapes are written for people.

import type { Tensor } from '../protocol/messages';
import { __ } from '../text';

/** The word of a training's state, as it is told; one that this version does not know stays as it is. */
export function runStateText(state: string): string {
  const words: Partial<Record<string, string>> = {
    running: __('running'),
    done: __('done'),
    stopped: __('stopped'),
    interrupted: __('interrupted'),
    failed: __('failed'),
    lost: __('lost')
  };
  return words[state] ?? state;
}

/** `(64, 120)`; unknown dimensions are `?`; an unknown shape is `?`. */
export function shapeText(shape: Tensor['shape']): string {
  if (shape === null) {
    return '?';
  }
  const dims = shape.map(dim => (dim === null ? '?' : String(dim)));
  return dims.length === 1 ? `(${dims[0]},)` : `(${dims.join(', ')})`;
}

export function tensorText(tensor: Tensor): string {
  return `${tensor.dtype} ${shapeText(tensor.shape)}`.trim();
}

/** `61.7 k`, `2.1 M`; small numbers as they are; null is `?`. */
export function countText(count: number | null): string {
  if (count === null) {
    return '?';
  }
  for (const [size, unit] of [
    [1e9, 'G'],
    [1e6, 'M'],
    [1e3, 'k']
  ] as const) {
    if (count >= size) {
      return `${(count / size).toFixed(count / size < 100 ? 1 : 0)} ${unit}`;
    }
  }
  return String(count);
}

/** Three digits, as `mx.summary` writes them: `25.6 M`, `4.09 G`; small numbers as they are. */
export function preciseText(count: number): string {
  let left = count;
  for (const unit of ['', ' k', ' M', ' G', ' T']) {
    if (left < 999.5 || unit === ' T') {
      return unit === '' || left >= 999.5
        ? left.toFixed(0) + unit
        : String(Number(left.toPrecision(3))) + unit;
    }
    left /= 1000;
  }
  return String(count);
}

/** Bytes of memory, as the kernel writes them: `12 B`, `1.5 KiB`, `3.2 MiB`. */
export function memoryText(bytes: number): string {
  let left = bytes;
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (left < 1024 || unit === 'GiB') {
      return unit === 'B' ? `${left} B` : `${left.toFixed(1)} ${unit}`;
    }
    left /= 1024;
  }
  return '';
}

/** `61.7 k parameters`; null while shapes are not known. */
export function parametersText(count: number | null): string {
  return count === null
    ? __('parameters not known before the first call')
    : __('%1 parameters', countText(count));
}

export function bytesText(bytes: number): string {
  return bytes < 1000 ? __('%1 bytes', bytes) : `${countText(bytes)}B`;
}

/** `12 s ago`, `3 min ago`, else the date and time. Seconds since 1970. */
export function agoText(then: number, now: number): string {
  const seconds = Math.max(0, Math.round(now - then));
  if (seconds < 60) {
    return __('%1 s ago', seconds);
  }
  if (seconds < 3600) {
    return __('%1 min ago', Math.floor(seconds / 60));
  }
  return new Date(then * 1000).toLocaleString();
}

/** `at 14:05`, and the day where that is not today's. Seconds since 1970. */
export function timeText(then: number, now: Date): string {
  const date = new Date(then * 1000);
  const time = date.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
  const isToday = date.toDateString() === now.toDateString();
  return isToday ? __('at %1', time) : __('on %1 at %2', date.toLocaleDateString(), time);
}

/** The Block's path as code: `net.features.0`. */
export function accessPath(modelName: string, path: string): string {
  return path
    .split('.')
    .filter(part => part !== '')
    .reduce((code, part) => (/^\d+$/.test(part) ? `${code}[${part}]` : `${code}.${part}`), modelName);
}
