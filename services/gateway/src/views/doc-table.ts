import { rowsOf, storable, type Queries } from '../store/database.js';

type Column<Doc> = readonly [type: 'text' | 'bigint' | 'int' | 'boolean', value: (doc: Doc, key: readonly string[]) => string | number | boolean | null];

const SEPARATOR = '\u0000';

/** Rows of a table that are read, folded in memory and written back, in two statements however many they are. */
export class DocTable<Doc> {
  readonly #docs = new Map<string, Doc>();
  readonly #changed = new Set<string>();

  private constructor(
    private readonly tx: Queries,
    private readonly table: string,
    private readonly keys: readonly string[],
  ) {}

  /** Loads the rows of these keys; those that are not there yet may be set all the same. */
  static async load<Doc>(tx: Queries, table: string, keys: readonly string[], wanted: readonly (readonly string[])[]): Promise<DocTable<Doc>> {
    const made = new DocTable<Doc>(tx, table, keys);
    const distinct = [...new Set(wanted.map((key) => key.join(SEPARATOR)))].map((key) => key.split(SEPARATOR));
    if (distinct.length === 0) return made;
    const columns = keys.map((_, index) => `$${index + 1}::text[]`).join(', ');
    const rows = await rowsOf<Record<string, string>>(
      tx,
      `select ${keys.map((key) => `t.${key}`).join(', ')}, t.doc from ${table} t join unnest(${columns}) as w(${keys.join(', ')}) using (${keys.join(', ')})`,
      keys.map((_, index) => distinct.map((key) => key[index] ?? '')),
    );
    for (const row of rows) made.#docs.set(keys.map((key) => row[key] ?? '').join(SEPARATOR), JSON.parse(row['doc'] ?? 'null') as Doc);
    return made;
  }

  get(key: readonly string[]): Doc | undefined {
    return this.#docs.get(key.join(SEPARATOR));
  }

  set(key: readonly string[], doc: Doc): void {
    this.#docs.set(key.join(SEPARATOR), doc);
    this.#changed.add(key.join(SEPARATOR));
  }

  /** What was set. */
  changed(): { readonly key: readonly string[]; readonly doc: Doc }[] {
    return [...this.#changed].flatMap((id) => {
      const doc = this.#docs.get(id);
      return doc === undefined ? [] : [{ key: id.split(SEPARATOR), doc }];
    });
  }

  /** Writes what was set, with the columns that queries look at. */
  async save(columns: Readonly<Record<string, Column<Doc>>>): Promise<void> {
    const changed = this.changed();
    if (changed.length === 0) return;
    const names = Object.keys(columns);
    const all = [...this.keys, ...names, 'doc'];
    const types = [...this.keys.map(() => 'text'), ...Object.values(columns).map(([type]) => type), 'text'];
    const values = [
      ...this.keys.map((_, index) => changed.map(({ key }) => key[index] ?? '')),
      ...Object.values(columns).map(([, value]) => changed.map(({ doc, key }) => storable(value(doc, key)))),
      changed.map(({ doc }) => JSON.stringify(doc)),
    ];
    const selected = all.map((name) => (name === 'place' ? 'w.place::int[]' : `w.${name}`)).join(', ');
    await this.tx.query(
      `insert into ${this.table} (${all.join(', ')}) select ${selected} from unnest(${types.map((type, index) => `$${index + 1}::${type}[]`).join(', ')}) as w(${all.join(', ')})
       on conflict (${this.keys.join(', ')}) do update set ${[...names, 'doc'].map((name) => `${name} = excluded.${name}`).join(', ')}`,
      values,
    );
  }
}
