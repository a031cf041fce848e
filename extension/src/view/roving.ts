// Toolbars by the ARIA pattern: one Tab stop for all that is in them, arrow keys move.

const CONTROLS = 'button, select, input, a[href]';

/** Whether an element has a box on the page; Safari before 17.4 cannot tell, and every element counts. */
const isRendered = (element: Partial<HTMLElement>): boolean => element.checkVisibility?.() ?? true;

const isDisabled = (control: HTMLElement): boolean => (control as HTMLButtonElement).disabled;

/** Make an element a toolbar: Tab comes to the control that had the focus last, arrow keys go to the others. */
export function toolbar(element: HTMLElement, label: string): void {
  element.setAttribute('role', 'toolbar');
  element.setAttribute('aria-label', label);
  let stop: HTMLElement | null = null;
  // The control that had the focus when it was disabled: browsers give the focus of such a control to the page.
  let lost: HTMLElement | null = null;

  const usable = (): HTMLElement[] =>
    [...element.querySelectorAll<HTMLElement>(CONTROLS)].filter(
      control => !isDisabled(control) && !control.closest('[hidden]') && isRendered(control)
    );
  const settle = (): void => {
    const controls = usable();
    const next = stop !== null && controls.includes(stop) ? stop : (controls[0] ?? null);
    element.querySelectorAll<HTMLElement>(CONTROLS).forEach(control => {
      control.tabIndex = control === next ? 0 : -1;
    });
  };

  element.addEventListener('focusin', event => {
    stop = event.target as HTMLElement;
    lost = null;
    settle();
  });
  element.addEventListener('focusout', event => {
    if (isDisabled(event.target as HTMLElement)) {
      lost = event.target as HTMLElement;
    }
  });
  element.addEventListener('keydown', event => {
    const controls = usable();
    const at = controls.indexOf(event.target as HTMLElement);
    const next = at < 0 ? undefined : target(event, controls, at);
    if (next) {
      event.preventDefault();
      event.stopPropagation();
      next.focus();
    }
  });
  if (typeof MutationObserver !== 'undefined') {
    new MutationObserver(changes => {
      settle();
      const { activeElement, body } = element.ownerDocument;
      if (stop !== null && isDisabled(stop) && activeElement === stop) {
        lost = stop;
      }
      const isEnabled = changes.some(
        ({ attributeName, target }) => attributeName === 'disabled' && !isDisabled(target as HTMLElement)
      );
      if (lost !== null && isEnabled) {
        // What was to be waited for is done. A button that has nothing more to do, such as Undo, gives the focus on.
        const next = isDisabled(lost) ? usable()[0] : lost;
        const isNowhere = activeElement === null || activeElement === body || activeElement === lost;
        lost = null;
        if (isNowhere) {
          next?.focus({ preventScroll: true });
        }
      }
    }).observe(element, {
      subtree: true,
      childList: true,
      attributeFilter: ['disabled', 'hidden']
    });
  }
  settle();
}

/** Where a key leads to; within a text the arrow keys move the cursor first. */
function target(event: KeyboardEvent, controls: HTMLElement[], at: number): HTMLElement | undefined {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const field = event.target as HTMLInputElement;
  const isText = field.tagName === 'INPUT' && ['text', 'search'].includes(field.type);
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) {
    return undefined;
  }
  if (step !== undefined) {
    if (isText) {
      const end = step > 0 ? field.value.length : 0;
      if (field.selectionStart !== end || field.selectionEnd !== end) {
        return undefined;
      }
    }
    return controls[(at + step + controls.length) % controls.length];
  }
  if (!isText && event.key === 'Home') {
    return controls[0];
  }
  return !isText && event.key === 'End' ? controls[controls.length - 1] : undefined;
}
