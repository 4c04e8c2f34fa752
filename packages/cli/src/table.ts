/** Tables for the screen: columns as wide as their content, or paragraphs where a table does not fit. */
import { wrap } from './wrap.ts';

export interface Column<T> {
  heading: string;
  value: (row: T) => string;
  /** Numbers are aligned to the right. */
  right?: boolean;
}

/** Heading and rows as lines; the cells carry no colours. */
function tableOf<T>(columns: readonly Column<T>[], rows: readonly T[]): string[] {
  const cells = rows.map((row) => columns.map(({ value }) => value(row)));
  const widths = columns.map(({ heading }, i) =>
    Math.max(heading.length, ...cells.map((row) => row[i].length)),
  );
  return [columns.map(({ heading }) => heading), ...cells].map((row) => lineOf(columns, row, widths));
}

/**
 * The same within `width` columns: where the table is wider, each row becomes a paragraph of headings with values.
 * `heading` is undefined then.
 */
export function fitTable<T>(
  columns: readonly Column<T>[],
  rows: readonly T[],
  width: number,
): { heading: string | undefined; rows: string[] } {
  const [heading, ...lines] = tableOf(columns, rows) as [string, ...string[]];
  if ([heading, ...lines].every((line) => line.length <= width)) return { heading, rows: lines };
  return { heading: undefined, rows: rows.map((row) => paragraphOf(columns, row, width)) };
}

/** One row as `heading value, heading value, …`, wrapped, with the following lines indented. */
export function paragraphOf<T>(columns: readonly Column<T>[], row: T, width: number): string {
  const pairs = columns.map(({ heading, value }) => `${heading} ${value(row)}`.trim());
  return wrap('', pairs.join(', '), width, 4);
}

/** One line with columns of fixed widths; a longer cell moves the rest to the right. */
export function lineOf<T>(
  columns: readonly Column<T>[],
  cells: readonly string[],
  widths: readonly number[],
): string {
  const padded = cells.map((cell, i) =>
    columns[i].right ? cell.padStart(widths[i]) : cell.padEnd(widths[i]),
  );
  return padded.join('  ').trimEnd();
}
