// The message for a front end and a kernel of different versions.

import type { HelloReply } from './messages';
import { PROTOCOL } from './messages';
import { __ } from '../text';

/** A sentence that names the older side and how to upgrade it, or null if the versions match. */
export function mismatch(frontEnd: string, hello: Pick<HelloReply, 'kernel' | 'protocol'>): string | null {
  if (hello.protocol === PROTOCOL) {
    return null;
  }
  if (hello.protocol < PROTOCOL) {
    return (
      __('The kernel has hybrid_lab %1, which is older than this extension (%2). ', hello.kernel, frontEnd) +
      __("In the kernel's environment: pip install -U hybrid-lab, then restart the kernel.")
    );
  }
  return (
    __("This extension (%1) is older than the kernel's hybrid_lab %2. ", frontEnd, hello.kernel) +
    __('In the environment that runs Jupyter: pip install -U "hybrid-lab[lab]", then reload this page.')
  );
}

/** A sentence about a kernel that sends what this front end does not know. */
export function newerKernel(frontEnd: string, kernel: string): string {
  const which = kernel === '' ? '' : ` ${kernel}`;
  return (
    __(
      "The kernel's hybrid_lab%1 tells more than this extension (%2) can show; the rest works. ",
      which,
      frontEnd
    ) +
    __(
      'To see all: in the environment that runs Jupyter, pip install -U "hybrid-lab[lab]", then reload this page.'
    )
  );
}

export const NOT_IMPORTED = __(
  'hybrid_lab is not imported in this kernel yet. Run a cell with: import hybrid_lab as mx'
);
