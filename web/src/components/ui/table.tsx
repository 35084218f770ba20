import { type ReactNode, useId } from "react";
import { classNames } from "../../lib/class-names";

export interface TableColumn<Row> {
  /** Unique among the columns of the table. */
  id: string;
  header: string;
  cell: (row: Row) => ReactNode;
  align?: "start" | "end";
}

/** A table of rows. One that is wider than the page scrolls sideways, also by keyboard. */
export function Table<Row>({
  caption,
  columns,
  rows,
  rowKey,
  empty,
}: {
  caption: string;
  columns: TableColumn<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string;
  /** Shown in the place of the rows when there are none. */
  empty: ReactNode;
}) {
  const captionId = useId();
  const alignment = ({ align }: TableColumn<Row>) => (align === "end" ? "text-right tabular-nums" : "text-left");
  return (
    <div role="region" aria-labelledby={captionId} tabIndex={0} className="overflow-x-auto rounded border border-line bg-surface">
      <table className="w-full border-collapse text-sm">
        <caption id={captionId} className="sr-only">
          {caption}
        </caption>
        <thead className="border-b border-line text-soft">
          <tr>
            {columns.map((column) => (
              <th key={column.id} scope="col" className={classNames("px-4 py-2.5 font-medium whitespace-nowrap", alignment(column))}>
                {column.header}
              </th>
            ))}
          </tr>
        </thead>
        <tbody className="divide-y divide-line">
          {rows.map((row) => (
            <tr key={rowKey(row)}>
              {columns.map((column) => (
                <td key={column.id} className={classNames("px-4 py-2.5", alignment(column))}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
          {rows.length === 0 && (
            <tr>
              <td colSpan={columns.length} className="px-4 py-8 text-center text-soft">
                {empty}
              </td>
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}
