import { Table } from '@mantine/core';
import { createColumnHelper, tableFeatures, useTable, type ColumnDef, type RowData } from '@tanstack/react-table';

const features = tableFeatures({});
type Features = typeof features;

export type Columns<Row extends RowData> = readonly ColumnDef<Features, Row>[];
export const columnsOf = <Row extends RowData>() => createColumnHelper<Features, Row>();

interface Props<Row extends RowData> {
  readonly caption: string;
  readonly columns: Columns<Row>;
  readonly rows: Row[];
  readonly idOf: (row: Row) => string;
}

/** A table that turns into cards where there is no room for columns. */
export function DataTable<Row extends RowData>({ caption, columns, rows, idOf }: Props<Row>) {
  const table = useTable({ features, columns, data: rows, getRowId: idOf });
  return (
    <Table className="cards" striped captionSide="top">
      <Table.Caption>{caption}</Table.Caption>
      <Table.Thead>
        {table.getHeaderGroups().map((group) => (
          <Table.Tr key={group.id}>
            {group.headers.map((header) => (
              <Table.Th key={header.id} scope="col">
                <table.FlexRender header={header} />
              </Table.Th>
            ))}
          </Table.Tr>
        ))}
      </Table.Thead>
      <Table.Tbody>
        {table.getRowModel().rows.map((row) => (
          <Table.Tr key={row.id} data-row={row.id}>
            {row.getAllCells().map((cell) => (
              <Table.Td key={cell.id} className="wrap" {...(typeof cell.column.columnDef.header === 'string' ? { 'data-label': cell.column.columnDef.header } : {})}>
                <table.FlexRender cell={cell} />
              </Table.Td>
            ))}
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
