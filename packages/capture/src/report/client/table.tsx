/** A table that sorts by its columns, shows a page of its rows at a time, and whose rows may be chosen. */
import type { ComponentChildren } from 'preact';
import { useId, useMemo, useState } from 'preact/hooks';
import { formatCount } from '../../units.ts';

export interface Column<Row> {
  /** In the head; short. */
  name: string;
  /** For those who don't guess it. */
  title?: string;
  cell: (row: Row) => ComponentChildren;
  /** The value that the column sorts by; without it, it doesn't. Absent values come last. */
  sort?: (row: Row) => number | string | undefined;
  /** Aligned right, figures of one width. */
  isNumber?: boolean;
}

interface Props<Row> {
  label: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  keyOf: (row: Row) => number;
  chosen?: number | undefined;
  choose: (row: Row) => void;
  /** Rows of a page. */
  pageSize: number;
}

export function Table<Row>({ label, rows, columns, keyOf, chosen, choose, pageSize }: Props<Row>) {
  const [order, setOrder] = useState<{ column: number; down: boolean }>();
  const [page, setPage] = useState(0);
  const sorted = useMemo(
    () => (order === undefined ? rows : sortRows(rows, columns, order)),
    [rows, columns, order],
  );
  const pages = Math.max(1, Math.ceil(sorted.length / pageSize));
  const at = Math.min(page, pages - 1);
  const sortBy = (column: number) =>
    setOrder({ column, down: order?.column === column ? !order.down : false });
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard. */}
      <section class="scroll" tabIndex={0} aria-label={label}>
        <table>
          <thead>
            <tr>
              {columns.map((column, i) => (
                <th
                  key={column.name}
                  scope="col"
                  class={column.isNumber ? 'number' : ''}
                  aria-sort={order?.column === i ? (order.down ? 'descending' : 'ascending') : undefined}
                >
                  {column.sort === undefined ? (
                    <span title={column.title}>{column.name}</span>
                  ) : (
                    <button type="button" title={column.title} onClick={() => sortBy(i)}>
                      {column.name}
                    </button>
                  )}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {sorted.slice(at * pageSize, (at + 1) * pageSize).map((row) => (
              <tr key={keyOf(row)} class={keyOf(row) === chosen ? 'chosen' : ''} onClick={() => choose(row)}>
                {columns.map((column, i) => (
                  <td key={column.name} class={column.isNumber ? 'number' : ''}>
                    {i === 0 ? (
                      <button type="button" aria-pressed={keyOf(row) === chosen}>
                        {column.cell(row)}
                      </button>
                    ) : (
                      column.cell(row)
                    )}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {pages > 1 && <Pager page={at} pages={pages} size={pageSize} total={sorted.length} go={setPage} />}
    </>
  );
}

function sortRows<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  { column, down }: { column: number; down: boolean },
): Row[] {
  const sortKey = columns[column].sort!;
  return rows.toSorted((x, y) => {
    const [a, b] = [sortKey(x), sortKey(y)];
    if (a === undefined || b === undefined) return Number(a === undefined) - Number(b === undefined);
    return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
  });
}

interface PagerProps {
  page: number;
  pages: number;
  size: number;
  total: number;
  go: (page: number) => void;
}

export function Pager({ page, pages, size, total, go }: PagerProps) {
  const id = useId();
  return (
    <nav class="pager" aria-labelledby={id}>
      <button type="button" disabled={page === 0} onClick={() => go(page - 1)}>
        Earlier
      </button>
      <span id={id}>
        {formatCount(page * size + 1)} – {formatCount(Math.min((page + 1) * size, total))} of{' '}
        {formatCount(total)}
      </span>
      <button type="button" disabled={page >= pages - 1} onClick={() => go(page + 1)}>
        Later
      </button>
    </nav>
  );
}
