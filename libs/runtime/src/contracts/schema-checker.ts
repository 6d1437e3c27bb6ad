import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import { contractKey, type Json, type ToolContract } from '@holdfast/protocol';

/** Checks a tool's arguments (`input`) or result (`output`) against the JSON Schema of its contract. Schemas are compiled once each. */
export class SchemaChecker {
  readonly #ajv = new Ajv2020({ strict: false, allErrors: false, validateFormats: false });
  readonly #compiled = new Map<string, ValidateFunction | string>();
  readonly #side: 'input' | 'output';

  constructor(side: 'input' | 'output') {
    this.#side = side;
  }

  /** What is wrong with the value, or null. */
  problem(contract: ToolContract, value: Json): string | null {
    return judged(this.#validator(contract), value);
  }

  /** What is wrong with a value, by a schema that belongs to no contract; null when nothing is. */
  problemOf(schema: Json, value: Json): string | null {
    const key = JSON.stringify(schema);
    const known = this.#compiled.get(key) ?? this.#compile(schema);
    if (this.#compiled.size < SCHEMAS_MAX) this.#compiled.set(key, known);
    return judged(known, value);
  }

  #validator(contract: ToolContract): ValidateFunction | string {
    const key = contractKey('tool', contract);
    const known = this.#compiled.get(key);
    if (known !== undefined) return known;
    const made = this.#compile(contract[this.#side]);
    this.#compiled.set(key, made);
    return made;
  }

  #compile(schema: Json): ValidateFunction | string {
    try {
      return this.#ajv.compile(schema as object | boolean);
    } catch (error) {
      return `the schema itself can’t be used (${error instanceof Error ? error.message : String(error)})`;
    }
  }
}

/** Schemas that are kept compiled. */
const SCHEMAS_MAX = 5000;

function judged(validate: ValidateFunction | string, value: Json): string | null {
  if (typeof validate === 'string') return validate;
  if (validate(value)) return null;
  const [error] = validate.errors ?? [];
  return error === undefined ? 'don’t match the schema' : `${error.instancePath === '' ? 'value' : error.instancePath.slice(1).replaceAll('/', '.')}: ${error.message ?? 'invalid'}`;
}
