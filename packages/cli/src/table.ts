/** Tables for people: columns as wide as what stands in them. */

export interface Column<T> {
  heading: string;
  value: (row: T) => string;
  /** Numbers stand at the right. */
  right?: boolean;
}

/** Heading and rows as lines; of text that carries no colours. */
export function tableOf<T>(columns: readonly Column<T>[], rows: readonly T[]): string[] {
  const cells = rows.map((row) => columns.map(({ value }) => value(row)));
  const widths = columns.map(({ heading }, i) =>
    Math.max(heading.length, ...cells.map((row) => row[i]!.length)),
  );
  return [columns.map(({ heading }) => heading), ...cells].map((row) => lineOf(columns, row, widths));
}

/** One line with columns of fixed widths; what is longer pushes the rest to the right. */
export function lineOf<T>(
  columns: readonly Column<T>[],
  cells: readonly string[],
  widths: readonly number[],
): string {
  const padded = cells.map((cell, i) =>
    columns[i]!.right ? cell.padStart(widths[i]!) : cell.padEnd(widths[i]!),
  );
  return padded.join('  ').trimEnd();
}
