export { openContractBook, type ContractBook, type ContractSource } from './book.js';
