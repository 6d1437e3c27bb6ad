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
    const validate = this.#validator(contract);
    if (typeof validate === 'string') return validate;
    if (validate(value)) return null;
    const [error] = validate.errors ?? [];
    return error === undefined ? 'don’t match the schema' : `${error.instancePath === '' ? 'value' : error.instancePath.slice(1).replaceAll('/', '.')}: ${error.message ?? 'invalid'}`;
  }

  #validator(contract: ToolContract): ValidateFunction | string {
    const key = contractKey('tool', contract);
    const known = this.#compiled.get(key);
    if (known !== undefined) return known;
    const made = this.#compile(contract);
    this.#compiled.set(key, made);
    return made;
  }

  #compile(contract: ToolContract): ValidateFunction | string {
    try {
      return this.#ajv.compile(contract[this.#side] as object | boolean);
    } catch (error) {
      return `the contract’s own schema can’t be used (${error instanceof Error ? error.message : String(error)})`;
    }
  }
}
