/** Light, dark, or as the system has it; and word of every change of colours, printing included. */
import { darkColors, lightColors, type ThemeColor } from '../themes.ts';

export type Theme = 'auto' | 'light' | 'dark';

const KEY = 'node-roce-report-theme';

export function savedTheme(): Theme {
  try {
    const saved = localStorage.getItem(KEY);
    return saved === 'light' || saved === 'dark' ? saved : 'auto';
  } catch {
    // Some browsers give files no storage.
    return 'auto';
  }
}

/** Shows a theme without storing it for later visits. */
export function showTheme(theme: Theme): void {
  if (theme === 'auto') document.documentElement.removeAttribute('data-theme');
  else document.documentElement.dataset.theme = theme;
  changed();
}

export function chooseTheme(theme: Theme): void {
  showTheme(theme);
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // Then it holds until the page is closed.
  }
}

const listeners = new Set<() => void>();

function changed(): void {
  for (const listener of listeners) listener();
}

const dark = matchMedia('(prefers-color-scheme: dark)');
const print = matchMedia('print');
/** Between the two events the style sheet for paper need not be in force yet. */
let isPrinting = false;

dark.addEventListener('change', changed);
print.addEventListener('change', changed);
for (const [event, is] of [
  ['beforeprint', true],
  ['afterprint', false],
] as const) {
  addEventListener(event, () => {
    isPrinting = is;
    changed();
  });
}

/** CSS pixels of a drawing between the margins of A4 or letter. */
export const PAPER_WIDTH = 660;

/** Calls back before the page is printed, and after; returns how to stop it. */
export function onPrint(listener: (isPrinting: boolean) => void): () => void {
  const before = () => listener(true);
  const after = () => listener(false);
  addEventListener('beforeprint', before);
  addEventListener('afterprint', after);
  return () => {
    removeEventListener('beforeprint', before);
    removeEventListener('afterprint', after);
  };
}

/** Calls back when colours or the medium may be others; returns how to stop it. */
export function onThemeChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** A colour as it is now: canvases know no `var(--…)`. The same choice as `themeStyle` makes in CSS. */
export function themeColor(name: ThemeColor): string {
  if (isPrinting || print.matches) return lightColors[name];
  const chosen = document.documentElement.dataset.theme ?? (dark.matches ? 'dark' : 'light');
  return (chosen === 'dark' ? darkColors : lightColors)[name];
}
