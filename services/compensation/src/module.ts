import { Module } from '@nestjs/common';
import type { ContractBook } from '@holdfast/runtime';
import { CONTRACTS, SERVICE } from '@holdfast/runtime/nest';
import { PlanHandlers } from './handlers.js';
import { compensation } from './routes.js';

@Module({
  providers: [
    { provide: PlanHandlers, inject: [CONTRACTS], useFactory: (contracts: ContractBook) => new PlanHandlers(contracts) },
    { provide: SERVICE, inject: [PlanHandlers], useFactory: compensation },
  ],
  exports: [SERVICE],
})
export class CompensationModule {}
