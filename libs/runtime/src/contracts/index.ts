export { openContractBook, type ContractBook, type ContractSource } from './book.js';
export { SchemaChecker } from './schema-checker.js';
