/** A table that sorts by its columns, shows a page of its rows at a time, and whose rows may be chosen. */
import { type ComponentChildren, Fragment } from 'preact';
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
  /** Left out of narrow windows. */
  isExtra?: boolean;
}

interface Props<Row> {
  label: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  keyOf: (row: Row) => number;
  chosen?: number | undefined;
  choose?: (row: Row) => void;
  /** More about a row, which a click on it opens and closes; of a few rows all are open at first. */
  detail?: (row: Row) => ComponentChildren;
  /** Rows of a page. */
  pageSize: number;
}

/** Rows that are all open at first. */
const FEW = 3;

export function Table<Row>(props: Props<Row>) {
  const { label, rows, columns, keyOf, chosen, choose, detail, pageSize } = props;
  const [open, setOpen] = useState<ReadonlySet<number>>(
    () => new Set(rows.length <= FEW ? rows.map(keyOf) : []),
  );
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
  const act = (row: Row) => {
    choose?.(row);
    if (detail === undefined) return;
    const next = new Set(open);
    if (!next.delete(keyOf(row))) next.add(keyOf(row));
    setOpen(next);
  };
  const canAct = choose !== undefined || detail !== undefined;
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
                  class={classOf(column)}
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
            {sorted.slice(at * pageSize, (at + 1) * pageSize).map((row) => {
              const key = keyOf(row);
              const pressed =
                detail === undefined
                  ? { 'aria-pressed': key === chosen }
                  : { 'aria-expanded': open.has(key) };
              return (
                <Fragment key={key}>
                  <tr
                    class={key === chosen ? 'chosen' : canAct ? '' : 'still'}
                    {...(canAct && { onClick: () => act(row) })}
                  >
                    {columns.map((column, i) => (
                      <td key={column.name} class={classOf(column)}>
                        {i === 0 && canAct ? (
                          <button type="button" {...pressed}>
                            {column.cell(row)}
                          </button>
                        ) : (
                          column.cell(row)
                        )}
                      </td>
                    ))}
                  </tr>
                  {detail !== undefined && open.has(key) && (
                    <tr class="still detail">
                      <td colSpan={columns.length}>{detail(row)}</td>
                    </tr>
                  )}
                </Fragment>
              );
            })}
          </tbody>
        </table>
      </section>
      {pages > 1 && <Pager page={at} pages={pages} size={pageSize} total={sorted.length} go={setPage} />}
    </>
  );
}

const classOf = <Row,>({ isNumber, isExtra }: Column<Row>): string =>
  [isNumber && 'number', isExtra && 'extra'].filter(Boolean).join(' ');

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
