import { Module } from '@nestjs/common';
import type { ContractBook } from '@holdfast/runtime';
import { CONTRACTS, SERVICE } from '@holdfast/runtime/nest';
import { RunHandlers } from './handlers.js';
import { orchestrator } from './routes.js';

@Module({
  providers: [
    { provide: RunHandlers, inject: [CONTRACTS], useFactory: (contracts: ContractBook) => new RunHandlers(contracts) },
    { provide: SERVICE, inject: [RunHandlers], useFactory: orchestrator },
  ],
  exports: [SERVICE],
})
export class OrchestratorModule {}
