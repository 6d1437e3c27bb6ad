import { Module } from '@nestjs/common';
import { SchemaChecker, type ContractBook } from '@holdfast/runtime';
import { CONTRACTS, SERVICE } from '@holdfast/runtime/nest';
import { RunHandlers } from './handlers.js';
import { orchestrator } from './routes.js';
import { readSettings } from './settings.js';
import { WaitHandlers } from './wait-handlers.js';

@Module({
  providers: [
    // One for both: a schema is compiled once, and that of all schemas too.
    { provide: SchemaChecker, useFactory: () => new SchemaChecker('input') },
    { provide: RunHandlers, inject: [CONTRACTS, SchemaChecker], useFactory: (contracts: ContractBook, schemas: SchemaChecker) => new RunHandlers(contracts, schemas, readSettings(process.env)) },
    { provide: WaitHandlers, inject: [RunHandlers, CONTRACTS, SchemaChecker], useFactory: (runs: RunHandlers, contracts: ContractBook, schemas: SchemaChecker) => new WaitHandlers(runs, contracts, schemas) },
    { provide: SERVICE, inject: [RunHandlers, WaitHandlers], useFactory: orchestrator },
  ],
  exports: [SERVICE],
})
export class OrchestratorModule {}
