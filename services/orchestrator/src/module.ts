import { Module } from '@nestjs/common';
import type { ContractBook } from '@holdfast/runtime';
import { CONTRACTS, SERVICE } from '@holdfast/runtime/nest';
import { RunHandlers } from './handlers.js';
import { orchestrator } from './routes.js';
import { readSettings } from './settings.js';
import { WaitHandlers } from './wait-handlers.js';

@Module({
  providers: [
    { provide: RunHandlers, inject: [CONTRACTS], useFactory: (contracts: ContractBook) => new RunHandlers(contracts, undefined, readSettings(process.env)) },
    { provide: WaitHandlers, inject: [RunHandlers, CONTRACTS], useFactory: (runs: RunHandlers, contracts: ContractBook) => new WaitHandlers(runs, contracts) },
    { provide: SERVICE, inject: [RunHandlers, WaitHandlers], useFactory: orchestrator },
  ],
  exports: [SERVICE],
})
export class OrchestratorModule {}
